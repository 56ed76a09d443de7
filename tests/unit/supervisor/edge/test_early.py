"""Proxy senders that are attached while the look-up for a client's sender is under way."""

from __future__ import annotations

import time
from typing import Any

import pytest

from sluice.router.control import messages
from sluice.router.control.edge_properties import EDGE, EDGE_VERSION
from sluice.supervisor.connections.connections import RegisteredConnection
from sluice.supervisor.edge.lookups import IN_FLIGHT, MOST_ROUTED, SEVERAL_IN_FLIGHT, TIMEOUT, TOGETHER
from sluice.supervisor.links.attach import NO_LINK_ROUTE
from tests.unit.supervisor.edge.edge_router import EdgeRouter, connector

OURS: dict[str, Any] = {EDGE: EDGE_VERSION}
#: Properties of a version that takes one look-up per message.
SINGLE: dict[str, Any] = {EDGE: 3}
SETTINGS = """
address {
    prefix: unavailable
    distribution: unavailable
}
address {
    prefix: way
    ingressPhase: 1
    egressPhase: 2
}
address {
    prefix: near
    scope: local
}
linkRoute {
    prefix: own
    direction: in
    containerId: broker
}
"""


@pytest.fixture
def edge() -> EdgeRouter:
    return EdgeRouter(connector("up"), connector("other"), SETTINGS)


@pytest.fixture
def interior(edge: EdgeRouter) -> RegisteredConnection:
    return edge.interior("A", **OURS)


@pytest.fixture
def client(edge: EdgeRouter) -> RegisteredConnection:
    return edge.client()


def capabilities(edge: EdgeRouter) -> dict[str, str | None]:
    """Return the capability of each proxy sender by address."""
    links = (link for link in edge.links.values() if link.dir == "out" and link.use == "messages" and not link.second)
    return {link.address or "": link.capability for link in links}


def is_forgotten(edge: EdgeRouter, key: str) -> bool:
    """Return True if neither this router nor the interior router holds anything of an address."""
    proxies = [] if edge.uplink.attachment is None else edge.uplink.attachment.proxies.senders
    return key not in edge.core.table.records and key not in proxies and not capabilities(edge)


def test_proxy_exists_before_answer(
    edge: EdgeRouter, interior: RegisteredConnection, client: RegisteredConnection
) -> None:
    edge.attach_pending(client, "in", "a")
    assert capabilities(edge) == {"a": NO_LINK_ROUTE}
    edge.track(interior, "M0a", True)
    assert edge.destinations("M0a") == [interior.number]
    edge.worker.outbox.clear()
    edge.answer(interior)
    assert edge.record("M0a").producers == 1
    assert edge.destinations("M0a") == [interior.number]
    assert capabilities(edge) == {"a": NO_LINK_ROUTE}, "the early sender is used"
    assert edge.uplink.announced() == (0, 1)


def test_answer_needs_no_acknowledgement(
    edge: EdgeRouter, interior: RegisteredConnection, client: RegisteredConnection
) -> None:
    number = edge.attach_pending(client, "in", "a")
    question = edge.pending_lookups[interior.number]
    assert len(question) == 1
    edge.uplink.lookups.give_up()
    edge.core.take_delta()
    answers = [order for order in edge.worker.outbox if isinstance(order, messages.Attached)]
    assert [(answer.conn, answer.link) for answer in answers] == [(client.number, number)]


def test_answer_before_tracking_is_handled(
    edge: EdgeRouter, interior: RegisteredConnection, client: RegisteredConnection
) -> None:
    edge.attach_pending(client, "in", "a")
    edge.answer(interior)
    edge.track(interior, "M0a", True)
    assert edge.destinations("M0a") == [interior.number]


@pytest.mark.parametrize("reachable", [False, True])
@pytest.mark.parametrize("served", [False, True])
def test_proxy_of_link_route_address_is_removed(
    edge: EdgeRouter, interior: RegisteredConnection, client: RegisteredConnection, served: bool, reachable: bool
) -> None:
    edge.attach_pending(client, "in", "a")
    assert capabilities(edge) == {"a": NO_LINK_ROUTE}
    edge.track(interior, "M0a", reachable)
    edge.answer(interior, routed=True, served=served)
    assert is_forgotten(edge, "M0a")
    edge.attach_pending(client, "in", "a")
    assert capabilities(edge) == {}, "the link route is known"
    edge.answer(interior)
    assert capabilities(edge) == {"a": None}, "no link route has it"
    number = edge.attach_pending(client, "in", "b")
    edge.answer(interior)
    edge.detach(client, number)
    edge.attach_pending(client, "in", "b")
    assert capabilities(edge) == {"a": None, "b": NO_LINK_ROUTE}


def test_proxy_in_use_stays(edge: EdgeRouter, interior: RegisteredConnection, client: RegisteredConnection) -> None:
    edge.attach(client, "in", "a")
    links = set(edge.links)
    for routed in (False, True):
        edge.attach_pending(client, "in", "a")
        assert set(edge.links) == links
        edge.answer(interior, routed=routed)
        assert links <= set(edge.links)
    assert edge.record("M0a").producers == 2


def test_several_clients_share_early_proxy(
    edge: EdgeRouter, interior: RegisteredConnection, client: RegisteredConnection
) -> None:
    first, second = edge.attach_pending(client, "in", "a"), edge.attach_pending(client, "in", "a")
    assert len(capabilities(edge)) == 1
    edge.detach(client, first)
    assert capabilities(edge) == {"a": NO_LINK_ROUTE}
    edge.detach(client, second)
    assert is_forgotten(edge, "M0a")


@pytest.mark.parametrize("how", ["detach", "close"])
def test_lost_client_removes_early_proxy(
    edge: EdgeRouter, interior: RegisteredConnection, client: RegisteredConnection, how: str
) -> None:
    number = edge.attach_pending(client, "in", "a")
    edge.track(interior, "M0a", True)
    if how == "detach":
        edge.detach(client, number)
    else:
        edge.core.receive(edge.worker, messages.Closed(conn=client.number, error=None))
        edge.settle()
    assert is_forgotten(edge, "M0a")
    edge.answer(interior)  # too late
    assert is_forgotten(edge, "M0a")


def test_lost_uplink_moves_producers(
    edge: EdgeRouter, interior: RegisteredConnection, client: RegisteredConnection
) -> None:
    edge.attach_pending(client, "in", "a")
    edge.track(interior, "M0a", True)
    edge.close(interior)
    assert edge.record("M0a").producers == 1, "decided without it"
    assert edge.record("M0a").holders == 0
    again = edge.interior("A", **OURS)
    assert capabilities(edge) == {"a": None}, "there is a producer"
    edge.track(again, "M0a", True)
    assert edge.destinations("M0a") == [again.number]


def test_second_uplink_takes_over_look_ups(
    edge: EdgeRouter, interior: RegisteredConnection, client: RegisteredConnection
) -> None:
    other = edge.interior("B", "other", **OURS)
    edge.attach_pending(client, "in", "routed")
    edge.answer(interior, routed=True)
    edge.attach_pending(client, "in", "a")
    assert edge.proxies(interior, "out") == ["a"]
    edge.close(interior)
    assert edge.proxies(other, "out") == ["a"]
    assert edge.record("M0a").holders == 0
    edge.attach_pending(client, "in", "routed")
    assert edge.proxies(other, "out") == ["a", "routed"], "answers of the lost router do not count"


def test_lost_bundle_member_moves_early_proxy(
    edge: EdgeRouter, interior: RegisteredConnection, client: RegisteredConnection
) -> None:
    second = edge.interior("A", **OURS)
    edge.attach(client, "in", "b")
    edge.attach_pending(client, "in", "a")
    (busy, idle) = (interior, second) if edge.proxies(interior, "out") == ["b"] else (second, interior)
    assert edge.proxies(idle, "out") == ["a"]
    edge.close(idle)
    assert edge.proxies(busy, "out") == ["a", "b"]


def test_look_up_without_answer_times_out(
    edge: EdgeRouter, interior: RegisteredConnection, client: RegisteredConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    edge.attach_pending(client, "in", "a")
    later = time.monotonic() + TIMEOUT
    monkeypatch.setattr("sluice.supervisor.edge.lookups.time.monotonic", lambda: later)
    edge.settle()
    assert edge.uplink.lookups.unanswered == 1
    assert (edge.record("M0a").producers, edge.record("M0a").holders) == (1, 0)
    assert capabilities(edge) == {"a": NO_LINK_ROUTE}


@pytest.mark.parametrize("properties", [{}, {EDGE: 1}, {EDGE: 2}], ids=["dispatch", "bundles", "uplinks"])
def test_early_proxy_is_not_attached_at_other_routers(
    edge: EdgeRouter, client: RegisteredConnection, properties: dict[str, Any]
) -> None:
    interior = edge.interior("A", **properties)
    edge.attach_pending(client, "in", "a")
    assert is_forgotten(edge, "M0a")
    edge.answer(interior)
    assert capabilities(edge) == {"a": None}


@pytest.mark.parametrize(
    ("address", "more"),
    [
        ("_topo/0/A/x", {}),
        ("_edge/E/x", {}),
        ("$management", {}),
        ("_$qd.x", {}),
        ("unavailable", {}),
        ("near/x", {}),
        ("own.x", {}),
        ("a", {"caps": [["qd.waypoint"], False]}),
        ("a", {"caps": [["qd.fallback"], False]}),
        ("a", {"dir": "out"}),
        ("a", {"coordinator": True}),
        ("a" * 70_000, {}),
        (None, {}),
    ],
)
def test_early_proxy_is_not_attached_for_other_attaches(
    edge: EdgeRouter,
    interior: RegisteredConnection,
    client: RegisteredConnection,
    address: str | None,
    more: dict[str, Any],
) -> None:
    before = set(edge.core.table.records)
    edge.attach_pending(client, "in", address, **more)
    decided = not edge.pending_lookups.get(interior.number)
    assert capabilities(edge) == {}
    assert decided or set(edge.core.table.records) == before


@pytest.mark.parametrize(
    ("address", "more", "key"),
    [
        ("amqp:/a.", {}, "M0a"),
        ("/a", {}, "M0a"),
        ("way/x", {}, "M1way/x"),
        ("/a", {"tenant": "acme.com/"}, "M0acme.com/a"),
    ],
)
def test_early_proxy_has_address_of_decision(
    edge: EdgeRouter,
    interior: RegisteredConnection,
    client: RegisteredConnection,
    address: str,
    more: dict[str, Any],
    key: str,
) -> None:
    edge.attach_pending(client, "in", address, **more)
    assert capabilities(edge) == {key[2:]: NO_LINK_ROUTE}
    assert edge.record(key).producers == 0
    edge.answer(interior)
    assert edge.record(key).producers == 1
    assert capabilities(edge) == {key[2:]: NO_LINK_ROUTE}


def test_early_proxies_are_bounded(edge: EdgeRouter, client: RegisteredConnection) -> None:
    interior = edge.interior("A", **SINGLE)
    for number in range(3 * IN_FLIGHT):
        edge.attach_pending(client, "in", f"a{number}")
    assert len(capabilities(edge)) == IN_FLIGHT
    for _ in range(IN_FLIGHT):
        edge.answer(interior, routed=True)
    assert len(capabilities(edge)) == IN_FLIGHT
    assert list(capabilities(edge)) == [f"a{IN_FLIGHT + number}" for number in range(IN_FLIGHT)]


def test_waiting_look_ups_share_messages(
    edge: EdgeRouter, interior: RegisteredConnection, client: RegisteredConnection
) -> None:
    addresses = [f"a{number}" for number in range(SEVERAL_IN_FLIGHT + TOGETHER + 1)]
    for address in addresses:
        edge.attach_pending(client, "in", address)
    assert list(capabilities(edge)) == addresses[:SEVERAL_IN_FLIGHT]
    edge.answer(interior, routed=True)
    assert list(capabilities(edge)) == addresses[1:-1], "questions in one message are bounded"
    edge.answer(interior, routed=True)
    assert list(capabilities(edge)) == addresses[SEVERAL_IN_FLIGHT:]
    for _ in addresses[SEVERAL_IN_FLIGHT:]:
        edge.answer(interior, routed=True)
    assert not capabilities(edge)
    assert len(edge.answered) == 0, "all are routed"


def test_connections_take_turns_in_look_up_messages(
    edge: EdgeRouter, interior: RegisteredConnection, client: RegisteredConnection
) -> None:
    other = edge.client()
    for number in range(SEVERAL_IN_FLIGHT):
        edge.attach_pending(client, "in", f"before{number}")
    for number in range(2 * TOGETHER):
        edge.attach_pending(client, "in", f"a{number}")
    edge.attach_pending(other, "in", "b")
    edge.answer(interior, routed=True)
    assert list(capabilities(edge))[SEVERAL_IN_FLIGHT - 1 :][:2] == ["a0", "b"]


def test_detached_link_keeps_order_of_answers(
    edge: EdgeRouter, interior: RegisteredConnection, client: RegisteredConnection
) -> None:
    for number in range(SEVERAL_IN_FLIGHT):
        edge.attach_pending(client, "in", f"before{number}")
    links = [edge.attach_pending(client, "in", f"a{number}") for number in range(3)]
    for _ in range(SEVERAL_IN_FLIGHT):
        edge.answer(interior, routed=True)
    edge.detach(client, links[0])
    assert list(capabilities(edge)) == ["a1", "a2"]
    edge.answer(interior)  # for the link that has detached
    edge.answer(interior, routed=True)
    edge.answer(interior)
    assert edge.answered == [links[2]]
    assert "M0a0" not in edge.core.table.records


def test_remembered_link_route_addresses_are_bounded(edge: EdgeRouter, client: RegisteredConnection) -> None:
    interior = edge.interior("A", **SINGLE)
    for number in range(MOST_ROUTED + 1):
        link = edge.attach_pending(client, "in", f"a{number}")
        edge.answer(interior, routed=True, served=False)
        edge.detach(client, link)
    edge.attach_pending(client, "in", f"a{MOST_ROUTED}")
    edge.attach_pending(client, "in", "a1")
    assert capabilities(edge) == {}
    edge.attach_pending(client, "in", "a0")
    assert capabilities(edge) == {"a0": NO_LINK_ROUTE}


def test_full_table_prevents_early_proxy(
    interior: RegisteredConnection, edge: EdgeRouter, client: RegisteredConnection
) -> None:
    taken = 0
    while edge.core.counter_slots.allocate() is not None:
        taken += 1
    assert taken
    edge.attach_pending(client, "in", "a")
    assert capabilities(edge) == {}


def test_early_proxy_moves_to_better_uplink() -> None:
    edge = EdgeRouter(connector("dear", cost=2), connector("cheap"), uplinks="all")
    client = edge.client()
    b = edge.interior("B", "dear", **OURS)
    edge.confirm_precedence(b)
    edge.attach_pending(client, "in", "a")
    assert edge.proxies(b, "out") == ["a"]
    a = edge.interior("A", "cheap", **OURS)
    edge.confirm_precedence(a)
    edge.confirm_precedence(b)
    assert edge.uplink.connection is a
    assert edge.proxies(a, "out") == [], "only at the router of the look-up"
    edge.attach_pending(client, "in", "c")
    assert (edge.proxies(a, "out"), edge.proxies(b, "out")) == (["c"], ["a"])
    edge.answer(b)
    edge.answer(a)
    assert edge.proxies(a, "out") == edge.proxies(b, "out") == ["a", "c"]
    edge.track(a, "M0a", True)
    assert edge.destinations("M0a") == [a.number]


def test_lost_router_of_look_up_removes_early_proxy() -> None:
    edge = EdgeRouter(connector("dear", cost=2), connector("cheap"), uplinks="all")
    client = edge.client()
    b = edge.interior("B", "dear", **OURS)
    edge.confirm_precedence(b)
    number = edge.attach_pending(client, "in", "a")
    a = edge.interior("A", "cheap", **OURS)
    edge.confirm_precedence(a)
    edge.confirm_precedence(b)
    edge.close(b)
    edge.detach(client, number)
    assert "M0a" not in edge.core.table.records
    assert edge.proxies(a, "out") == []
