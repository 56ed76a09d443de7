"""Containers: the open connections of role route-container, which link routes and auto links are for (LR-5, AL-4).

No input or output here. A connection is known by the container id of its peer, and by the name that the user gave to
the listener that accepted it or connector that opened it; names that the router made up do not count.
"""
from collections.abc import Callable, Iterator
from typing import Final

from supervisor.connections import Connection

ROUTE_CONTAINER: Final = "route-container"
_MADE_UP: Final = ("listener/", "connector/")

Hook = Callable[[Connection], None]


class Containers:
    """All containers. Owner: the core."""

    __slots__ = ("_by_id", "_by_name", "_hooks")

    def __init__(self) -> None:
        self._by_id: dict[str, dict[int, Connection]] = {}  # by number, in order of opening
        self._by_name: dict[str, dict[int, Connection]] = {}
        self._hooks: list[tuple[Hook, Hook]] = []

    def watch(self, opened: Hook, closed: Hook) -> None:
        """Call `opened` for each container from now on, and `closed` for each that is gone, its links with it."""
        self._hooks.append((opened, closed))

    def matching(self, container_id: str | None, connection_name: str | None) -> list[Connection]:
        """The containers with this id or of a listener or connector with this name, in order of opening."""
        found: dict[int, Connection] = {}
        if container_id is not None:
            found.update(self._by_id.get(container_id, ()))
        if connection_name is not None:
            found.update(self._by_name.get(connection_name, ()))
        return sorted(found.values(), key=lambda connection: connection.opened_at)

    def opened(self, connection: Connection) -> None:
        """A connection has got its AMQP open."""
        if connection.origin.role == ROUTE_CONTAINER:
            for index, key in self._places(connection):
                index.setdefault(key, {})[connection.number] = connection
            for opened, _ in self._hooks:
                opened(connection)

    def closed(self, connection: Connection) -> None:
        """A connection is gone."""
        if connection.origin.role == ROUTE_CONTAINER and connection.opened:
            for index, key in self._places(connection):
                del index[key][connection.number]
                if not index[key]:
                    del index[key]
            for _, closed in self._hooks:
                closed(connection)

    def _places(self, connection: Connection) -> Iterator[tuple[dict[str, dict[int, Connection]], str]]:
        """Where it is found: an index, and the key there."""
        if connection.container is not None:
            yield self._by_id, connection.container
        name = name_of(connection)
        if name is not None:
            yield self._by_name, name


def name_of(connection: Connection) -> str | None:
    """The name that link routes and auto links know a connection by; None when nobody gave one."""
    name = connection.origin.name
    return None if name.startswith(_MADE_UP) else name
