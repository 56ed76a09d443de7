"""Services of an interior router for edge routers: reports about addresses, look-ups, precedences, and metrics."""

from __future__ import annotations

import itertools
import os
from typing import Any

import pytest

from sluice.router.addressing.address import MOBILE, key
from sluice.router.config.load import load_text
from sluice.router.control import messages
from sluice.router.control.edge_properties import EDGE, UPLINKS
from sluice.router.control.messages import Control, Send
from sluice.router.log import LogSettings, ModuleSettings, ProcessLog
from sluice.supervisor.children.worker import WorkerProcess, WorkerStage
from sluice.supervisor.composition import RouterCore
from sluice.supervisor.connections.connections import RegisteredConnection
from sluice.supervisor.edge import interior
from sluice.supervisor.edge.messages import (
    BAD_VERSION,
    FOUND,
    NO_LINK_ROUTE,
    NOT_FOUND,
    SERVED,
    UNSERVED,
    LookupAddress,
    LookupAnswer,
    Precedence,
    PrecedenceAnswer,
    Tracking,
    lookup,
    precedence,
    read_answer,
    read_tracking,
)
from sluice.supervisor.links.attach import LOOKUP_KEY, TRACKING, UPLINKS_KEY
from tests.unit.supervisor.harness import attach

CONFIGURATION = """
router {
    id: A
    mode: interior
}
listener {
    name: edges
    port: 0
    role: edge
}
listener {
    name: clients
    port: 1
}
listener {
    name: containers
    port: 2
    role: route-container
}
linkRoute {
    prefix: routed
    direction: in
    containerId: broker
}
"""
DISPATCH = ""  # mark of an edge router of Dispatch 1.19


class InteriorRouterCore:
    """Interior router with one worker that the test plays, and connections from edge routers."""

    def __init__(self) -> None:
        self.configuration = load_text("router.conf", CONFIGURATION)
        self.log = ProcessLog(LogSettings({"DEFAULT": ModuleSettings(mask=0xFF, output=os.devnull)}))
        self.core = RouterCore(self.configuration, self.log, 4000, lambda number: None)
        assert self.core.edges is not None
        self.edges = self.core.edges
        self.worker = WorkerProcess(0, 1)
        self.worker.stage = WorkerStage.STARTING
        self.core.workers[0] = self.worker
        self.core.receive(self.worker, messages.Ready(0))
        self.core.start(self.configuration)
        self._numbers = itertools.count(1)
        self.settle()

    def publish(self) -> None:
        """Publish changes that the worker does not acknowledge yet."""
        self.core.work()
        while self.core.take_delta() is not None:
            pass

    def settle(self) -> None:
        """Let the worker acknowledge all changes."""
        while True:
            self.publish()
            if self.core.journal.settled >= self.core.journal.epoch:
                return
            self.core.journal.acknowledge(0, self.core.journal.epoch)

    def edge(
        self, container: str = "E", mark: str = "m", peer: str = "10.0.0.1:1", several: bool = False
    ) -> RegisteredConnection:
        """Open a connection from an edge router.

        mark: DISPATCH for a router of Dispatch 1.19. several: it has several uplinks.
        """
        properties: dict[str, Any] = {**({EDGE: mark} if mark else {}), **({UPLINKS: True} if several else {})}
        return self.open(0, peer, container, properties)

    def client(self) -> RegisteredConnection:
        return self.open(1, "10.0.0.9:1", "c", {})

    def open(self, listener: int, peer: str, container: str, properties: dict[str, Any]) -> RegisteredConnection:
        """Open a connection on one of the listeners, by number."""
        made = self.core.connections.adopt(self.worker, self.configuration.listeners[listener], "l:1", peer)
        opened = messages.Opened(
            conn=made.number, container=container, hostname=None, user=None, properties=properties, tls=None
        )
        self.core.receive(self.worker, opened)
        self.settle()
        return made

    def close(self, connection: RegisteredConnection) -> None:
        self.core.receive(self.worker, messages.Closed(conn=connection.number, error=None))
        self.settle()

    def attach_pending(self, connection: RegisteredConnection, direction: str, address: str) -> int:
        """Attach a link whose changes are not published yet. Return its number."""
        number = next(self._numbers)
        self.core.receive(self.worker, attach(number, direction, address, conn=connection.number))
        return number

    def attach(self, connection: RegisteredConnection, direction: str, address: str) -> int:
        number = self.attach_pending(connection, direction, address)
        self.settle()
        return number

    def detach(self, connection: RegisteredConnection, number: int) -> None:
        self.core.receive(self.worker, messages.Detach(conn=connection.number, link=number))
        self.settle()

    def deliver(self, record_key: str, connection: RegisteredConnection, octets: bytes) -> None:
        """Deliver a message to the router itself."""
        self.core.receive(self.worker, messages.Local(record_key, connection.number), octets)
        self.publish()

    def take_reports(self) -> list[tuple[int, str, bool]]:
        """Return the reports about addresses sent since the last call: connection, address, reachable."""
        found = []
        for order, octets in self._take_sends():
            said = read_tracking(octets)
            if isinstance(order, Control) and isinstance(said, Tracking):
                found.append((order.conn, said.key[2:], said.reachable))
        return found

    def take_confirmations(self) -> list[PrecedenceAnswer]:
        """Return the confirmations of precedences sent since the last call."""
        said = [read_tracking(octets) for _, octets in self._take_sends()]
        return [each for each in said if isinstance(each, PrecedenceAnswer)]

    def take_answers(self) -> list[LookupAnswer]:
        """Return the answers to look-ups sent since the last call."""
        read = [read_answer(octets) for order, octets in self._take_sends() if isinstance(order, Send)]
        return [each for each in read if isinstance(each, LookupAnswer)]

    def _take_sends(self) -> list[tuple[Control | Send, bytes]]:
        sends = list(self.worker.sends)
        self.worker.sends.clear()
        return sends


@pytest.fixture
def router() -> InteriorRouterCore:
    return InteriorRouterCore()


# -- Reports about addresses


def test_address_of_producer_is_reported_with_each_change(router: InteriorRouterCore) -> None:
    edge, client = router.edge(), router.client()
    router.attach(edge, "out", TRACKING)
    router.attach(edge, "in", "a")
    assert router.take_reports() == [(edge.number, "a", False)]
    consumer = router.attach(client, "out", "a")
    assert router.take_reports() == [(edge.number, "a", True)]
    router.detach(client, router.attach(client, "out", "a"))
    assert router.take_reports() == [], "the address is still reachable"
    router.detach(client, consumer)
    assert router.take_reports() == [(edge.number, "a", False)]


def test_dispatch_edge_router_gets_no_report_before_first_destination(router: InteriorRouterCore) -> None:
    """1.19 does not send one either."""
    edge, client = router.edge(mark=DISPATCH), router.client()
    router.attach(edge, "out", TRACKING)
    router.attach(edge, "in", "a")
    assert router.take_reports() == []
    consumer = router.attach(client, "out", "a")
    router.detach(client, consumer)
    assert router.take_reports() == [(edge.number, "a", True), (edge.number, "a", False)]


def test_consumer_at_edge_router_is_no_destination_for_its_producers(router: InteriorRouterCore) -> None:
    one, other = router.edge(), router.edge("F", "n")
    for edge in (one, other):
        router.attach(edge, "out", TRACKING)
        router.attach(edge, "in", "a")
    router.take_reports()
    router.attach(one, "out", "a")
    assert router.take_reports() == [(other.number, "a", True)]


def test_destination_is_reported_after_acknowledgement_of_workers(router: InteriorRouterCore) -> None:
    """The edge router's clients send as soon as the report arrives."""
    edge, client = router.edge(), router.client()
    router.attach(edge, "out", TRACKING)
    router.attach(edge, "in", "a")
    router.take_reports()
    router.attach_pending(client, "out", "a")
    router.publish()
    assert router.take_reports() == []
    router.settle()
    assert router.take_reports() == [(edge.number, "a", True)]


def test_producer_of_settled_address_gets_report_with_its_answer(router: InteriorRouterCore) -> None:
    edge = router.edge()
    router.attach(edge, "out", TRACKING)
    router.attach(router.client(), "out", "a")
    router.attach_pending(edge, "in", "a")
    assert router.take_reports() == [(edge.number, "a", True)]


def test_second_producer_link_gets_another_report(router: InteriorRouterCore) -> None:
    edge = router.edge()
    router.attach(edge, "out", TRACKING)
    for _ in range(2):
        router.attach(edge, "in", "a")
        assert router.take_reports() == [(edge.number, "a", False)]


def test_new_tracking_link_gets_all_reports_again(router: InteriorRouterCore) -> None:
    edge = router.edge()
    router.attach(edge, "in", "a")
    assert router.take_reports() == [], "there is no tracking link"
    first = router.attach(edge, "out", TRACKING)
    assert router.take_reports() == [(edge.number, "a", False)]
    router.detach(edge, first)
    second = router.attach(edge, "out", TRACKING)
    assert router.take_reports() == [(edge.number, "a", False)]
    router.detach(edge, second)
    router.attach(router.client(), "out", "a")
    assert router.take_reports() == []
    router.attach(edge, "out", TRACKING)
    assert router.take_reports() == [(edge.number, "a", True)]


def test_address_is_tracked_until_its_last_producer_detaches(router: InteriorRouterCore) -> None:
    edge, client = router.edge(), router.client()
    router.attach(edge, "out", TRACKING)
    producers = [router.attach(edge, "in", "a") for _ in range(2)]
    router.take_reports()
    router.detach(edge, producers[0])
    consumer = router.attach(client, "out", "a")
    assert router.take_reports() == [(edge.number, "a", True)]
    router.detach(edge, producers[1])
    router.detach(client, consumer)
    assert router.take_reports() == []


def test_closed_edge_connections_leave_no_state(router: InteriorRouterCore) -> None:
    for _ in range(3):
        edge = router.edge()
        router.attach(edge, "out", TRACKING)
        router.attach(edge, "in", "a")
        router.attach(edge, "out", "b")
        router.close(edge)
    assert router.edges.rows() == {}
    assert not router.edges._edges
    assert not router.edges._producing
    assert key(MOBILE, "a") not in router.core.table.records


# -- Precedence of uplinks


def test_precedence_is_confirmed_after_acknowledgement_of_workers(router: InteriorRouterCore) -> None:
    edge = router.edge(several=True)
    router.attach(edge, "out", TRACKING)
    router.attach(edge, "out", "a")
    router.deliver(UPLINKS_KEY, edge, precedence(Precedence(5, ("A",), True)))
    assert router.take_confirmations() == []
    router.settle()
    assert router.take_confirmations() == [PrecedenceAnswer(5, True)]
    router.deliver(UPLINKS_KEY, edge, precedence(Precedence(6, ("B",), True)))
    router.settle()
    assert router.take_confirmations() == [PrecedenceAnswer(6, False)]


# -- Look-up of link routes


@pytest.fixture
def asking(router: InteriorRouterCore) -> RegisteredConnection:
    """Edge connection with a receiver for answers."""
    edge = router.edge()
    router.attach(edge, "out", "answers")
    return edge


def ask(*asked: LookupAddress) -> bytes:
    return lookup(asked, len(asked) > 1, "answers", "5")


def test_lookup_of_link_route_reports_whether_it_has_container(
    router: InteriorRouterCore, asking: RegisteredConnection
) -> None:
    router.deliver(LOOKUP_KEY, asking, ask(LookupAddress("routed/x", True)))
    assert router.take_answers() == [LookupAnswer("5", FOUND, bytes((UNSERVED,)))]
    router.open(2, "10.0.0.9:1", "broker", {})
    router.deliver(LOOKUP_KEY, asking, ask(LookupAddress("routed/x", True)))
    assert router.take_answers() == [LookupAnswer("5", FOUND, bytes((SERVED,)))]


def test_lookup_of_other_address_finds_nothing(router: InteriorRouterCore, asking: RegisteredConnection) -> None:
    router.deliver(LOOKUP_KEY, asking, ask(LookupAddress("a", True)))
    router.deliver(LOOKUP_KEY, asking, ask(LookupAddress("routed/x", False)))  # of the other direction
    assert router.take_answers() == [LookupAnswer("5", NOT_FOUND, bytes((NO_LINK_ROUTE,)))] * 2


def test_lookup_of_several_addresses_is_answered_in_their_order(
    router: InteriorRouterCore, asking: RegisteredConnection
) -> None:
    router.deliver(LOOKUP_KEY, asking, ask(LookupAddress("a", True), LookupAddress("amqp:/routed/x", True)))
    assert router.take_answers() == [LookupAnswer("5", FOUND, bytes((NO_LINK_ROUTE, UNSERVED)))]


def test_malformed_lookup_is_answered_with_its_fault(router: InteriorRouterCore, asking: RegisteredConnection) -> None:
    octets = ask(LookupAddress("a", True))
    version = octets.index(b"version") + len(b"version") + 1
    router.deliver(LOOKUP_KEY, asking, octets[:version] + b"\x09" + octets[version + 1 :])
    (answer,) = router.take_answers()
    assert answer.status == BAD_VERSION
    router.deliver(LOOKUP_KEY, asking, b"no message")
    assert router.take_answers() == [], "there is nowhere to send an answer"


# -- Metrics and log


def test_rows_count_connections_and_announced_addresses_by_container(router: InteriorRouterCore) -> None:
    one, two = router.edge(), router.edge()
    router.attach(one, "out", "a")
    router.attach(two, "out", "b")
    router.attach(two, "in", "c")
    router.attach(two, "out", TRACKING)
    router.client()
    assert router.edges.rows() == {"E": (2, 2, 0)}
    router.close(one)
    router.edges.missed(two)
    assert router.edges.rows() == {"E": (1, 1, 1)}
    router.close(two)
    assert router.edges.rows() == {"E": (0, 0, 1)}


def test_counters_of_missed_heartbeats_are_bounded(router: InteriorRouterCore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interior, "MOST_MISSING", 2)
    for container in ("E", "F", "E", "G"):
        edge = router.edge(container)
        router.edges.missed(edge)
        router.close(edge)
    assert {name: row.missed for name, row in router.edges.rows().items()} == {"E": 2, "G": 1}


@pytest.mark.parametrize(
    ("marks", "peers", "warns"),
    [
        (("m", "n"), ("10.0.0.1:1", "10.0.0.1:2"), True),
        (("m", "m"), ("10.0.0.1:1", "10.0.0.2:2"), False),
        ((DISPATCH, DISPATCH), ("10.0.0.1:1", "10.0.0.1:2"), False),
        ((DISPATCH, DISPATCH), ("10.0.0.1:1", "10.0.0.2:2"), True),
    ],
)
def test_second_edge_router_with_same_id_causes_warning(
    router: InteriorRouterCore, marks: tuple[str, str], peers: tuple[str, str], warns: bool
) -> None:
    for mark, peer in zip(marks, peers, strict=True):
        router.edge(mark=mark, peer=peer)
    lines = [entry.text for entry in router.log.recent() if entry.level == "warning"]
    assert [f"Edge router 'E' at {peers[1]} has the same id as the one at {peers[0]}" in line for line in lines] == [
        True
    ] * warns


def test_edge_router_may_reconnect_with_its_id(router: InteriorRouterCore) -> None:
    router.close(router.edge(mark="before the restart"))
    router.edge(mark="after it")
    assert not [entry for entry in router.log.recent() if entry.level == "warning"]
