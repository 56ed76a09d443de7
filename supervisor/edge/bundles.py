"""Bundles: edge connections that count as one way in the address table. No I/O here.

A message that arrived on one connection of a bundle leaves on none of them. At an edge router all connections to other
routers form one bundle. At an interior router a bundle consists of the connections with the same container id and the
same mark. The mark is the text in the connection property `sluice.edge`; a Sluice edge router chooses it at its start.
"""

from typing import Any, Final

from sluice.router.amqp.errors import NOT_ALLOWED
from sluice.router.config.roles import EDGE, INTER_EDGE
from sluice.router.control import edge_properties
from sluice.supervisor.addresses.consumer_edge import NOT_ON_EDGE, ConsumerEdge
from sluice.supervisor.connections.admission import Deny
from sluice.supervisor.connections.connections import RegisteredConnection

_MOST_COST: Final = 0x00FFFFFF
# First version of the edge protocol with each feature.
_BUNDLES: Final = 1
_UPLINKS: Final = 2
_EARLY: Final = 3
_TELLS: Final = 4
COST: Final = "qd.inter-router-cost"
_OTHER_ROUTERS: Final = "other routers"  # key of the bundle of an edge router
MOST_MARK: Final = 64  # characters
NO_EDGE: Final = "A connection of role inter-edge needs a Sluice edge router, with the same role, at the other end"
ITSELF: Final = "This connection of role inter-edge leads from the router to itself"


class Bundles:
    """Bundle numbers of edge connections, for the address table. Owner: the open decider."""

    def __init__(self, mark: str) -> None:
        """mark: the mark of this router."""
        self._mark = mark
        # Connections of each bundle, by number, in order of opening.
        self._open: dict[Any, dict[int, RegisteredConnection]] = {}
        self._numbers: dict[Any, int] = {}  # number of each bundle: that of its first connection

    def unfit(self, connection: RegisteredConnection) -> Deny | None:
        """Return why an opening connection cannot have its role; None if it can."""
        if connection.origin.role != INTER_EDGE:
            return None
        mark = mark_of(connection)
        if not _is_peer(connection) or not mark:
            return Deny(NOT_ALLOWED, NO_EDGE)
        return Deny(NOT_ALLOWED, ITSELF) if mark == self._mark else None

    def opened(self, connection: RegisteredConnection) -> ConsumerEdge:
        """Return the bundle, as a way of the table, of a connection that has just opened."""
        role = connection.origin.role
        if role not in (EDGE, INTER_EDGE):
            return NOT_ON_EDGE
        key = _key(connection)
        self._open.setdefault(key, {})[connection.number] = connection
        number = self._numbers.setdefault(key, connection.number)
        if role == INTER_EDGE:
            announced = (connection.properties or {}).get(COST)
            cost = announced if isinstance(announced, int) and not isinstance(announced, bool) else 1
            return ConsumerEdge(number, min(max(connection.origin.cost, cost, 1), _MOST_COST), mark_of(connection))
        # Consumers of an interior router are at least one hop farther away than local ones.
        cost = 0 if connection.initiator is None else min(max(connection.origin.cost, 0) + 1, _MOST_COST)
        return ConsumerEdge(number, cost)

    def closed(self, connection: RegisteredConnection) -> None:
        """Remove a closed connection from its bundle."""
        if not self._open:
            return
        key = _key(connection)
        there = self._open.get(key)
        if there is None or there.pop(connection.number, None) is None or there:
            return
        del self._open[key]
        if key != _OTHER_ROUTERS:  # messages may wait for a lost uplink under its number until there is another one
            del self._numbers[key]


def mark_of(connection: RegisteredConnection) -> str:
    """Return the mark of the edge router at the other end; empty if it has none."""
    text = (connection.properties or {}).get(edge_properties.EDGE)
    return text if isinstance(text, str) and len(text) <= MOST_MARK else ""


def _is_peer(connection: RegisteredConnection) -> bool:
    version = (connection.properties or {}).get(edge_properties.BETWEEN_EDGES)
    return isinstance(version, int) and not isinstance(version, bool) and version >= 1


def _key(connection: RegisteredConnection) -> Any:
    if connection.initiator is not None or connection.origin.role == INTER_EDGE:
        return _OTHER_ROUTERS
    text = (connection.properties or {}).get(edge_properties.EDGE)
    return (connection.container, text) if isinstance(text, str) else connection.number


def supports_bundles(connection: RegisteredConnection) -> bool:
    """Return whether the peer is a Sluice interior router that supports bundles."""
    return _version(connection) >= _BUNDLES


def supports_several_uplinks(connection: RegisteredConnection) -> bool:
    """Return whether the interior router at the other end can be one of several uplinks in use."""
    return _version(connection) >= _UPLINKS


def supports_early_senders(connection: RegisteredConnection) -> bool:
    """Return whether the interior router at the other end supports the capability NO_LINK_ROUTE."""
    return _version(connection) >= _EARLY


def reports_all_addresses(connection: RegisteredConnection) -> bool:
    """Return whether the interior router at the other end reports each address that has a producer here, also one
    that has no destinations at or behind the interior router."""
    return _version(connection) >= _TELLS


def supports_lookup_batches(connection: RegisteredConnection) -> bool:
    """Return whether the interior router at the other end accepts several look-ups in one message."""
    return _version(connection) >= _TELLS


def has_several_uplinks(connection: RegisteredConnection) -> bool:
    """Return whether the edge router at the other end uses several uplinks at once."""
    return connection.initiator is None and (connection.properties or {}).get(edge_properties.UPLINKS) is True


def _version(connection: RegisteredConnection) -> int:
    """Return the edge protocol version of the interior router at the other end; 0 if it announces none."""
    version = (connection.properties or {}).get(edge_properties.EDGE)
    return version if isinstance(version, int) and not isinstance(version, bool) else 0
