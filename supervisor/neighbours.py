"""Inter-router connections: their links, what the workers' tables know of them, control messages. No I/O here.

A connection is usable, and the network told so (`link_up`), while our outgoing control link on it is attached
(inter-router.md 2.6). Its outgoing data links, by priority, are a next hop in the table (op `hop`), which is announced
again when they change. Several connections to one router are several next hops.
"""
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from typing import Final, Protocol

from router.ipc.control import ATTACHED, OP_HOP, OP_HOP_GONE, TAKEN, Message
from router.log import DEBUG, Log
from supervisor.connections import Connection, Link
from supervisor.inprocess import InProcess
from supervisor.table import Op, Table
from supervisor.worker import Stage, Worker

INTER_ROUTER: Final = "inter-router"
PRIORITIES: Final = 10
TURN: Final = 0.002  # seconds for control messages before other messages and events have theirs
COST_PROPERTY: Final = "qd.inter-router-cost"
BUNDLE_PROPERTY: Final = "sluice.bundle"
VERSION_PROPERTY: Final = "qd.annotations-version"
CONTROL_ADDRESS: Final = "Lqdhello"  # what an outgoing control link belongs to, for management
# What management calls the links, by what the worker calls them.
KINDS: Final = {"control": "router-control", "data": "inter-router", "stream": "inter-router"}


class Network(Protocol):
    """The protocol between routers, as it hears of inter-router connections (by their numbers)."""

    def link_up(self, conn: int, cost: int, ours: bool) -> None:
        """Control messages can be sent. cost: agreed by both ends. ours: the other end is Sluice, too."""

    def link_down(self, conn: int) -> None:
        """Control messages can be sent no more; the connection may be gone."""

    def received(self, conn: int, octets: bytes) -> None:
        """A whole control message, as the peer wrote it."""


class Nobody:
    """In the place of the network, in a router that has none."""

    def link_up(self, conn: int, cost: int, ours: bool) -> None:
        pass

    def link_down(self, conn: int) -> None:
        pass

    def received(self, conn: int, octets: bytes) -> None:
        pass


class Neighbour:
    """One inter-router connection that is open. Owner: the neighbours."""

    __slots__ = ("connection", "control_in", "control_out", "cost", "hop", "links", "ours")

    def __init__(self, connection: Connection, cost: int, ours: bool) -> None:
        self.connection = connection
        self.cost = cost  # agreed by both ends
        self.ours = ours  # the other end is Sluice
        self.control_in: Link | None = None
        self.control_out: Link | None = None
        self.links: list[Link | None] = [None] * PRIORITIES  # outgoing data links by priority
        self.hop = False  # the table knows it

    def op(self, index: int | None) -> Op:
        """The op that announces the next hop. index: the router's, None: not known yet."""
        links = [None if link is None else [link.slot, link.generation] for link in self.links]
        return [OP_HOP, self.connection.number, self.connection.worker, links, index]


class Neighbours:
    """All inter-router connections. Owner: the core."""

    __slots__ = (
        "_by_number", "_changed", "_in_process", "_indexes", "_log", "_table", "_take_identity", "_waiting", "network",
    )  # fmt: skip

    def __init__(self, table: Table, in_process: InProcess, take_identity: Callable[[], int], log: Log) -> None:
        self._table = table
        self._in_process = in_process
        self._take_identity = take_identity
        self._log = log
        self._by_number: dict[int, Neighbour] = {}
        self._changed: dict[int, Neighbour] = {}  # whose data links, or index, are not as the table has them
        self._indexes: dict[str, int] = {}  # of the routers of the network, by id
        self.network: Network = Nobody()
        # Control messages that wait, by worker and connection: one of each is handled in turn.
        self._waiting: OrderedDict[tuple[Worker, int], deque[bytes]] = OrderedDict()
        in_process.first = self._work

    # For the network

    def get(self, conn: int) -> Neighbour | None:
        """The inter-router connection with this number, if it is open."""
        return self._by_number.get(conn)

    def __iter__(self) -> Iterator[Neighbour]:
        """All, in order of opening."""
        return iter(self._by_number.values())

    def count(self, worker: int) -> int:
        """Number of open inter-router connections that a worker has."""
        return sum(neighbour.connection.worker == worker for neighbour in self)

    def send_control(self, conn: int, octets: bytes) -> bool:
        """Send a whole message on the control link of a connection, behind those sent before.

        False: there is none, or too much waits for its worker.
        """
        neighbour = self._by_number.get(conn)
        if neighbour is None or neighbour.control_out is None:
            return False
        return self._in_process.send_control(neighbour.control_out.worker, conn, octets)

    def known(self, router_id: str, index: int | None) -> None:
        """The network knows a router by an index, or (None) no more. Copies of a message skip those that had it."""
        if index is None:
            self._indexes.pop(router_id, None)
        else:
            self._indexes[router_id] = index
        for neighbour in self:
            if neighbour.connection.container == router_id and neighbour.hop:
                self._changed[neighbour.connection.number] = neighbour

    # For the core

    def opened(self, connection: Connection, announced: dict[str, int]) -> None:
        """A connection has got its open. announced: what its properties say to routers."""
        if connection.origin.role != INTER_ROUTER:
            return
        version = announced.get(VERSION_PROPERTY)
        if version is not None and self._log.enabled("ROUTER", DEBUG):
            self._log.debug("ROUTER", f"Remote router annotations version: {version}")
        cost = max(connection.origin.cost, announced.get(COST_PROPERTY, 1))
        neighbour = Neighbour(connection, cost, BUNDLE_PROPERTY in announced)
        self._by_number[connection.number] = neighbour

    def attached(self, worker: Worker, connection: Connection, message: Message) -> Link | None:
        """A `routerlink` message: the link, to be made known; None when it does not belong to the connection."""
        neighbour = self._by_number.get(connection.number)
        if neighbour is None:
            return None
        outgoing = message["dir"] == "out"
        place = (message["slot"], message["gen"], connection, worker.index)
        link = Link(self._take_identity(), message["name"], outgoing, *place)
        link.up = True
        link.kind = KINDS[message["kind"]]
        link.priority = message["priority"]
        worker.outbox.append(
            {
                "t": ATTACHED,
                "conn": connection.number,
                "link": message["link"],
                "kind": "router",
                "identity": link.identity,
            }
        )
        if message["kind"] == "data" and outgoing:
            neighbour.links[link.priority] = link
            self._changed[connection.number] = neighbour
        elif message["kind"] == "control" and outgoing:
            link.owner = CONTROL_ADDRESS
            neighbour.control_out = link
            self.network.link_up(connection.number, neighbour.cost, neighbour.ours)
        elif message["kind"] == "control":
            neighbour.control_in = link
        return link

    def usable(self, connection: Connection) -> bool:
        """Whether the peer has shown to be a router: our control link to it is attached."""
        neighbour = self._by_number.get(connection.number)
        return neighbour is not None and neighbour.control_out is not None

    def dropped(self, link: Link) -> None:
        """A link is gone, perhaps with its connection."""
        neighbour = self._by_number.get(link.connection.number)
        if neighbour is None:
            return
        if link is neighbour.control_out:
            neighbour.control_out = None
            self.network.link_down(link.connection.number)
        elif link is neighbour.control_in:
            neighbour.control_in = None
        elif link.consumer and neighbour.links[link.priority] is link:
            neighbour.links[link.priority] = None
            self._changed[link.connection.number] = neighbour

    def closed(self, connection: Connection) -> None:
        """A connection is gone; its links were dropped before."""
        neighbour = self._by_number.pop(connection.number, None)
        self._changed.pop(connection.number, None)
        if neighbour is not None and neighbour.hop:
            self._table.change([OP_HOP_GONE, connection.number])

    def publish(self) -> None:
        """Tell the table of next hops whose links have changed. Before a delta is taken."""
        for number, neighbour in self._changed.items():
            if any(neighbour.links):
                neighbour.hop = True
                self._table.change(self._op(neighbour))
            elif neighbour.hop:
                neighbour.hop = False
                self._table.change([OP_HOP_GONE, number])
        self._changed.clear()

    def ops(self) -> list[Op]:
        """All next hops, for a snapshot. Nothing may wait to be published."""
        return [self._op(neighbour) for neighbour in self if neighbour.hop]

    def _op(self, neighbour: Neighbour) -> Op:
        # A router's container id is its router id (inter-router.md 1).
        return neighbour.op(self._indexes.get(neighbour.connection.container or ""))

    # Control messages

    def receive(self, worker: Worker, conn: int, octets: bytes) -> None:
        """A control message has come: it waits for its turn, which is before all other messages for the router."""
        self._waiting.setdefault((worker, conn), deque()).append(octets)

    def _work(self) -> bool:
        """Hand messages to the network, as many as are fair; True: more wait."""
        taken: dict[Worker, dict[int, list[int]]] = {}
        until = time.monotonic() + TURN
        try:
            while self._waiting and time.monotonic() < until:
                source, queue = self._waiting.popitem(last=False)
                octets = queue.popleft()
                if queue:
                    self._waiting[source] = queue
                worker, conn = source
                count = taken.setdefault(worker, {}).setdefault(conn, [conn, 0, 0])
                count[1] += 1
                count[2] += len(octets)
                if conn in self._by_number:
                    self.network.received(conn, octets)
        finally:
            for worker, counts in taken.items():
                if worker.stage is not Stage.DEAD:
                    worker.outbox.append({"t": TAKEN, "counts": [], "control": list(counts.values())})
        return bool(self._waiting)
