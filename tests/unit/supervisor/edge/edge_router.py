"""Core of an edge router with one worker that the test plays, its connections to interior routers, and its clients."""

from __future__ import annotations

import itertools
from typing import Any

from sluice.router.config.entities import ConnectorConfig
from sluice.router.config.load import load_text
from sluice.router.control import messages
from sluice.router.control.handover import InitiateData
from sluice.router.log import LogSettings, ModuleSettings, ProcessLog
from sluice.supervisor.addresses.record import AddressRecord
from sluice.supervisor.children.worker import WorkerProcess, WorkerStage
from sluice.supervisor.composition import RouterCore
from sluice.supervisor.connections.connections import ConnectionEnd, RegisteredConnection
from sluice.supervisor.edge.attachment import ANSWER_SERVICE, TRACKING_SERVICE
from sluice.supervisor.edge.messages import (
    FOUND,
    NO_LINK_ROUTE,
    NOT_FOUND,
    SERVED,
    UNSERVED,
    LookupAddress,
    LookupQuestion,
    Precedence,
    lookup_answer,
    precedence_answer,
    read_lookup,
    read_precedence,
    tracking_report,
)
from tests.unit.supervisor.harness import attach

QUIET = LogSettings({"DEFAULT": ModuleSettings(mask=0)})
CONFIGURATION = """
router {
    id: E
    mode: edge
    uplinks: one
}
listener {
    name: main
    port: 0
}
"""
CONNECTOR = """
connector {
    name: %(name)s
    host: 127.0.0.1
    port: 1
    role: edge
%(more)s
}
"""


def connector(name: str, **more: Any) -> str:
    """Return the section of a connector to interior routers."""
    return CONNECTOR % {"name": name, "more": "".join(f"    {key}: {value}\n" for key, value in more.items())}


def peer_connector(**more: Any) -> str:
    """Return the section of a connector to other edge routers."""
    return connector("peers", **more).replace("role: edge", "role: inter-edge")


class SilentInitiator:
    """Initiator of a connection that the test opens."""

    def opened(self, connection: RegisteredConnection) -> None:
        """See Initiator."""

    def ended(self, connection: RegisteredConnection, ending: ConnectionEnd, text: str) -> None:
        """See Initiator."""


def open_interior(
    core: RouterCore, worker: WorkerProcess, config: ConnectorConfig, name: str, **properties: Any
) -> RegisteredConnection:
    """Open a connection to an interior router."""
    profile, _ = core.profiles.add(config)
    number = core.connections.take_number()
    made = core.connections.initiate(number, config, profile, SilentInitiator(), InitiateData("", None))
    core.connections.move(made, worker)
    fields: dict[str, Any] = {"container": name, "hostname": None, "user": None, "mechanism": None, "tls": None}
    core.receive(worker, messages.Opened(conn=number, properties=properties, **fields))
    return made


class EdgeRouter:
    """Core of an edge router, with the orders that its worker has received."""

    def __init__(self, *sections: str, uplinks: str = "one") -> None:
        self.configuration = load_text("router.conf", CONFIGURATION.replace("one", uplinks) + "".join(sections))
        self.unanswered: set[str] = set()  # addresses whose links the interior routers leave unanswered
        self.precedences: dict[int, list[Precedence]] = {}  # precedences announced to interior routers, by connection
        self.pending_lookups: dict[int, list[LookupAddress]] = {}  # addresses without an answer, by connection
        self._lookups: dict[int, list[LookupQuestion]] = {}  # messages that ask about these addresses
        self._found: dict[int, list[int]] = {}  # answers collected for the first of these messages
        self.orders: list[messages.Order] = []  # all orders that the worker has received
        self.answered: list[int] = []  # links whose attach has been answered, by number
        self.core = RouterCore(self.configuration, ProcessLog(QUIET), 4000, lambda number: None)
        self.worker = WorkerProcess(0, 1)
        self.worker.stage = WorkerStage.STARTING
        self.core.workers[0] = self.worker
        self.core.receive(self.worker, messages.Ready(0))
        assert self.core.uplink is not None
        self.uplink = self.core.uplink
        self.links: dict[int, messages.Link] = {}  # links attached at interior routers, by reference
        self._numbers: dict[int, int] = {}  # number that the worker gave a link, by reference
        self._next = itertools.count(1)
        self.settle()

    def settle(self) -> None:
        """Execute the supervisor's orders and acknowledge its changes until there are none left."""
        while True:
            self.core.work()
            delta = self.core.take_delta()
            if delta is not None:
                self.core.journal.acknowledge(0, delta[0])
                continue
            self._take_sends()
            orders, self.worker.outbox[:] = list(self.worker.outbox), []
            self.orders += orders
            self.answered += [order.link for order in orders if isinstance(order, messages.Attached)]
            links = [order for order in orders if isinstance(order, messages.Link | messages.Unlink)]
            if not links:
                return
            for order in links:
                if isinstance(order, messages.Link):
                    self._attach(order)
                else:
                    self._detach(order)

    def _take_sends(self) -> None:
        sends = list(self.worker.sends)
        self.worker.sends.clear()
        for order, octets in sends:
            precedence = read_precedence(octets)
            if isinstance(order, messages.Control) and precedence is not None:
                self.precedences.setdefault(order.conn, []).append(precedence)
            question = read_lookup(octets)
            if isinstance(order, messages.Control) and question.fault is None:
                self.pending_lookups.setdefault(order.conn, []).extend(question.asked)
                self._lookups.setdefault(order.conn, []).append(question)

    def confirm_precedence(self, connection: RegisteredConnection) -> None:
        """Confirm the last precedence on behalf of an interior router."""
        octets = precedence_answer(self.precedences[connection.number][-1].number, True)
        self._deliver(TRACKING_SERVICE, connection, octets)

    def _attach(self, order: messages.Link) -> None:
        """Accept a link on behalf of the interior router."""
        number = self._numbers[order.ref] = next(self._next)
        self.links[order.ref] = order
        begun = messages.Initiated(
            conn=order.conn,
            ref=order.ref,
            dir=order.dir,
            name=order.name,
            link=number,
            slot=number,
            gen=number,
            text="",
        )
        self.core.receive(self.worker, begun)
        if order.address in self.unanswered:
            return
        made = f"amqp:/_topo/0/A/temp.{number}" if order.dynamic else None
        self.core.receive(self.worker, messages.Linked(order.conn, number, True, made))

    def _detach(self, order: messages.Unlink) -> None:
        if self.links.pop(order.ref, None) is not None:
            self.core.receive(self.worker, messages.Detach(conn=order.conn, link=self._numbers.pop(order.ref)))

    def _deliver(self, service: str, connection: RegisteredConnection, octets: bytes) -> None:
        """Deliver a message of an interior router to the router itself."""
        self.core.receive(self.worker, messages.Local(service, connection.number), octets)
        self.settle()

    # -- Interior routers

    def interior(self, name: str, connector: str = "up", **properties: Any) -> RegisteredConnection:
        """Open a connection to an interior router."""
        (config,) = [each for each in self.configuration.connectors if each.name == connector]
        made = open_interior(self.core, self.worker, config, name, **properties)
        self.settle()
        return made

    def close(self, connection: RegisteredConnection) -> None:
        """Lose a connection."""
        self.links = {ref: link for ref, link in self.links.items() if link.conn != connection.number}
        self.core.receive(self.worker, messages.Closed(conn=connection.number, error=None))
        self.settle()

    def track(self, connection: RegisteredConnection, key: str, reachable: bool) -> None:
        """Report on behalf of an interior router whether an address has destinations."""
        self._deliver(TRACKING_SERVICE, connection, tracking_report(key, reachable))

    def proxies(self, connection: RegisteredConnection, direction: str) -> list[str]:
        """Return the addresses that have a link on a connection. Direction "in": the interior router sends."""
        services = {*("$management", "E"), *(link.address for link in self.links.values() if link.second)}
        found = [link for link in self.links.values() if link.conn == connection.number and link.dir == direction]
        return sorted(link.address for link in found if link.address is not None and link.address not in services)

    # -- Clients

    def client(self) -> RegisteredConnection:
        made = self.core.connections.adopt(self.worker, self.configuration.listeners[0], "127.0.0.1:1", "127.0.0.1:2")
        self.settle()
        return made

    def attach(self, client: RegisteredConnection, direction: str, address: str, **more: object) -> int:
        """Attach a link of a client without waiting for look-ups. Return its number."""
        number = self.attach_pending(client, direction, address, **more)
        self.uplink.lookups.give_up()
        self.pending_lookups.clear()
        self._lookups.clear()
        self._found.clear()
        self.settle()
        return number

    def attach_pending(self, client: RegisteredConnection, direction: str, address: str | None, **more: object) -> int:
        """Attach a link of a client and leave its look-up unanswered. Return its number."""
        number = next(self._next)
        self.core.receive(self.worker, attach(number, direction, address, conn=client.number, **more))
        self.settle()
        return number

    def answer(self, connection: RegisteredConnection, *, routed: bool = False, served: bool = True) -> None:
        """Look up the first pending address on behalf of an interior router.

        The answer is sent with the last address of a message. routed: the address belongs to a link route.
        """
        number = connection.number
        self.pending_lookups[number].pop(0)
        question, found = self._lookups[number][0], self._found.setdefault(number, [])
        found.append((SERVED if served else UNSERVED) if routed else NO_LINK_ROUTE)
        if len(found) < len(question.asked):
            return
        status = FOUND if routed or question.several else NOT_FOUND
        octets = lookup_answer("", question, status, bytes(found))
        del self._lookups[number][0], self._found[number]
        self._deliver(ANSWER_SERVICE, connection, octets)

    def detach(self, client: RegisteredConnection, number: int) -> None:
        self.core.receive(self.worker, messages.Detach(conn=client.number, link=number))
        self.settle()

    def record(self, key: str) -> AddressRecord:
        return self.core.table.records[key]

    def destinations(self, key: str) -> list[int]:
        """Return the numbers of the connections to interior routers that messages for an address are sent to."""
        record = self.record(key)
        links = (link for link in self.core.links.by_identity.values() if link.consumer and link.record is record)
        return [link.connection.number for link in links if link.connection.edge]
