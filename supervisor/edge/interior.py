"""Services of an interior router for the edge routers that connect to it (inter-router.md 14.3 to 14.5).

Links of an edge router are ordinary consumers and producers, except that a message never returns to the edge router
that sent it. This module adds two services: address tracking reports whether the addresses of an edge router's
producers have destinations elsewhere, and look-ups answer whether an address belongs to a link route. Heartbeats are
handled by the workers. No I/O here.
"""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Final, NamedTuple, Protocol

from sluice.router.addressing.address import MOBILE, normalise
from sluice.router.config.roles import EDGE
from sluice.router.control.messages import Direction, Opened
from sluice.router.log import WARNING, ProcessLog
from sluice.supervisor.addresses.inprocess import InProcessAddresses, LocalMessage
from sluice.supervisor.addresses.record import AddressRecord
from sluice.supervisor.addresses.table import AddressTable
from sluice.supervisor.children.worker import WorkerProcess
from sluice.supervisor.connections.connections import RegisteredConnection, RegisteredLink
from sluice.supervisor.edge import messages
from sluice.supervisor.edge.bundles import mark_of
from sluice.supervisor.edge.standby import RouterPaths, Standby
from sluice.supervisor.journal.journal import Journal
from sluice.supervisor.linkroutes.targets import LinkRouteMatch
from sluice.supervisor.links.attach import HEARTBEAT_KEY, LOOKUP_KEY, TRACKING_KEY, UPLINKS_KEY
from sluice.supervisor.subsystem import Subsystem

MOST_MISSING: Final = 1000  # bound on the edge routers whose missed heartbeats are counted


class EdgeRow(NamedTuple):
    """Metrics of an edge router."""

    connections: int
    addresses: int  # addresses of which it has announced consumers
    missed: int  # missed heartbeats


class LinkRouteMatcher(Protocol):
    """Link routes of this router and of others."""

    def match(self, direction: str, name: str) -> LinkRouteMatch | None:
        """Return the link routes that match a normalised address."""


class _TrackedEdge:
    """State of one edge router: a bundle of edge connections, most often of a single one. Owner: the edges."""

    __slots__ = ("number", "ours", "told", "tracking")

    def __init__(self, number: int, ours: bool) -> None:
        """ours: a Sluice router, which waits for a report about each address. A 1.19 router gets only the reports that
        1.19 sends."""
        self.number = number
        self.ours: Final = ours
        self.tracking: RegisteredLink | None = None  # link that carries reports about destinations
        # Last state reported for each address of its producers, by key, with the number of producer links. None:
        # nothing has been reported yet.
        self.told: dict[str, tuple[bool | None, int]] = {}


class Edges(Subsystem):
    """All edge connections of an interior router. Owner: the core. brokers-and-edge.md ED-9."""

    roles = (EDGE,)

    def __init__(
        self,
        table: AddressTable,
        journal: Journal,
        in_process: InProcessAddresses,
        link_routes: LinkRouteMatcher,
        log: ProcessLog,
        router_id: str = "",
        ways: RouterPaths | None = None,
    ) -> None:
        self._log = log
        self.standby: Final = Standby(router_id, table, ways)
        self._table = table
        self._journal = journal
        self._in_process = in_process
        self._link_routes = link_routes
        self._edges: dict[int, _TrackedEdge] = {}  # by number of the bundle
        # Edge routers with producers, by key and bundle number.
        self._producing: dict[str, dict[int, _TrackedEdge]] = {}
        self._changed: dict[str, None] = {}  # keys of addresses with producers whose consumers have changed
        self._open: dict[int, RegisteredConnection] = {}  # connections of role edge, by number
        self._latest: dict[str, RegisteredConnection] = {}  # last opened connection of role edge, by container id
        self._missed: OrderedDict[str, int] = OrderedDict()  # missed heartbeats by container id, latest last
        for key in (TRACKING_KEY, HEARTBEAT_KEY):
            in_process.open(key)
        in_process.serve(LOOKUP_KEY, self._look_up)
        in_process.serve(UPLINKS_KEY, self._precedence)
        table.watch_users(self._user_changed)

    # Metrics

    def rows(self) -> dict[str, EdgeRow]:
        """Return the edge routers that are connected or have missed heartbeats, by id."""
        found = {name: EdgeRow(0, 0, missed) for name, missed in self._missed.items()}
        for connection in self._open.values():
            name = connection.container or ""
            row = found.get(name) or EdgeRow(0, 0, 0)
            found[name] = EdgeRow(row.connections + 1, row.addresses + _announced_by(connection), row.missed)
        return found

    def missed(self, connection: RegisteredConnection) -> None:
        """Count a heartbeat that did not arrive in time."""
        name = connection.container or ""
        self._missed[name] = self._missed.get(name, 0) + 1
        self._missed.move_to_end(name)
        if len(self._missed) > MOST_MISSING:
            self._missed.popitem(last=False)

    def connection_opened(self, connection: RegisteredConnection, message: Opened) -> None:
        self._warn_of_namesake(connection)
        self._open[connection.number] = connection
        self._latest[connection.container or ""] = connection
        self.standby.opened(connection)

    def _warn_of_namesake(self, connection: RegisteredConnection) -> None:
        """Warn of another edge router with the same id: answers to generated addresses of one reach the other.

        Sluice edge routers are told apart by their marks. 1.19 edge routers have no mark and may have several
        connections here, so they are told apart by their network addresses.
        """
        other = self._latest.get(connection.container or "")
        if other is not None and _is_other(other, connection):
            text = (
                f"[C{connection.number}] Edge router '{connection.container}' at {connection.peer} has the same id as "
                f"the one at {other.peer} ([C{other.number}]), so answers to clients of one may go to the other. "
                "A router that was just restarted causes this line once"
            )
            self._log.repeated(WARNING, "ROUTER_CORE", f"edge router {connection.container}", text)

    # Address tracking

    def tracked(self, connection: RegisteredConnection, link: RegisteredLink) -> None:
        """Use a new tracking link of an edge router, and report all addresses on it."""
        edge = self._edge(connection)
        edge.tracking = link
        edge.told = {key: (None, links) for key, (_, links) in edge.told.items()}
        self._changed.update(dict.fromkeys(edge.told))

    def produces(self, connection: RegisteredConnection, link: RegisteredLink) -> None:
        """Track the address of a producer that an edge router has attached."""
        record = link.record
        if record is None or record.key[0] != MOBILE or record.inproc:
            return
        edge = self._edge(connection)
        _, links = edge.told.get(record.key, (None, 0))
        edge.told[record.key] = (None, links + 1)  # each new link gets a report
        self._producing.setdefault(record.key, {})[edge.number] = edge
        if record.users_epoch <= self._journal.settled:
            # Report together with the answer to the attach: a 1.19 edge router has given its client credit already.
            self._tell_if_changed(edge, record.key, record)
        else:
            self._changed[record.key] = None

    def _edge(self, connection: RegisteredConnection) -> _TrackedEdge:
        edge = self._edges.get(connection.edge)
        if edge is None:
            edge = self._edges[connection.edge] = _TrackedEdge(connection.edge, mark_of(connection) != "")
        return edge

    def _user_changed(self, record: AddressRecord) -> None:
        if record.key in self._producing:
            self._changed[record.key] = None

    def step(self) -> None:
        """Report changed addresses once all workers know the change, so that messages sent after it arrive."""
        self.standby.step()
        if self._changed:
            changed, self._changed = self._changed, {}
            self._journal.call_when_acknowledged(lambda: self._tell_all(changed))

    def _tell_all(self, keys: Mapping[str, None]) -> None:
        for key in keys:
            record = self._table.records.get(key)
            for edge in self._producing.get(key, {}).values():
                self._tell_if_changed(edge, key, record)

    def _tell_if_changed(self, edge: _TrackedEdge, key: str, record: AddressRecord | None) -> None:
        told, links = edge.told[key]
        reachable = record is not None and record.beyond(edge.number)
        if edge.tracking is None or reachable == told:
            return
        edge.told[key] = (reachable, links)
        if reachable or told or edge.ours:
            self._tell(edge, key, reachable)

    def _tell(self, edge: _TrackedEdge, key: str, reachable: bool) -> None:
        link = edge.tracking
        assert link is not None
        octets = messages.tracking_report(key, reachable)
        self._in_process.send_control(link.worker, link.connection.number, octets, link.number)

    @property
    def deadline(self) -> float:
        return self.standby.deadline

    # Several uplinks

    def _precedence(self, message: LocalMessage) -> None:
        """Apply the precedence of an edge router's uplinks, and confirm it once all workers know the change."""
        connection = self._open.get(message.connection_number or 0)
        said = messages.read_precedence(message.octets)
        if connection is None or said is None:
            return
        bears = self.standby.said(connection.edge, said)
        self._journal.call_when_acknowledged(lambda: self._taken(connection.edge, said.number, bears))

    def _taken(self, number: int, said: int, bears: bool) -> None:
        edge = self._edges.get(number)
        if edge is not None and edge.tracking is not None:
            link = edge.tracking
            octets = messages.precedence_answer(said, bears)
            self._in_process.send_control(link.worker, link.connection.number, octets, link.number)

    def link_dropped(self, worker: WorkerProcess, link: RegisteredLink) -> None:
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

    def connection_closed(self, connection: RegisteredConnection) -> None:
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
            return  # there is nowhere to send an answer
        found = bytes(map(self._kind, question.asked)) if question.fault is None else bytes((messages.NO_LINK_ROUTE,))
        status = question.fault
        if status is None:
            status = messages.FOUND if question.several or found[0] != messages.NO_LINK_ROUTE else messages.NOT_FOUND
        answer = messages.lookup_answer(question.reply_to, question, status, found)
        self._in_process.send(question.reply_to, answer, message.worker_index)

    def _kind(self, asked: messages.LookupAddress) -> int:
        """Return whether the address of a look-up belongs to a link route, as one octet of the answer."""
        direction: Direction = "in" if asked.sender else "out"
        match = self._link_routes.match(direction, normalise(asked.address))
        if match is None:
            return messages.NO_LINK_ROUTE
        return messages.SERVED if _served(match) else messages.UNSERVED


def _is_other(one: RegisteredConnection, two: RegisteredConnection) -> bool:
    """Return whether two edge connections visibly belong to different edge router processes."""
    marks = mark_of(one), mark_of(two)
    if marks != ("", ""):
        return marks[0] != marks[1]
    return one.peer.rpartition(":")[0] != two.peer.rpartition(":")[0]


def _announced_by(connection: RegisteredConnection) -> int:
    """Return the number of mobile addresses with a consumer on an edge connection."""
    records = (link.record for link in connection.links.values() if link.consumer)
    return sum(record is not None and record.key[0] == MOBILE for record in records)


def _served(match: LinkRouteMatch) -> bool:
    """Return whether a link route has a container, here or at another router."""
    return (match.local is not None and match.local.containers > 0) or (
        match.remote is not None and bool(match.remote.routers)
    )
