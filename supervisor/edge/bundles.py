"""Which connections of role edge are between the same two routers: for the table they are one. No I/O here.

What came by one of them goes back by none of them. At an edge router that holds for all connections to interior
routers. At an interior router those are a bundle that bear the same container id and the same text in `sluice.edge`,
which an edge router of ours chooses when it starts.
"""

from typing import Any, Final

from router.config.roles import EDGE
from supervisor.connections.connections import Connection

PROPERTY: Final = "sluice.edge"  # in the open: of an edge router the text, of an interior router the version
VERSION: Final = 2
_BUNDLES: Final = 1  # the versions that know …
_UPLINKS: Final = 2
UPLINKS: Final = "sluice.uplinks"  # in the open of an edge router: true, it has several uplinks at work


class Bundles:
    """The numbers by which the table knows edge connections. Owner: the connections."""

    def __init__(self) -> None:
        self._open: dict[Any, dict[int, Connection]] = {}  # those of a bundle, by number, in order of opening
        self._numbers: dict[Any, int] = {}  # of the first connection of a bundle, for as long as there is any

    def opened(self, connection: Connection) -> int:
        """The number of the bundle of a connection that has just opened; 0: it is of another role."""
        if connection.origin.role != EDGE:
            return 0
        key = _key(connection)
        self._open.setdefault(key, {})[connection.number] = connection
        return self._numbers.setdefault(key, connection.number)

    def closed(self, connection: Connection) -> None:
        """The connection is gone."""
        key = _key(connection)
        there = self._open.get(key)
        if there is None or there.pop(connection.number, None) is None or there:
            return
        del self._open[key], self._numbers[key]


def _key(connection: Connection) -> Any:
    if connection.initiator is not None:
        return "interior routers"
    text = (connection.properties or {}).get(PROPERTY)
    return (connection.container, text) if isinstance(text, str) else connection.number


def takes_bundles(connection: Connection) -> bool:
    """Whether the interior router at the other end is of ours, and knows of bundles."""
    return _version(connection) >= _BUNDLES


def shares(connection: Connection) -> bool:
    """Whether the interior router at the other end can be one of several uplinks at work."""
    return _version(connection) >= _UPLINKS


def shared(connection: Connection) -> bool:
    """Whether the edge router at the other end has several uplinks at work."""
    return connection.initiator is None and (connection.properties or {}).get(UPLINKS) is True


def _version(connection: Connection) -> int:
    """What the interior router at the other end says; 0: it says nothing."""
    version = (connection.properties or {}).get(PROPERTY)
    return version if isinstance(version, int) and not isinstance(version, bool) else 0
