"""Inter-router connections: next hops in the table, control links, and control messages in rotation."""

from __future__ import annotations

from typing import Any

import pytest

from sluice.router.config.load import load_text
from sluice.router.control import messages
from sluice.router.control.messages import Attached, Control, RouterLink, Taken
from sluice.router.control.names import CONTROL_KEY
from sluice.router.log import LogSettings, ModuleSettings, ProcessLog
from sluice.supervisor.children.worker import WorkerProcess, WorkerStage
from sluice.supervisor.composition import RouterCore
from sluice.supervisor.connections.connections import RegisteredConnection
from sluice.supervisor.network import neighbour_connections
from sluice.supervisor.network.neighbour_connections import BUNDLE_PROPERTY, CONTROL_ADDRESS, COST_PROPERTY
from tests.unit.ops import wire
from tests.unit.supervisor.harness import PATIENCE

CONFIGURATION = """
router {
    id: A
    mode: interior
}
listener {
    name: clients
    port: 0
}
listener {
    name: routers
    port: 1
    role: inter-router
    cost: 3
}
listener {
    name: named
    port: 2
    role: inter-router
    allowedRouters: * => B
}
"""
WORKERS = 2


class RecordingProtocol:
    """Routing protocol that records its calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def link_up(self, conn: int, cost: int, ours: bool, *, only: str | None = None) -> None:
        self.calls.append(("up", conn, cost, ours, only))

    def link_down(self, conn: int) -> None:
        self.calls.append(("down", conn))

    def received(self, conn: int, octets: bytes) -> None:
        self.calls.append((conn, octets))

    def take_calls(self) -> list[tuple[Any, ...]]:
        taken, self.calls = self.calls, []
        return taken


class ConnectedRouter:
    """Core with workers that the test plays, and inter-router connections."""

    def __init__(self) -> None:
        self.configuration = load_text("router.conf", CONFIGURATION)
        log = ProcessLog(LogSettings({"DEFAULT": ModuleSettings(mask=0)}))
        self.core = RouterCore(self.configuration, log, 1000, lambda number: None)
        self.neighbours = self.core.neighbours
        self.network = RecordingProtocol()
        self.neighbours.join(self.network)
        for index in range(WORKERS):
            worker = self.core.workers[index] = WorkerProcess(index, 1)
            worker.stage = WorkerStage.SERVING
            self.core.journal.join(index, 0)
        self.take_ops()

    def open(
        self, container: str = "B", listener: int = 1, worker: int = 0, announced: dict[str, int] | None = None
    ) -> RegisteredConnection:
        owner = self.core.workers[worker]
        made = self.core.connections.adopt(owner, self.configuration.listeners[listener], "l:1", "p:1")
        fields: dict[str, Any] = {"hostname": None, "user": None, "properties": {}, "tls": None}
        self.core.receive(owner, messages.Opened(conn=made.number, container=container, announced=announced, **fields))
        return made

    def attach(self, connection: RegisteredConnection, link: int, kind: Any, direction: Any, priority: int = 4) -> None:
        """Report that a link between the routers is attached. Its slot and generation are derived from its number."""
        assert connection.worker is not None
        place = {"link": link, "slot": 100 + link, "gen": 200 + link, "name": f"l{link}", "text": ""}
        report = RouterLink(conn=connection.number, dir=direction, kind=kind, priority=priority, **place)  # type: ignore[arg-type]
        self.core.receive(self.core.workers[connection.worker], report)

    def detach(self, connection: RegisteredConnection, link: int) -> None:
        assert connection.worker is not None
        self.core.receive(self.core.workers[connection.worker], messages.Detach(conn=connection.number, link=link))

    def close(self, connection: RegisteredConnection) -> None:
        assert connection.worker is not None
        closed = messages.Closed(conn=connection.number, error=None)
        self.core.receive(self.core.workers[connection.worker], closed)

    def deliver(self, connection: RegisteredConnection, octets: bytes) -> None:
        """Deliver a control message of the other router."""
        assert connection.worker is not None
        local = messages.Local(CONTROL_KEY, connection.number)
        self.core.receive(self.core.workers[connection.worker], local, octets)

    def take_ops(self) -> list[Any]:
        """Return the ops about next hops published since the last call."""
        found = []
        while (delta := self.core.take_delta()) is not None:
            found += [op for op in wire(delta[1]) if op[0] in ("hop", "-hop")]
            for index in self.core.workers:
                self.core.journal.acknowledge(index, delta[0])
        return found

    def orders(self, worker: int, kind: type[Any]) -> list[Any]:
        return [order for order in self.core.workers[worker].outbox if isinstance(order, kind)]


@pytest.fixture
def router(monkeypatch: pytest.MonkeyPatch) -> ConnectedRouter:
    monkeypatch.setattr(neighbour_connections, "TURN", PATIENCE)  # however slow this machine is
    return ConnectedRouter()


def links(**by_priority: int) -> list[tuple[int, int] | None]:
    """Return the links of a next hop from their numbers, by priority as p0 to p9."""
    numbers = [by_priority.get(f"p{priority}") for priority in range(10)]
    return [None if number is None else (100 + number, 200 + number) for number in numbers]


# -- Next hops


def test_data_links_are_announced_together_as_next_hop(router: ConnectedRouter) -> None:
    connection = router.open(worker=1)
    assert router.take_ops() == [], "without links it is no next hop"
    router.attach(connection, 1, "data", "out", priority=4)
    router.attach(connection, 2, "data", "out", priority=9)
    router.attach(connection, 3, "data", "in", priority=4)
    (op,) = router.take_ops()
    assert op[:4] == ["hop", connection.number, 1, links(p4=1, p9=2)]
    assert wire(router.neighbours.snapshot_ops()) == [op]
    assert [order.identity > 0 for order in router.orders(1, Attached)] == [True] * 3


def test_next_hop_is_announced_again_when_its_links_change(router: ConnectedRouter) -> None:
    connection = router.open()
    router.attach(connection, 1, "data", "out", priority=4)
    router.attach(connection, 2, "data", "out", priority=9)
    router.take_ops()
    router.detach(connection, 2)
    assert [op[3] for op in router.take_ops()] == [links(p4=1)]
    router.detach(connection, 1)
    assert router.take_ops() == [["-hop", connection.number]]
    assert wire(router.neighbours.snapshot_ops()) == []
    router.attach(connection, 3, "data", "out", priority=4)
    assert [op[3] for op in router.take_ops()] == [links(p4=3)]


def test_end_of_replaced_link_leaves_its_successor(router: ConnectedRouter) -> None:
    connection = router.open()
    router.attach(connection, 1, "data", "out", priority=4)
    router.attach(connection, 2, "data", "out", priority=4)
    router.take_ops()
    router.detach(connection, 1)
    assert router.take_ops() == []


def test_closed_connection_is_no_next_hop(router: ConnectedRouter) -> None:
    connection, without = router.open(), router.open("C")
    router.attach(connection, 1, "data", "out")
    router.take_ops()
    router.close(connection)
    router.close(without)
    assert router.take_ops() == [["-hop", connection.number]]
    assert list(router.neighbours) == []
    assert router.neighbours.router_of(connection.number) is None


def test_next_hop_names_index_of_its_router_once_known(router: ConnectedRouter) -> None:
    """Copies of a message skip routers that had it."""
    one, two = router.open("B"), router.open("C")
    for connection in (one, two):
        router.attach(connection, 1, "data", "out")
    assert [op[4:] for op in router.take_ops()] == [[None], [None]]
    router.neighbours.known("B", 5)
    assert [(op[1], op[4]) for op in router.take_ops()] == [(one.number, 5)]
    later = router.open("B")
    router.attach(later, 1, "data", "out")
    assert [(op[1], op[4]) for op in router.take_ops()] == [(later.number, 5)]
    router.neighbours.known("B", None)
    assert [(op[1], op[4:]) for op in router.take_ops()] == [(one.number, [None]), (later.number, [None])]


def test_client_connection_is_no_neighbour(router: ConnectedRouter) -> None:
    client = router.open(listener=0)
    router.attach(client, 1, "data", "out")
    assert router.take_ops() == []
    assert router.neighbours.get(client.number) is None
    assert not router.neighbours.usable(client)


def test_connections_are_counted_by_worker(router: ConnectedRouter) -> None:
    for worker in (0, 1, 1):
        router.open(worker=worker)
    assert [router.neighbours.count(worker) for worker in range(WORKERS)] == [1, 2]


# -- Control links


@pytest.mark.parametrize(
    ("announced", "cost", "ours"),
    [(None, 3, False), ({COST_PROPERTY: 2}, 3, False), ({COST_PROPERTY: 7, BUNDLE_PROPERTY: 1}, 7, True)],
)
def test_outgoing_control_link_makes_connection_usable(
    router: ConnectedRouter, announced: dict[str, int] | None, cost: int, ours: bool
) -> None:
    connection = router.open(announced=announced)
    router.attach(connection, 1, "control", "in")
    assert not router.neighbours.usable(connection)
    assert router.network.take_calls() == []
    router.attach(connection, 2, "control", "out")
    assert router.neighbours.usable(connection)
    assert router.network.take_calls() == [("up", connection.number, cost, ours, None)]
    assert connection.links[2].owner == CONTROL_ADDRESS
    router.detach(connection, 1)
    assert router.neighbours.usable(connection)
    router.detach(connection, 2)
    assert not router.neighbours.usable(connection)
    assert router.network.take_calls() == [("down", connection.number)]


def test_router_admitted_by_name_may_have_no_other_id(router: ConnectedRouter) -> None:
    connection = router.open("B", listener=2)
    router.attach(connection, 1, "control", "out")
    assert router.network.take_calls() == [("up", connection.number, 1, False, "B")]


def test_control_message_is_sent_on_control_link_only(router: ConnectedRouter) -> None:
    connection = router.open(worker=1)
    assert not router.neighbours.send_control(connection.number, b"x")
    router.attach(connection, 1, "control", "out")
    assert router.neighbours.send_control(connection.number, b"y")
    assert list(router.core.workers[1].sends) == [(Control(connection.number), b"y")]
    router.close(connection)
    assert not router.neighbours.send_control(connection.number, b"z")


# -- Control messages


def test_control_messages_of_connections_take_turns(router: ConnectedRouter) -> None:
    one, two = router.open(), router.open("C", worker=1)
    for octets in (b"1", b"22"):
        router.deliver(one, octets)
    for octets in (b"333", b"4"):
        router.deliver(two, octets)
    assert not router.neighbours.work()
    assert router.network.take_calls() == [
        (one.number, b"1"),
        (two.number, b"333"),
        (one.number, b"22"),
        (two.number, b"4"),
    ]
    assert router.orders(0, Taken) == [Taken([], [(one.number, 2, 3)])]
    assert router.orders(1, Taken) == [Taken([], [(two.number, 2, 4)])]


def test_control_messages_are_handled_for_limited_time(
    router: ConnectedRouter, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = router.open()
    for octets in (b"1", b"2"):
        router.deliver(connection, octets)
    monkeypatch.setattr(neighbour_connections, "TURN", 0.0)
    assert router.neighbours.work()
    assert router.network.take_calls() == []
    monkeypatch.setattr(neighbour_connections, "TURN", PATIENCE)
    assert not router.neighbours.work()
    assert len(router.network.take_calls()) == 2


def test_message_of_closed_connection_is_taken_but_not_received(router: ConnectedRouter) -> None:
    connection = router.open()
    router.deliver(connection, b"1")
    router.close(connection)
    assert not router.neighbours.work()
    assert router.network.take_calls() == []
    assert router.orders(0, Taken) == [Taken([], [(connection.number, 1, 1)])]


def test_message_of_lost_worker_is_not_reported_to_it(router: ConnectedRouter) -> None:
    connection = router.open()
    router.deliver(connection, b"1")
    router.core.lost(router.core.workers[0], lambda: None)
    assert not router.neighbours.work()
    assert router.orders(0, Taken) == []
