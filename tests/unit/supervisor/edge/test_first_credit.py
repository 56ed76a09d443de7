"""First credit of producers at an edge router: withheld for some addresses until the destinations beyond the uplink
are known."""

from __future__ import annotations

import time
from typing import Any

import pytest

from sluice.router.control import messages
from sluice.router.control.edge_properties import EDGE, EDGE_VERSION
from sluice.supervisor.connections.connections import RegisteredConnection
from sluice.supervisor.edge.first_credit import TIMEOUT
from tests.unit.supervisor.edge.edge_router import EdgeRouter, connector

SETTINGS = """
address {
    prefix: all
    distribution: multicast
}
address {
    prefix: fb
    enableFallback: yes
}
address {
    prefix: near
    distribution: multicast
    scope: local
}
"""
#: Properties of a version that reports the destinations of each address.
OURS: dict[str, Any] = {EDGE: EDGE_VERSION}


@pytest.fixture
def edge() -> EdgeRouter:
    return EdgeRouter(connector("up"), connector("other"), SETTINGS)


@pytest.fixture
def client(edge: EdgeRouter) -> RegisteredConnection:
    return edge.client()


def attach_producer(
    edge: EdgeRouter, client: RegisteredConnection, address: str, interior: RegisteredConnection | None = None
) -> int:
    """Attach a sender of a client to an address of no link route. Return the number of the link."""
    number = edge.attach_pending(client, "in", address)
    if interior is not None:
        edge.answer(interior)
    return number


@pytest.mark.parametrize("reachable", [True, False])
@pytest.mark.parametrize("address", ["all.a", "fb.a"])
def test_credit_waits_for_tracking_of_interior_router(
    edge: EdgeRouter, client: RegisteredConnection, address: str, reachable: bool
) -> None:
    interior = edge.interior("A", **OURS)
    number = attach_producer(edge, client, address, interior)
    assert number not in edge.answered
    if address == "fb.a":
        edge.track(interior, f"MF{address}", False)
        assert number not in edge.answered, "the primary instance may have destinations"
    edge.track(interior, f"M0{address}", reachable)
    assert number in edge.answered
    assert edge.destinations(f"M0{address}") == ([interior.number] if reachable else [])
    again = attach_producer(edge, client, address, interior)
    assert again in edge.answered, "the state is known"


@pytest.mark.parametrize("address", ["plain", "near.a"])
def test_credit_of_other_addresses_does_not_wait(edge: EdgeRouter, client: RegisteredConnection, address: str) -> None:
    interior = edge.interior("A", **OURS)
    number = edge.attach_pending(client, "in", address)
    if edge.pending_lookups.get(interior.number):
        edge.answer(interior)
    assert number in edge.answered


@pytest.mark.parametrize("reachable", [True, False])
def test_dispatch_interior_answers_look_up_after_tracking(
    edge: EdgeRouter, client: RegisteredConnection, reachable: bool
) -> None:
    """An interior router of 1.19 reports nothing for an address without destinations."""
    interior = edge.interior("A")
    number = edge.attach_pending(client, "in", "all.a")
    edge.answer(interior)
    assert number not in edge.answered
    assert [question.address for question in edge.pending_lookups[interior.number]] == ["all.a"], (
        "a second look-up keeps the order"
    )
    if reachable:
        edge.track(interior, "M0all.a", True)
    else:
        edge.answer(interior)
    assert number in edge.answered
    assert edge.destinations("M0all.a") == ([interior.number] if reachable else [])


def test_tracking_before_link_answer_counts_later(edge: EdgeRouter, client: RegisteredConnection) -> None:
    edge.unanswered.add("all.a")
    interior = edge.interior("A", **OURS)
    number = attach_producer(edge, client, "all.a", interior)
    edge.track(interior, "M0all.a", True)
    assert number not in edge.answered, "the link cannot be used yet"
    (link,) = [ref for ref, link in edge.links.items() if link.address == "all.a"]
    edge.core.receive(edge.worker, messages.Linked(interior.number, edge._numbers[link], True, None))
    edge.settle()
    assert edge.destinations("M0all.a") == [interior.number]
    assert number in edge.answered


def test_credit_without_uplink_does_not_wait(edge: EdgeRouter, client: RegisteredConnection) -> None:
    assert attach_producer(edge, client, "all.a") in edge.answered, "there is no uplink"
    interior = edge.interior("A", **OURS)
    waiting = attach_producer(edge, client, "all.b", interior)
    assert waiting not in edge.answered
    edge.close(interior)
    assert waiting in edge.answered


def test_credit_is_granted_after_timeout(
    edge: EdgeRouter, client: RegisteredConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = attach_producer(edge, client, "all.a", edge.interior("A", **OURS))
    now = time.monotonic()
    assert now < edge.uplink.deadline <= now + TIMEOUT
    monkeypatch.setattr(time, "monotonic", lambda: now + TIMEOUT + 0.1)
    edge.settle()
    assert number in edge.answered
    assert len(edge.uplink.first_credit) == 0


def test_detached_producer_is_not_answered(edge: EdgeRouter, client: RegisteredConnection) -> None:
    interior = edge.interior("A", **OURS)
    number = attach_producer(edge, client, "all.a", interior)
    edge.detach(client, number)
    edge.track(interior, "M0all.a", True)
    assert number not in edge.answered
    assert "M0all.a" not in edge.core.table.records
