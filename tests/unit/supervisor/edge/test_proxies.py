"""Proxy links at other routers: divided among a bundle, attached again after a refusal, closed without clients."""

from __future__ import annotations

from typing import Any

import pytest

from router.control.edge_properties import EDGE, EDGE_VERSION
from tests.unit.supervisor.edge.edge_router import EdgeRouter

OURS: dict[str, Any] = {EDGE: EDGE_VERSION}


def test_addresses_are_divided_among_bundle(bundle: EdgeRouter) -> None:
    client = bundle.client()
    for number in range(6):
        bundle.attach(client, "out", f"a{number}")
    members = [bundle.interior("A", **OURS) for _ in range(3)]
    assert [len(bundle.proxies(each, "in")) for each in members] == [2, 2, 2]
    assert sorted(name for each in members for name in bundle.proxies(each, "in")) == [f"a{n}" for n in range(6)]
    assert bundle.uplink.states() == {"active": 3, "waiting": 0}
    services = [link.conn for link in bundle.links.values() if link.second]
    assert services == [members[0].number] * len(services), "the links between the routers are on the first"


def test_bundle_waits_for_all_its_connections(bundle: EdgeRouter, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle.attach(bundle.client(), "out", "a")
    first = bundle.interior("A", **OURS)
    assert bundle.proxies(first, "in") == []
    now = bundle.core.deadline
    assert now < float("inf")
    monkeypatch.setattr("supervisor.edge.proxies.time.monotonic", lambda: now)
    bundle.settle()
    assert bundle.proxies(first, "in") == ["a"]


def test_lost_bundle_member_moves_its_addresses(bundle: EdgeRouter) -> None:
    client = bundle.client()
    for number in range(6):
        bundle.attach(client, "in", f"a{number}")
    members = [bundle.interior("A", **OURS) for _ in range(3)]
    stay = {each.number: bundle.proxies(each, "out") for each in members}
    for number in range(6):
        bundle.track(members[0], f"M0a{number}", True)
    bundle.close(members[2])
    for each in members[:2]:
        assert set(stay[each.number]) < set(bundle.proxies(each, "out"))
    names = [name for each in members[:2] for name in bundle.proxies(each, "out")]
    assert sorted(names) == [f"a{number}" for number in range(6)]
    bundle.close(members[0])
    assert bundle.proxies(members[1], "out") == [f"a{number}" for number in range(6)]
    assert bundle.uplink.connection is members[1]
    for number in range(6):
        bundle.track(members[1], f"M0a{number}", True)
        assert bundle.destinations(f"M0a{number}") == [members[1].number]
