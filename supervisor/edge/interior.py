"""What an interior router does for the edge routers that connect to it (inter-router.md 14.3 to 14.5).

Their consumers and producers are links like any other's, with one difference in the table: what came by an edge
connection does not go back there. Here is the rest: each edge router hears which of its producers' addresses have
destinations elsewhere, and whether an address is that of a link route. Heartbeats are the workers'. No I/O here.
"""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, Protocol

from router.addressing.address import MOBILE, normalise
from router.config.roles import EDGE
from router.control.messages import Direction, Opened
from router.log import WARNING, Log
from supervisor.addresses.inprocess import InProcess, LocalMessage
from supervisor.addresses.record import Record
from supervisor.addresses.table import Table
from supervisor.connections.connections import Connection, Link
from supervisor.edge import messages
from supervisor.edge.bundles import mark_of
from supervisor.edge.standby import Standby, Ways
from supervisor.linkroutes.targets import Match
from supervisor.links.attach import HEARTBEAT_KEY, LOOKUP_KEY, TRACKING_KEY, UPLINKS_KEY
from supervisor.processes.epochs import Epochs
from supervisor.processes.worker import Worker
from supervisor.subsystem import Subsystem

MOST_MISSING: Final = 1000  # edge routers whose missed heartbeats are counted


class EdgeRow(NamedTuple):
    """What metrics show of an edge router."""

    connections: int
    addresses: int  # that it has announced consumers of
    missed: int  # heartbeats


class LinkRoutes(Protocol):
    """Link routes of this router and of others."""

    def match(self, direction: str, name: str) -> Match | None:
        """Those that match a normalised address."""


class _Edge:
    """One bundle of edge connections, most often of one. Owner: the edges."""

    __slots__ = ("number", "ours", "told", "tracking")

    def __init__(self, number: int, ours: bool) -> None:
        """ours: it is a Sluice router, which waits to hear of each address; one of 1.19 hears only what it has to."""
        self.number = number
        self.ours: Final = ours
        self.tracking: Link | None = None  # the link by which it hears of destinations
        # What it has heard, by key: of the addresses that it has producers for, with the number of their links.
        # None: nothing yet.
        self.told: dict[str, tuple[bool | None, int]] = {}


class Edges(Subsystem):
    """All edge connections of an interior router. Owner: the core."""

    def __init__(
        self,
        table: Table,
        epochs: Epochs[Any],
        in_process: InProcess,
        link_routes: LinkRoutes,
        log: Log,
        router_id: str = "",
        ways: Ways | None = None,
    ) -> None:
        self._log = log
        self.standby: Final = Standby(router_id, table, ways)
        self._table = table
        self._epochs = epochs
        self._in_process = in_process
        self._link_routes = link_routes
        self._edges: dict[int, _Edge] = {}  # by number of the bundle
        self._producing: dict[str, dict[int, _Edge]] = {}  # those with producers, by key and number
        self._changed: dict[str, None] = {}  # keys with producers whose users have changed
        self._open: dict[int, Connection] = {}  # connections of role edge, by number
        self._latest: dict[str, Connection] = {}  # the one of them that opened last, by container id
        self._missed: OrderedDict[str, int] = OrderedDict()  # heartbeats, by container id; who missed one last is last
        for key in (TRACKING_KEY, HEARTBEAT_KEY):
            in_process.open(key)
        in_process.serve(LOOKUP_KEY, self._look_up)
        in_process.serve(UPLINKS_KEY, self._precedence)
        table.watch_users(self._user_changed)

    # Metrics

    def rows(self) -> dict[str, EdgeRow]:
        """The edge routers that are connected or have missed heartbeats, by id."""
        found = {name: EdgeRow(0, 0, missed) for name, missed in self._missed.items()}
        for connection in self._open.values():
            name = connection.container or ""
            row = found.get(name) or EdgeRow(0, 0, 0)
            found[name] = EdgeRow(row.connections + 1, row.addresses + _announced_by(connection), row.missed)
        return found

    def missed(self, connection: Connection) -> None:
        """A heartbeat has not come in time."""
        name = connection.container or ""
        self._missed[name] = self._missed.get(name, 0) + 1
        self._missed.move_to_end(name)
        if len(self._missed) > MOST_MISSING:
            self._missed.popitem(last=False)

    def connection_opened(self, connection: Connection, message: Opened) -> None:
        if connection.origin.role == EDGE:
            self._warn_of_namesake(connection)
            self._open[connection.number] = connection
            self._latest[connection.container or ""] = connection
            self.standby.opened(connection)

    def _warn_of_namesake(self, connection: Connection) -> None:
        """Warn of another edge router with the same id: answers to generated addresses of one reach the other.

        Edge routers differ by their marks. Those of 1.19 have none, and may have several connections here: they differ
        by the addresses that they connect from.
        """
        other = self._latest.get(connection.container or "")
        if other is not None and _is_other(other, connection):
            text = (
                f"[C{connection.number}] Edge router '{connection.container}' at {connection.peer} has the id of the "
                f"one at {other.peer} ([C{other.number}]): answers to clients of one may go to the other. A router "
                "that was just restarted causes this once"
            )
            self._log.repeated(WARNING, "ROUTER_CORE", f"edge router {connection.container}", text)

    # Address tracking

    def tracked(self, connection: Connection, link: Link) -> None:
        """An edge router has attached the link by which it hears of destinations."""
        edge = self._edge(connection)
        edge.tracking = link
        edge.told = {key: (None, links) for key, (_, links) in edge.told.items()}
        self._changed.update(dict.fromkeys(edge.told))

    def produces(self, connection: Connection, link: Link) -> None:
        """An edge router has attached a producer for an address."""
        record = link.record
        if record is None or record.key[0] != MOBILE or record.inproc:
            return
        edge = self._edge(connection)
        _, links = edge.told.get(record.key, (None, 0))
        edge.told[record.key] = (None, links + 1)  # each new link hears it
        self._producing.setdefault(record.key, {})[edge.number] = edge
        if record.users_epoch <= self._epochs.settled(self._table.epoch):
            # In one go with the answer to the attach: an edge router of 1.19 has given its client credit already.
            self._tell_if_changed(edge, record.key, record)
        else:
            self._changed[record.key] = None

    def _edge(self, connection: Connection) -> _Edge:
        edge = self._edges.get(connection.edge)
        if edge is None:
            edge = self._edges[connection.edge] = _Edge(connection.edge, mark_of(connection) != "")
        return edge

    def _user_changed(self, record: Record) -> None:
        if record.key in self._producing:
            self._changed[record.key] = None

    def step(self) -> None:
        """Tell edge routers what has changed, once all workers have it: what they send then arrives."""
        self.standby.step()
        if self._changed:
            changed, self._changed = self._changed, {}
            self._epochs.call_when_all(self._table.pending_epoch, lambda: self._tell_all(changed))

    def _tell_all(self, keys: Mapping[str, None]) -> None:
        for key in keys:
            record = self._table.records.get(key)
            for edge in self._producing.get(key, {}).values():
                self._tell_if_changed(edge, key, record)

    def _tell_if_changed(self, edge: _Edge, key: str, record: Record | None) -> None:
        told, links = edge.told[key]
        reachable = record is not None and record.beyond(edge.number)
        if edge.tracking is None or reachable == told:
            return
        edge.told[key] = (reachable, links)
        if reachable or told or edge.ours:
            self._tell(edge, key, reachable)

    def _tell(self, edge: _Edge, key: str, reachable: bool) -> None:
        link = edge.tracking
        assert link is not None
        octets = messages.tracking(key, reachable)
        self._in_process.send_control(link.worker, link.connection.number, octets, link.number)

    @property
    def deadline(self) -> float:
        return self.standby.deadline

    # Several uplinks

    def _precedence(self, message: LocalMessage) -> None:
        """An edge router has named its uplinks."""
        connection = self._open.get(message.connection_number or 0)
        said = messages.read_precedence(message.octets)
        if connection is None or said is None:
            return
        bears = self.standby.said(connection.edge, said)
        self._epochs.call_when_all(self._table.pending_epoch, lambda: self._taken(connection.edge, said.number, bears))

    def _taken(self, number: int, said: int, bears: bool) -> None:
        edge = self._edges.get(number)
        if edge is not None and edge.tracking is not None:
            link = edge.tracking
            octets = messages.taken(said, bears)
            self._in_process.send_control(link.worker, link.connection.number, octets, link.number)

    def link_dropped(self, worker: Worker, link: Link) -> None:
        self.standby.dropped(link)
        edge = self._edges.get(link.connection.edge)
        if edge is None:
            return
        if link is edge.tracking:
            edge.tracking = None
        record = link.record
        if record is None or link.consumer or record.key not in edge.told:
            return
        told, links = edge.told[record.key]
        if links > 1:
            edge.told[record.key] = (told, links - 1)
            return
        del edge.told[record.key]
        producing = self._producing[record.key]
        del producing[edge.number]
        if not producing:
            del self._producing[record.key]

    def connection_closed(self, connection: Connection) -> None:
        edge = self._edges.get(connection.edge)
        if edge is not None and edge.tracking is None and not edge.told:
            del self._edges[connection.edge]
        if self._open.pop(connection.number, None) is not None:
            if self._latest.get(connection.container or "") is connection:
                del self._latest[connection.container or ""]
            self.standby.closed(connection)

    # Look-up of link routes

    def _look_up(self, message: LocalMessage) -> None:
        question = messages.read_lookup(message.octets)
        if question.reply_to is None:
            return  # it could not be answered
        found = bytes(map(self._kind, question.asked)) if question.fault is None else bytes((messages.NO_LINK_ROUTE,))
        status = question.fault
        if status is None:
            status = messages.FOUND if question.several or found[0] != messages.NO_LINK_ROUTE else messages.NOT_FOUND
        answer = messages.lookup_answer(question.reply_to, question, status, found)
        self._in_process.send(question.reply_to, answer, message.worker_index)

    def _kind(self, asked: messages.Asked) -> int:
        """Return what is known of an address that is asked about."""
        direction: Direction = "in" if asked.sender else "out"
        match = self._link_routes.match(direction, normalise(asked.address))
        if match is None:
            return messages.NO_LINK_ROUTE
        return messages.SERVED if _served(match) else messages.UNSERVED


def _is_other(one: Connection, two: Connection) -> bool:
    """Whether two edge connections are of different processes, as far as they show it."""
    marks = mark_of(one), mark_of(two)
    if marks != ("", ""):
        return marks[0] != marks[1]
    return one.peer.rpartition(":")[0] != two.peer.rpartition(":")[0]


def _announced_by(connection: Connection) -> int:
    """How many mobile addresses have a consumer on an edge connection."""
    records = (link.record for link in connection.links.values() if link.consumer)
    return sum(record is not None and record.key[0] == MOBILE for record in records)


def _served(match: Match) -> bool:
    """Whether a container is there, here or at another router."""
    return (match.local is not None and match.local.containers > 0) or (
        match.remote is not None and bool(match.remote.routers)
    )
