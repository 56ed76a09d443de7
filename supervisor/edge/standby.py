"""Consumers of edge routers with several uplinks, at an interior router (docs/internals/edge.md).

Such an edge router has its links at several interior routers, and sends each of them the ids of all, best first. Its
consumers are bound at the bearer and wait at the others, so that each exists once in the whole network. No I/O here.
"""

import math
import time
from typing import Final, Protocol

from sluice.router.addressing.address import EDGE, MOBILE
from sluice.router.addressing.settings import MULTICAST
from sluice.supervisor.addresses.record import AddressRecord
from sluice.supervisor.addresses.table import AddressTable
from sluice.supervisor.connections.connections import RegisteredConnection, RegisteredLink
from sluice.supervisor.edge.bundles import has_several_uplinks
from sluice.supervisor.edge.messages import Precedence

NEVER: Final = math.inf
PATIENCE: Final = 3.0  # seconds for an interior router to become reachable after the edge router has named it
_CLASSES: Final = (MOBILE, EDGE)  # address classes that are known in the whole network


class RouterPaths(Protocol):
    """Paths to other interior routers."""

    @property
    def path_changes(self) -> int:
        """Count of changes of any path."""

    def links_to(self, router_id: str) -> tuple[int, ...]:
        """Return the connections to the next hop towards a router; empty if it is unreachable."""


class _StandbyEdge:
    """Edge router with several uplinks. Owner: the standby."""

    __slots__ = ("bears", "connections", "links", "said", "since")

    def __init__(self) -> None:
        self.connections = 0
        self.links: dict[int, RegisteredLink] = {}  # consumers at this router, by identity
        self.said: Precedence | None = None
        self.since = 0.0  # monotonic start of the wait for a named router to become reachable; 0: no wait
        self.bears = False  # bearer is this router, so the consumers are bound


class Standby:
    """All edge routers with several uplinks. Owner: the edges."""

    def __init__(self, router_id: str, table: AddressTable, ways: RouterPaths | None) -> None:
        self._router_id = router_id
        self._table = table
        self._ways = ways
        self._edges: dict[int, _StandbyEdge] = {}  # by number of the bundle
        self._path_changes = 0  # value of `RouterPaths.path_changes` at the last check
        self.deadline = NEVER  # monotonic time at which PATIENCE ends for an unreachable router

    def opened(self, connection: RegisteredConnection) -> None:
        """Count an opened edge connection."""
        if has_several_uplinks(connection):
            self._edges.setdefault(connection.edge, _StandbyEdge()).connections += 1

    def closed(self, connection: RegisteredConnection) -> None:
        """Forget a closed edge connection."""
        edge = self._edges.get(connection.edge)
        if edge is not None:
            edge.connections -= 1
            if not edge.connections:
                del self._edges[connection.edge]

    # Consumers

    def begins(self, link: RegisteredLink, record: AddressRecord) -> bool:
        """Register a consumer before it is bound to its address. Return False if it must wait; it then holds its
        address."""
        edge = self._edges.get(link.connection.edge)
        if edge is None or record.key[0] not in _CLASSES or record.inproc:
            return True
        edge.links[link.identity] = link
        if _counts(edge, record):
            return True
        link.waits = True
        self._table.hold(record)
        return False

    def dropped(self, link: RegisteredLink) -> None:
        """Forget a dropped link."""
        edge = self._edges.get(link.connection.edge)
        if edge is not None:
            edge.links.pop(link.identity, None)

    # Precedence

    def said(self, number: int, precedence: Precedence) -> bool:
        """Apply the precedence of an edge router; return whether this router is now its bearer."""
        edge = self._edges.get(number)
        if edge is None:
            return False
        edge.said = precedence
        edge.since = time.monotonic()
        self._apply(edge)
        self._look_later()
        return edge.bears

    def step(self) -> None:
        """Check all edge routers again after a change of paths, or at the end of PATIENCE."""
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

    def _apply(self, edge: _StandbyEdge) -> None:
        """Bind the consumers that belong here and unbind the others."""
        edge.bears = self._bears(edge)
        for link in edge.links.values():
            record = link.record
            if record is not None and link.waits == _counts(edge, record):
                self._move(link, record)

    def _bears(self, edge: _StandbyEdge) -> bool:
        """Return whether this router is the first reachable one in the precedence of an edge router."""
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

    def _move(self, link: RegisteredLink, record: AddressRecord) -> None:
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


def _counts(edge: _StandbyEdge, record: AddressRecord) -> bool:
    """Return whether consumers of an address are bound here. A multicast message must not reach them through two
    routers, so it waits for a complete precedence. An anycast message goes through one router only and
    need not wait."""
    if not edge.bears or edge.said is None:
        return False
    return edge.said.complete or record.treatment != MULTICAST
