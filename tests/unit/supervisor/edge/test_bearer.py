"""Bearer among several active uplinks: its choice, and the move of traffic to a better one."""

from __future__ import annotations

import time
from typing import Any

import pytest

from sluice.router.control.edge_properties import EDGE, EDGE_VERSION
from sluice.supervisor.connections.connections import RegisteredConnection
from sluice.supervisor.edge.attachment import PATIENCE
from sluice.supervisor.edge.bearer import PATIENCE as RELEASE_PATIENCE
from tests.unit.supervisor.edge.edge_router import EdgeRouter, connector

OURS: dict[str, Any] = {EDGE: EDGE_VERSION}
ANYCAST, MULTICAST = "M0a", "M0multicast/m"
SETTINGS = """
address {
    prefix: multicast
    distribution: multicast
}
"""


@pytest.fixture
def several() -> EdgeRouter:
    made = EdgeRouter(connector("dear", cost=2), connector("cheap"), SETTINGS, uplinks="all")
    client = made.client()
    for name in (ANYCAST, MULTICAST):
        made.attach(client, "in", name[2:])
    made.attach(client, "out", "c")
    return made


def uplink(several: EdgeRouter, name: str, connector_name: str) -> RegisteredConnection:
    """Open a connection to an interior router that has destinations for all addresses of the clients."""
    made = several.interior(name, connector_name, **OURS)
    for key in (ANYCAST, MULTICAST):
        several.track(made, key, True)
    return made


def precedences_of(several: EdgeRouter, connection: RegisteredConnection) -> list[tuple[str, bool]]:
    """Return the announced precedences: the concatenated router ids, and whether all other routers have released the
    addresses."""
    return [("".join(each.routers), each.complete) for each in several.precedences.get(connection.number, [])]


def destinations(several: EdgeRouter) -> tuple[list[int], list[int]]:
    return several.destinations(ANYCAST), several.destinations(MULTICAST)


def test_better_uplink_takes_over_step_by_step(several: EdgeRouter) -> None:
    b = uplink(several, "B", "dear")
    assert precedences_of(several, b) == [("B", True)]
    several.confirm_precedence(b)
    a = uplink(several, "A", "cheap")
    assert several.uplink.states() == {"active": 2, "waiting": 0}
    assert several.proxies(a, "in") == several.proxies(b, "in") == ["c"]
    assert (precedences_of(several, a), precedences_of(several, b)) == ([("AB", False)], [("B", True)])
    assert destinations(several) == ([b.number], [b.number]), "until it has confirmed"
    several.confirm_precedence(a)
    assert destinations(several) == ([a.number], []), "no copy may return by the other router"
    assert precedences_of(several, b) == [("B", True), ("AB", True)], "once no worker sends there"
    several.confirm_precedence(b)
    assert destinations(several) == ([a.number], [a.number])
    assert precedences_of(several, a) == [("AB", False), ("AB", True)]
    assert several.uplink.connection is a


def test_second_uplink_takes_over_at_once(several: EdgeRouter) -> None:
    a = uplink(several, "A", "cheap")
    b = uplink(several, "B", "dear")
    assert (precedences_of(several, a), precedences_of(several, b)) == ([("A", True), ("AB", True)], [("AB", True)])
    several.close(a)
    assert precedences_of(several, b)[-1] == ("B", True)
    assert destinations(several) == ([b.number], [b.number])
    assert several.record("L_edge").consumers is not None


def test_better_uplink_waits_for_most_answers(several: EdgeRouter, monkeypatch: pytest.MonkeyPatch) -> None:
    b = uplink(several, "B", "dear")
    several.confirm_precedence(b)
    several.unanswered.add("c")
    a = uplink(several, "A", "cheap")
    assert precedences_of(several, a) == []
    assert destinations(several) == ([b.number], [b.number])
    later = time.monotonic() + PATIENCE
    monkeypatch.setattr("sluice.supervisor.edge.attachment.time.monotonic", lambda: later)
    several.attach(several.client(), "out", "d")
    assert precedences_of(several, a) == [("AB", False)], "some addresses are always new"


def test_unconfirmed_release_times_out(several: EdgeRouter, monkeypatch: pytest.MonkeyPatch) -> None:
    b = uplink(several, "B", "dear")
    several.confirm_precedence(b)
    a = uplink(several, "A", "cheap")
    several.confirm_precedence(a)
    assert destinations(several) == ([a.number], [])
    assert several.uplink.deadline <= time.monotonic() + RELEASE_PATIENCE
    later = time.monotonic() + RELEASE_PATIENCE
    monkeypatch.setattr("sluice.supervisor.edge.bearer.time.monotonic", lambda: later)
    several.attach(several.client(), "out", "e")
    assert destinations(several) == ([a.number], [a.number])


@pytest.mark.parametrize("agreed", range(3))
@pytest.mark.parametrize("lost", ["A", "B"])
def test_uplink_lost_during_move_leaves_other_in_charge(several: EdgeRouter, agreed: int, lost: str) -> None:
    b = uplink(several, "B", "dear")
    several.confirm_precedence(b)
    a = uplink(several, "A", "cheap")
    for connection in (a, b)[:agreed]:
        several.confirm_precedence(connection)
    gone, left = (a, b) if lost == "A" else (b, a)
    several.close(gone)
    assert precedences_of(several, left)[-1] == (left.container, True)
    assert destinations(several) == ([left.number], [left.number])
    assert several.uplink.connection is left
