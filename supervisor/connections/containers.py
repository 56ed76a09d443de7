"""Containers: the open connections of role route-container, which link routes and auto links are for.

brokers-and-edge.md LR-5, AL-4.

No input or output here. A connection is found by the container id of its peer, and by the configured name of its
listener or connector; generated names do not count.
"""

from collections.abc import Iterator
from typing import Final

from router.config.roles import ROUTE_CONTAINER
from router.control.message import Message
from supervisor.connections.connections import Connection
from supervisor.subsystem import Subsystem

_MADE_UP: Final = ("listener/", "connector/")


class Containers(Subsystem):
    """All containers. Owner: the core."""

    __slots__ = ("_by_id", "_by_name")

    def __init__(self) -> None:
        self._by_id: dict[str, dict[int, Connection]] = {}  # by number, in order of opening
        self._by_name: dict[str, dict[int, Connection]] = {}

    def matching(self, container_id: str | None, connection_name: str | None) -> list[Connection]:
        """The containers with this id or of a listener or connector with this name, in order of opening."""
        found: dict[int, Connection] = {}
        if container_id is not None:
            found.update(self._by_id.get(container_id, ()))
        if connection_name is not None:
            found.update(self._by_name.get(connection_name, ()))
        return sorted(found.values(), key=lambda connection: connection.opened_at)

    def connection_opened(self, connection: Connection, message: Message) -> None:
        if connection.origin.role == ROUTE_CONTAINER:
            for index, key in self._places(connection):
                index.setdefault(key, {})[connection.number] = connection

    def connection_closed(self, connection: Connection) -> None:
        if connection.origin.role == ROUTE_CONTAINER and connection.opened:
            for index, key in self._places(connection):
                del index[key][connection.number]
                if not index[key]:
                    del index[key]

    def _places(self, connection: Connection) -> Iterator[tuple[dict[str, dict[int, Connection]], str]]:
        """The indexes that have it, each with the key there."""
        if connection.container is not None:
            yield self._by_id, connection.container
        name = name_of(connection)
        if name is not None:
            yield self._by_name, name


def name_of(connection: Connection) -> str | None:
    """The name by which link routes and auto links refer to a connection; None without a configured one."""
    name = connection.origin.name
    return None if name.startswith(_MADE_UP) else name
