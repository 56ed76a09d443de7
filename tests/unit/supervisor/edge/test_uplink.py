"""Uplink of an edge router: its counters, and connections that open and close in quick succession."""

from __future__ import annotations

import time
from typing import Any

import pytest

from sluice.router.control.edge_properties import EDGE, EDGE_VERSION
from sluice.supervisor.connections.connections import RegisteredConnection
from sluice.supervisor.edge.uplink_proxies import BURST, HOLD, QUIET
from tests.unit.supervisor.edge.edge_router import EdgeRouter, connector


@pytest.fixture
def edge() -> EdgeRouter:
    return EdgeRouter(connector("up"), connector("other"))


def test_first_connection_is_uplink_and_others_wait(edge: EdgeRouter) -> None:
    client = edge.client()
    edge.attach(client, "out", "a")
    edge.attach(client, "in", "b")
    first, second = edge.interior("A"), edge.interior("B", "other")
    assert edge.uplink.states() == {"active": 1, "waiting": 1}
    assert (edge.proxies(first, "in"), edge.proxies(first, "out")) == (["a"], ["b"])
    assert edge.proxies(second, "in") == edge.proxies(second, "out") == []
    edge.close(first)
    assert (edge.proxies(second, "in"), edge.proxies(second, "out")) == (["a"], ["b"])
    assert (edge.uplink.activated, edge.uplink.lost) == (2, 1)
    assert edge.uplink.states() == {"active": 1, "waiting": 0}


def test_flapping_connections_leave_no_state(edge: EdgeRouter) -> None:
    client = edge.client()
    consumer = edge.attach(client, "out", "a")
    producer = edge.attach(client, "in", "b")
    waiting = None
    for round_ in range(50):
        active = waiting or edge.interior("A")
        edge.track(active, "M0b", True)
        assert edge.destinations("M0b") == [active.number]
        waiting = edge.interior("B", "other") if round_ % 3 else None
        edge.close(active)
        assert edge.record("M0b").consumers is None
    if waiting is not None:
        edge.close(waiting)
    assert edge.links == {}
    assert edge.uplink.states() == {"active": 0, "waiting": 0}
    assert edge.uplink.activated == edge.uplink.lost
    edge.detach(client, consumer)
    edge.detach(client, producer)
    assert not {"M0a", "M0b"} & edge.core.table.records.keys()
    assert edge.record("L_edge").consumers is None


# -- Bundles


OURS: dict[str, Any] = {EDGE: EDGE_VERSION}


def attach_burst(edge: EdgeRouter) -> RegisteredConnection:
    """Attach receivers until the proxy of the first one, which is answered, waits; return the interior router."""
    interior, client = edge.interior("A", **OURS), edge.client()
    for number in range(BURST + 2):
        edge.attach_pending(client, "out", f"a{number}")
    edge.answer(interior)
    assert edge.record("M0a0").consumers
    assert edge.proxies(interior, "in") == []
    return interior


def test_proxy_receiver_in_burst_waits_for_unanswered_clients(
    edge: EdgeRouter, monkeypatch: pytest.MonkeyPatch
) -> None:
    interior = attach_burst(edge)
    for _ in range(BURST + 1):
        assert edge.proxies(interior, "in") == []
        edge.answer(interior)
    until = edge.core.deadline
    assert until <= time.monotonic() + QUIET
    monkeypatch.setattr("sluice.supervisor.edge.proxies.time.monotonic", lambda: until)
    edge.settle()
    assert len(edge.proxies(interior, "in")) == BURST + 2


def test_proxy_receiver_in_burst_waits_no_longer_than_hold(edge: EdgeRouter, monkeypatch: pytest.MonkeyPatch) -> None:
    interior = attach_burst(edge)
    until = time.monotonic() + HOLD
    monkeypatch.setattr("sluice.supervisor.edge.proxies.time.monotonic", lambda: until)
    edge.settle()
    assert edge.proxies(interior, "in") == ["a0"]


def test_connection_to_other_interior_router_is_no_member(bundle: EdgeRouter) -> None:
    bundle.interior("A", **OURS)
    other = bundle.interior("B", "other", **OURS)
    assert not bundle.uplink.uses(other)
    assert other.edge == bundle.interior("A", **OURS).edge, "deliveries of one uplink do not leave by another"


# -- Several active uplinks


def test_incapable_uplink_waits() -> None:
    several = EdgeRouter(connector("dear", cost=2), connector("cheap"), uplinks="all")
    b = several.interior("B", "dear", **OURS)
    old = several.interior("OLD", "cheap", **{EDGE: 1})
    assert several.uplink.states() == {"active": 1, "waiting": 1}
    several.close(b)
    assert several.uplink.connection is old
    again = several.interior("B", "dear", **OURS)
    assert several.uplink.states() == {"active": 1, "waiting": 1}
    third = several.interior("A", "dear", **OURS)
    several.close(old)
    assert several.uplink.states() == {"active": 2, "waiting": 0}
    assert {each.number for each in (again, third)} == {
        connection for connection in several.precedences if connection != b.number
    }
