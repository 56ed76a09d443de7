"""Proxy links at other routers: divided among a bundle, attached again after a refusal, closed without clients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from sluice.router.control import messages
from sluice.router.control.edge_properties import BETWEEN_EDGES, EDGE, EDGE_VERSION
from sluice.supervisor.connections.connections import RegisteredConnection
from sluice.supervisor.edge.proxies import A_WAKE, RETRY
from tests.unit.supervisor.edge.edge_router import EdgeRouter, connector, open_interior, peer_connector

OURS: dict[str, Any] = {EDGE: EDGE_VERSION}
SETTINGS = """
address {
    prefix: safe
    enableFallback: yes
}
"""


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
    monkeypatch.setattr("sluice.supervisor.edge.proxies.time.monotonic", lambda: now)
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


# -- One link for each address


@pytest.fixture
def edge() -> EdgeRouter:
    return EdgeRouter(connector("up"), peer_connector(), SETTINGS)


@pytest.fixture
def client(edge: EdgeRouter) -> RegisteredConnection:
    return edge.client()


class FiredTimers:
    """Event loop as the waker sees it, whose timers the test fires."""

    def __init__(self, edge: EdgeRouter) -> None:
        self._edge = edge
        self._pending: list[tuple[float, Callable[[], None]]] = []
        edge.core.waker.connect(cast("Any", self), lambda: None)

    def call_later(self, seconds: float, function: Callable[[], None]) -> None:
        self._pending.append((seconds, function))

    def fire(self, seconds: float) -> None:
        """Call the function of the only timer, which must have this duration."""
        ((duration, function),) = self._pending
        assert duration == seconds
        self._pending.clear()
        function()
        self._edge.settle()


def refuse(edge: EdgeRouter, interior: RegisteredConnection, key: str) -> None:
    """Detach the link of an address on behalf of the other router."""
    (link,) = (link for link in interior.links.values() if link.owner == key)
    edge.links.pop(link.identity)
    edge.core.receive(edge.worker, messages.Detach(conn=interior.number, link=link.number))
    edge.settle()


def test_receiver_is_closed_with_last_consumer(edge: EdgeRouter, client: RegisteredConnection) -> None:
    interior = edge.interior("A")
    consumers = [edge.attach(client, "out", "a") for _ in range(3)]
    assert edge.proxies(interior, "in") == ["a"]
    edge.detach(client, consumers[0])
    edge.detach(client, consumers[1])
    assert edge.proxies(interior, "in") == ["a"]
    edge.detach(client, consumers[2])
    assert edge.proxies(interior, "in") == []


def test_refused_receiver_is_attached_again_after_pause(edge: EdgeRouter, client: RegisteredConnection) -> None:
    timers = FiredTimers(edge)
    interior = edge.interior("A")
    edge.attach(client, "out", "a")
    refuse(edge, interior, "M0a")
    assert edge.proxies(interior, "in") == []
    timers.fire(RETRY)
    assert edge.proxies(interior, "in") == ["a"]


def test_refused_receiver_is_not_attached_again_without_consumer(
    edge: EdgeRouter, client: RegisteredConnection
) -> None:
    timers = FiredTimers(edge)
    interior = edge.interior("A")
    consumer = edge.attach(client, "out", "a")
    refuse(edge, interior, "M0a")
    edge.detach(client, consumer)
    timers.fire(RETRY)
    assert edge.proxies(interior, "in") == []


def test_refused_link_no_longer_counts_for_its_connection(bundle: EdgeRouter) -> None:
    FiredTimers(bundle)
    client = bundle.client()
    members = [bundle.interior("A", **OURS) for _ in range(3)]
    for number in range(3):
        bundle.attach(client, "out", f"a{number}")
    refuse(bundle, members[1], "M0a1")
    bundle.attach(client, "out", "b")
    assert [bundle.proxies(each, "in") for each in members] == [["a0"], ["b"], ["a2"]]


def test_consumer_of_fallback_has_receiver_with_its_capability(edge: EdgeRouter, client: RegisteredConnection) -> None:
    edge.interior("A")
    edge.attach(client, "out", "safe", caps=[["qd.fallback"], False])
    (link,) = (link for link in edge.links.values() if link.address == "safe")
    assert (link.dir, link.capability) == ("in", "qd.fallback")


# -- Bursts


def test_addresses_with_producers_come_first_in_burst(edge: EdgeRouter, client: RegisteredConnection) -> None:
    """Clients whose attach is unanswered wait for them."""
    for number in range(A_WAKE + 2):
        edge.attach(client, "out", f"a{number:02}")
    edge.attach(client, "in", f"a{A_WAKE + 1}")
    (config,) = (each for each in edge.configuration.connectors if each.name == "peers")
    open_interior(edge.core, edge.worker, config, "F", **{EDGE: "f", BETWEEN_EDGES: 1})

    def step() -> list[str]:
        edge.worker.outbox.clear()
        edge.core.events.step()
        links = (order for order in edge.worker.outbox if isinstance(order, messages.Link))
        return [order.address or "" for order in links if order.use == "address"]

    first, second = step(), step()
    assert first[0] == f"a{A_WAKE + 1}"
    assert len(first) <= 1 + A_WAKE
    assert sorted(first + second) == [f"a{number:02}" for number in range(A_WAKE + 2)]
