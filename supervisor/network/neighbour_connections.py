"""Inter-router connections: their links, next hops in the tables, control messages. Does no input or output.

A connection is usable while its outgoing control link is attached (inter-router.md 2.6); the network is then notified
(`link_up`). Its outgoing data links, by priority, are a next hop in the table (op `hop`), which is announced again
when they change. Several connections to one router are several next hops.
"""

import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from typing import Final, Protocol

from sluice.router.addressing.settings import PRIORITIES
from sluice.router.config.roles import INTER_ROUTER
from sluice.router.control.handlers import HandlerTable
from sluice.router.control.messages import Attached, Count, Opened, RouterLink, Taken
from sluice.router.control.names import CONTROL_KEY
from sluice.router.control.ops import NextHopGone, NextHopOp, Op
from sluice.supervisor.addresses.inprocess import InProcessAddresses
from sluice.supervisor.children.worker import WorkerProcess, WorkerStage
from sluice.supervisor.connections.connections import DATA, RegisteredConnection, RegisteredLink
from sluice.supervisor.journal.journal import Journal
from sluice.supervisor.links.links import Links
from sluice.supervisor.network.absence import AbsentRouters
from sluice.supervisor.subsystem import Subsystem

TURN: Final = 0.002  # seconds for control messages before other events are handled
COST_PROPERTY: Final = "qd.inter-router-cost"
BUNDLE_PROPERTY: Final = "sluice.bundle"
CONTROL_ADDRESS: Final = "Lqdhello"  # address of an outgoing control link, for management
# Link types in management, by kind in messages of workers.
KINDS: Final = {"control": "router-control", "data": DATA, "stream": DATA}


class RoutingProtocol(Protocol):
    """Interface of the routing protocol for inter-router connections, identified by number."""

    def link_up(self, conn: int, cost: int, ours: bool, *, only: str | None = None) -> None:
        """Report that control messages can be sent. cost: agreed by both ends. ours: the peer is Sluice as well."""

    def link_down(self, conn: int) -> None:
        """Report that control messages can no longer be sent. The connection may have ended."""

    def received(self, conn: int, octets: bytes) -> None:
        """Report a whole control message, as the peer encoded it."""


class NeighbourConnection:
    """Open inter-router connection. Owner: the neighbours."""

    __slots__ = ("connection", "control_in", "control_out", "cost", "hop", "links", "ours")

    def __init__(self, connection: RegisteredConnection, cost: int, ours: bool) -> None:
        self.connection = connection
        self.cost = cost  # agreed by both ends
        self.ours = ours  # the peer is Sluice
        self.control_in: RegisteredLink | None = None
        self.control_out: RegisteredLink | None = None
        self.links: list[RegisteredLink | None] = [None] * PRIORITIES  # outgoing data links by priority
        self.hop = False  # the table has it as a next hop

    def op(self, index: int | None) -> NextHopOp:
        """Return the op that announces the next hop. index: of the router; None: unknown yet."""
        assert self.connection.worker is not None
        links = [None if link is None else (link.slot, link.generation) for link in self.links]
        return NextHopOp(self.connection.number, self.connection.worker, links, index)


class NeighbourConnections(Subsystem):
    """All inter-router connections. Owner: the core."""

    __slots__ = (
        "_absent", "_by_number", "_changed", "_in_process", "_indexes", "_journal", "_links", "_network",
        "_take_identity", "_waiting",
    )  # fmt: skip

    roles = (INTER_ROUTER,)

    def __init__(
        self,
        journal: Journal,
        in_process: InProcessAddresses,
        links: Links,
        absent: AbsentRouters,
        take_identity: Callable[[], int],
    ) -> None:
        self._journal = journal
        self._in_process = in_process
        self._links = links
        self._absent = absent
        self._take_identity = take_identity
        self._by_number: dict[int, NeighbourConnection] = {}
        # Data links or index have changed since the last announcement.
        self._changed: dict[int, NeighbourConnection] = {}
        self._indexes: dict[str, int] = {}  # indexes of the network's routers, by id
        self._network: RoutingProtocol | None = None  # None, except at an interior router
        # Waiting control messages by worker and connection, handled in rotation.
        self._waiting: OrderedDict[tuple[WorkerProcess, int], deque[bytes]] = OrderedDict()
        in_process.divert_messages(CONTROL_KEY, self._receive)

    # Interface for the network

    def join(self, network: RoutingProtocol) -> None:
        """Report inter-router connections to `network` from now on."""
        self._network = network

    def get(self, conn: int) -> NeighbourConnection | None:
        """Return the open inter-router connection with this number, or None."""
        return self._by_number.get(conn)

    def router_of(self, conn: int) -> tuple[RegisteredConnection, bool] | None:
        """Return an inter-router connection and whether its peer is Sluice, or None if it has ended."""
        neighbour = self._by_number.get(conn)
        return None if neighbour is None else (neighbour.connection, neighbour.ours)

    def __iter__(self) -> Iterator[NeighbourConnection]:
        """Iterate over all connections in order of opening."""
        return iter(self._by_number.values())

    def count(self, worker: int) -> int:
        """Return the number of open inter-router connections of a worker."""
        return sum(neighbour.connection.worker == worker for neighbour in self)

    def send_control(self, conn: int, octets: bytes) -> bool:
        """Send a whole message on the control link of a connection, after earlier messages.

        Returns False if there is no such link, or too much data waits for its worker.
        """
        neighbour = self._by_number.get(conn)
        if neighbour is None or neighbour.control_out is None:
            return False
        return self._in_process.send_control(neighbour.control_out.worker, conn, octets)

    def known(self, router_id: str, index: int | None) -> None:
        """Record the index of a router in the network; None: it has none. Copies of a message skip routers that had
        it.
        """
        if index is None:
            self._indexes.pop(router_id, None)
        else:
            self._indexes[router_id] = index
        for neighbour in self:
            if neighbour.connection.container == router_id and neighbour.hop:
                self._changed[neighbour.connection.number] = neighbour

    # Connections and links

    def connection_opened(self, connection: RegisteredConnection, message: Opened) -> None:
        announced = message.announced or {}  # the peer's connection properties for routers
        # inter-router.md 2.3.
        cost = max(connection.origin.cost, announced.get(COST_PROPERTY, 1))
        neighbour = NeighbourConnection(connection, cost, BUNDLE_PROPERTY in announced)
        self._by_number[connection.number] = neighbour

    def messages(self, handlers: HandlerTable[WorkerProcess]) -> None:
        handlers.on(RouterLink, self._attached)

    def _attached(self, worker: WorkerProcess, message: RouterLink) -> None:
        """Record an attached link to another router."""
        connection = worker.connections.get(message.conn)
        neighbour = None if connection is None else self._by_number.get(connection.number)
        if connection is None or neighbour is None:
            return
        outgoing = message.dir == "out"
        place = (message.slot, message.gen, connection, worker.index)
        link = RegisteredLink(self._take_identity(), message.name, outgoing, *place)
        link.up = True
        link.kind = KINDS[message.kind]
        link.priority = message.priority
        worker.outbox.append(Attached(conn=connection.number, link=message.link, kind="router", identity=link.identity))
        if message.kind == "data" and outgoing:
            neighbour.links[link.priority] = link
            self._changed[connection.number] = neighbour
        elif message.kind == "control" and outgoing:
            link.owner = CONTROL_ADDRESS
            neighbour.control_out = link
            if self._network is not None:
                # A peer that allowedRouters admits by its container id may have no other router id.
                only = connection.container if connection.origin.allowed_routers else None
                self._network.link_up(connection.number, neighbour.cost, neighbour.ours, only=only)
        elif message.kind == "control":
            neighbour.control_in = link
        self._links.add(connection, message.link, link, message.text)

    def usable(self, connection: RegisteredConnection) -> bool:
        """Return whether the peer is a router with an attached control link."""
        neighbour = self._by_number.get(connection.number)
        return neighbour is not None and neighbour.control_out is not None

    def link_dropped(self, worker: WorkerProcess, link: RegisteredLink) -> None:
        neighbour = self._by_number.get(link.connection.number)
        if neighbour is None:
            return
        if link is neighbour.control_out:
            neighbour.control_out = None
            if self._network is not None:
                self._network.link_down(link.connection.number)
        elif link is neighbour.control_in:
            neighbour.control_in = None
        elif link.consumer and neighbour.links[link.priority] is link and not link.suspended:
            neighbour.links[link.priority] = None
            self._changed[link.connection.number] = neighbour

    def connection_closed(self, connection: RegisteredConnection) -> None:
        neighbour = self._by_number.pop(connection.number, None)
        self._changed.pop(connection.number, None)
        if neighbour is None or not neighbour.hop:
            return
        if not self._absent.keep(self._op(neighbour), connection.container):
            self._journal.append(NextHopGone(connection.number))

    def worker_lost(self, worker: WorkerProcess) -> None:
        self._absent.worker_lost(worker)

    # Next hops

    def step(self) -> None:
        """Announce next hops whose links or router index have changed."""
        for number, neighbour in self._changed.items():
            if any(neighbour.links):
                neighbour.hop = True
                self._journal.append(self._op(neighbour))
            elif neighbour.hop:
                neighbour.hop = False
                self._journal.append(NextHopGone(number))
        self._changed.clear()
        self._absent.step(self._by_number)

    def snapshot_ops(self) -> list[Op]:
        return [*(self._op(neighbour) for neighbour in self if neighbour.hop), *self._absent.ops()]

    def _op(self, neighbour: NeighbourConnection) -> NextHopOp:
        # A router's container id is its router id (inter-router.md 1).
        return neighbour.op(self._indexes.get(neighbour.connection.container or ""))

    # Control messages

    def _receive(self, worker: WorkerProcess, conn: int, octets: bytes) -> None:
        """Queue a control message. It is handled before other messages to the router."""
        self._waiting.setdefault((worker, conn), deque()).append(octets)

    def work(self) -> bool:
        """Pass messages to the network for a limited time. Returns True if more are waiting."""
        if not self._waiting:
            return False
        taken: dict[WorkerProcess, dict[int, Count]] = {}
        until = time.monotonic() + TURN
        try:
            while self._waiting and time.monotonic() < until:
                source, queue = self._waiting.popitem(last=False)
                octets = queue.popleft()
                if queue:
                    self._waiting[source] = queue
                worker, conn = source
                counts = taken.setdefault(worker, {})
                _, messages, size = counts.get(conn, (conn, 0, 0))
                counts[conn] = (conn, messages + 1, size + len(octets))
                if conn in self._by_number and self._network is not None:
                    self._network.received(conn, octets)
        finally:
            for worker, counts in taken.items():
                if worker.stage is not WorkerStage.DEAD:
                    worker.outbox.append(Taken([], list(counts.values())))
        return bool(self._waiting)
