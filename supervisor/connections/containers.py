"""Containers: open connections of role route-container, the destinations of link routes and auto links.

The rules: brokers-and-edge.md LR-5, AL-4. A connection is found by the container id of its peer, and by the configured
name of its listener or connector; generated names do not count. No input or output here.
"""

from collections.abc import Iterator
from typing import Final

from sluice.router.config.roles import ROUTE_CONTAINER
from sluice.router.control.message import ControlMessage
from sluice.supervisor.connections.connections import RegisteredConnection
from sluice.supervisor.subsystem import Subsystem

_GENERATED_PREFIXES: Final = ("listener/", "connector/")


class Containers(Subsystem):
    """Index of all containers. Owner: the core. routing-semantics.md A-7; brokers-and-edge.md W-12."""

    __slots__ = ("_by_id", "_by_name")

    roles = (ROUTE_CONTAINER,)

    def __init__(self) -> None:
        # Connections by number, in order of opening, by container id and by name of the listener or connector.
        self._by_id: dict[str, dict[int, RegisteredConnection]] = {}
        self._by_name: dict[str, dict[int, RegisteredConnection]] = {}

    def matching(self, container_id: str | None, connection_name: str | None) -> list[RegisteredConnection]:
        """Return the containers with this container id, or with this listener or connector, in order of opening."""
        found: dict[int, RegisteredConnection] = {}
        if container_id is not None:
            found.update(self._by_id.get(container_id, ()))
        if connection_name is not None:
            found.update(self._by_name.get(connection_name, ()))
        return sorted(found.values(), key=lambda connection: connection.opened_at)

    def connection_opened(self, connection: RegisteredConnection, message: ControlMessage) -> None:
        for index, key in self._places(connection):
            index.setdefault(key, {})[connection.number] = connection

    def connection_closed(self, connection: RegisteredConnection) -> None:
        if connection.opened:
            for index, key in self._places(connection):
                del index[key][connection.number]
                if not index[key]:
                    del index[key]

    def _places(
        self, connection: RegisteredConnection
    ) -> Iterator[tuple[dict[str, dict[int, RegisteredConnection]], str]]:
        """Yield the indexes that contain a connection, each with the connection's key."""
        if connection.container is not None:
            yield self._by_id, connection.container
        name = name_of(connection)
        if name is not None:
            yield self._by_name, name


def name_of(connection: RegisteredConnection) -> str | None:
    """Return the configured name by which link routes and auto links refer to a connection; None if there is none."""
    name = connection.origin.name
    return None if name.startswith(_GENERATED_PREFIXES) else name
