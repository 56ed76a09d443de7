"""At an interior router: consumers of edge routers that have several uplinks at work (docs/internals/edge.md).

Such an edge router has its links at several interior routers, and tells each of them all their ids, in order. A
consumer counts at the first of them, and waits at the others: so it is there once in the whole network. No I/O here.
"""

import math
import time
from typing import Final, Protocol

from router.addressing.address import EDGE, MOBILE
from router.addressing.settings import MULTICAST
from supervisor.addresses.record import Record
from supervisor.addresses.table import Table
from supervisor.connections.connections import Connection, Link
from supervisor.edge.bundles import shared
from supervisor.edge.messages import Precedence

NEVER: Final = math.inf
PATIENCE: Final = 3.0  # seconds for a router that is not reachable yet when the edge router names it
_CLASSES: Final = (MOBILE, EDGE)  # of addresses that are known in the whole network


class Ways(Protocol):
    """The ways to other interior routers."""

    @property
    def path_changes(self) -> int:
        """How often any has changed."""

    def links_to(self, router_id: str) -> tuple[int, ...]:
        """Connections to the next hop of a router; none: it cannot be reached."""


class _Edge:
    """An edge router with several uplinks. Owner: the standby."""

    __slots__ = ("bears", "connections", "links", "said", "since")

    def __init__(self) -> None:
        self.connections = 0
        self.links: dict[int, Link] = {}  # its consumers here, by identity
        self.said: Precedence | None = None
        self.since = 0.0  # when a router that it names was last expected to become reachable
        self.bears = False  # its consumers count here


class Standby:
    """Edge routers that have several uplinks. Owner: the edges."""

    def __init__(self, router_id: str, table: Table, ways: Ways | None) -> None:
        self._router_id = router_id
        self._table = table
        self._ways = ways
        self._edges: dict[int, _Edge] = {}  # by number of the bundle
        self._path_changes = 0  # that have been looked at
        self.deadline = NEVER  # when a router that is not reachable has been waited for

    def opened(self, connection: Connection) -> None:
        """An edge connection has opened."""
        if shared(connection):
            self._edges.setdefault(connection.edge, _Edge()).connections += 1

    def closed(self, connection: Connection) -> None:
        """It is gone."""
        edge = self._edges.get(connection.edge)
        if edge is not None:
            edge.connections -= 1
            if not edge.connections:
                del self._edges[connection.edge]

    # Consumers

    def begins(self, link: Link, record: Record) -> bool:
        """A consumer is about to be bound to its address. False: it has to wait, and keeps the address."""
        edge = self._edges.get(link.connection.edge)
        if edge is None or record.key[0] not in _CLASSES or record.inproc:
            return True
        edge.links[link.identity] = link
        if _counts(edge, record):
            return True
        link.waits = True
        self._table.hold(record)
        return False

    def dropped(self, link: Link) -> None:
        """A link is gone."""
        edge = self._edges.get(link.connection.edge)
        if edge is not None:
            edge.links.pop(link.identity, None)

    # Precedence

    def said(self, number: int, precedence: Precedence) -> bool:
        """An edge router has named its uplinks; says whether its consumers count here now."""
        edge = self._edges.get(number)
        if edge is None:
            return False
        edge.said = precedence
        edge.since = time.monotonic()
        self._apply(edge)
        self._look_later()
        return edge.bears

    def step(self) -> None:
        """Look again when ways have changed, or have not for long enough."""
        if not self._edges or self._ways is None:
            return
        if self._ways.path_changes == self._path_changes and time.monotonic() < self.deadline:
            return
        self._path_changes = self._ways.path_changes
        for edge in self._edges.values():
            self._apply(edge)
        self._look_later()

    def _look_later(self) -> None:
        waiting = (edge.since + PATIENCE for edge in self._edges.values() if edge.since and not edge.bears)
        self.deadline = min(waiting, default=NEVER)

    def _apply(self, edge: _Edge) -> None:
        """Bind what counts here, and only that."""
        edge.bears = self._bears(edge)
        for link in edge.links.values():
            record = link.record
            if record is not None and link.waits == _counts(edge, record):
                self._move(link, record)

    def _bears(self, edge: _Edge) -> bool:
        """Whether this router is the first one of those that can be reached from here."""
        if edge.said is None or self._router_id not in edge.said.routers:
            edge.since = 0.0
            return False
        ahead = edge.said.routers[: edge.said.routers.index(self._router_id)]
        if not ahead:
            edge.since = 0.0
            return True
        if any(self._ways is not None and self._ways.links_to(router) for router in ahead):
            edge.since = 0.0
            return False
        if edge.since and time.monotonic() < edge.since + PATIENCE:
            return False
        edge.since = 0.0
        return True

    def _move(self, link: Link, record: Record) -> None:
        place = (link.worker, link.slot, link.generation)
        if link.waits:
            link.waits = False
            connection = link.connection
            self._table.add_consumer(record, *place, connection.origin.link_capacity, connection.way)
            self._table.release(record)
        else:
            link.waits = True
            self._table.hold(record)
            self._table.remove_consumer(record, *place)


def _counts(edge: _Edge, record: Record) -> bool:
    """Whether consumers of an address are bound. A message for all of them must not come by two routers; one for any of
    them cannot, and needs no pause."""
    if not edge.bears or edge.said is None:
        return False
    return edge.said.complete or record.treatment != MULTICAST
