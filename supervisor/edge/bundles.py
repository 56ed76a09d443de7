"""Which connections to and from edge routers are one for the table. No I/O here.

What came by one of them goes back by none of them. At an edge router those are all: to interior routers, and to other
edge routers. At an interior router those are a bundle that bear the same container id and the same mark: the text in
`sluice.edge`, which an edge router of ours chooses when it starts.
"""

from typing import Any, Final

from router.amqp.errors import NOT_ALLOWED
from router.config.roles import EDGE, INTER_EDGE
from router.control import edge_properties
from supervisor.addresses.record import HERE, Way
from supervisor.connections.admission import Deny
from supervisor.connections.connections import Connection

_MOST_COST: Final = 0x00FFFFFF
_BUNDLES: Final = 1  # the versions that know …
_UPLINKS: Final = 2
_EARLY: Final = 3
_TELLS: Final = 4
COST: Final = "qd.inter-router-cost"
MOST_MARK: Final = 64  # characters
NO_EDGE: Final = "A connection of role inter-edge is between two edge routers of Sluice, and both ends have that role."
ITSELF: Final = "This connection of role inter-edge leads from the router to itself."


class Bundles:
    """The numbers by which the table knows edge connections. Owner: the connections."""

    def __init__(self, mark: str) -> None:
        """mark: this router's."""
        self._mark = mark
        self._open: dict[Any, dict[int, Connection]] = {}  # those of a bundle, by number, in order of opening
        self._numbers: dict[Any, int] = {}  # of the first connection of a bundle, for as long as there is any

    def unfit(self, connection: Connection) -> Deny | None:
        """Why a connection that is about to open cannot be of its role; None: it can."""
        if connection.origin.role != INTER_EDGE:
            return None
        mark = mark_of(connection)
        if not _is_peer(connection) or not mark:
            return Deny(NOT_ALLOWED, NO_EDGE)
        return Deny(NOT_ALLOWED, ITSELF) if mark == self._mark else None

    def opened(self, connection: Connection) -> Way:
        """The bundle of a connection that has just opened, for the table."""
        role = connection.origin.role
        if role not in (EDGE, INTER_EDGE):
            return HERE
        key = _key(connection)
        self._open.setdefault(key, {})[connection.number] = connection
        number = self._numbers.setdefault(key, connection.number)
        if role == INTER_EDGE:
            announced = (connection.properties or {}).get(COST)
            cost = announced if isinstance(announced, int) and not isinstance(announced, bool) else 1
            return Way(number, min(max(connection.origin.cost, cost, 1), _MOST_COST), mark_of(connection))
        # What an interior router has is at least one hop farther.
        cost = 0 if connection.initiator is None else min(max(connection.origin.cost, 0) + 1, _MOST_COST)
        return Way(number, cost)

    def closed(self, connection: Connection) -> None:
        """The connection is gone."""
        key = _key(connection)
        there = self._open.get(key)
        if there is None or there.pop(connection.number, None) is None or there:
            return
        del self._open[key], self._numbers[key]


def mark_of(connection: Connection) -> str:
    """The mark of the edge router at the other end; empty: it has none."""
    text = (connection.properties or {}).get(edge_properties.EDGE)
    return text if isinstance(text, str) and len(text) <= MOST_MARK else ""


def _is_peer(connection: Connection) -> bool:
    version = (connection.properties or {}).get(edge_properties.BETWEEN_EDGES)
    return isinstance(version, int) and not isinstance(version, bool) and version >= 1


def _key(connection: Connection) -> Any:
    if connection.initiator is not None or connection.origin.role == INTER_EDGE:
        return "other routers"
    text = (connection.properties or {}).get(edge_properties.EDGE)
    return (connection.container, text) if isinstance(text, str) else connection.number


def takes_bundles(connection: Connection) -> bool:
    """Whether the interior router at the other end is of ours, and knows of bundles."""
    return _version(connection) >= _BUNDLES


def shares(connection: Connection) -> bool:
    """Whether the interior router at the other end can be one of several uplinks at work."""
    return _version(connection) >= _UPLINKS


def takes_early(connection: Connection) -> bool:
    """Whether the interior router at the other end can be asked for a link that is for no link route."""
    return _version(connection) >= _EARLY


def tells(connection: Connection) -> bool:
    """Whether the interior router at the other end says of each address with a producer here who is beyond, also that
    nobody is."""
    return _version(connection) >= _TELLS


def takes_several(connection: Connection) -> bool:
    """Whether the interior router at the other end takes several look-ups in a message."""
    return _version(connection) >= _TELLS


def shared(connection: Connection) -> bool:
    """Whether the edge router at the other end has several uplinks at work."""
    return connection.initiator is None and (connection.properties or {}).get(edge_properties.UPLINKS) is True


def _version(connection: Connection) -> int:
    """What the interior router at the other end says; 0: it says nothing."""
    version = (connection.properties or {}).get(edge_properties.EDGE)
    return version if isinstance(version, int) and not isinstance(version, bool) else 0
