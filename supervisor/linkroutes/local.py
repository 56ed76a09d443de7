"""Local link routes: which attaches go to a container, and to which one (brokers-and-edge.md 5 and 6).

Does no input or output. A link route belongs to an address (`C`, `D`: prefix; `E`, `F`: pattern; in, out). The address
exists while a link route refers to it, and lists the connections that serve it.
"""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from sluice.router.addressing.pattern import PatternTree
from sluice.router.config.entities import LinkRouteConfig
from sluice.router.config.roles import ROUTE_CONTAINER
from sluice.router.control.message import ControlMessage
from sluice.router.log import ProcessLog
from sluice.supervisor.configuration.change import ConfigurationChange
from sluice.supervisor.connections.connections import RegisteredConnection
from sluice.supervisor.connections.containers import Containers, name_of
from sluice.supervisor.runtime.availability import Availability, AvailabilityLog
from sluice.supervisor.runtime.waker import Waker
from sluice.supervisor.subsystem import Subsystem

IN: Final = "in"
OUT: Final = "out"
MAX_PER_CONNECTION: Final = 1_000  # limit of link routes that a client may create for its connection


class LinkAddress:
    """Link-route address with the connections that serve it. Owner: the link routes."""

    __slots__ = (
        "_serving", "add_prefix", "attempts", "connections", "delete_prefix", "direction", "key", "last_refusal",
        "pattern", "refusals", "routes",
    )  # fmt: skip

    def __init__(self, first: LinkRouteConfig) -> None:
        self.key = first.key
        self.pattern = first.whole_pattern
        self.direction = first.direction
        # The link route that creates the address decides for all later ones (brokers-and-edge.md LR-17).
        self.add_prefix = first.add_prefix or ""
        self.delete_prefix = first.delete_prefix or ""
        self.routes = 0
        self.attempts = 0  # number of links that went to a container
        self.refusals = 0  # number of them that a container refused or ended with an error
        self.last_refusal = ""  # error of the last one of these
        self.connections: deque[RegisteredConnection] = deque()  # in rotation order, next choice first
        self._serving: dict[RegisteredConnection, int] = {}  # number of active link routes by connection

    @property
    def containers(self) -> int:
        """Return the number of connections that serve this address."""
        return len(self.connections)

    def choose(self) -> RegisteredConnection | None:
        """Return the next connection in rotation (brokers-and-edge.md LR-10), or None if no connection serves the
        address.
        """
        for _ in range(len(self.connections)):
            chosen = self.connections[0]
            self.connections.rotate(-1)
            if not chosen.closing:
                return chosen
        return None

    def serve(self, connection: RegisteredConnection) -> None:
        """Count a link route that became active for the connection."""
        self._serving[connection] = self._serving.get(connection, 0) + 1
        if self._serving[connection] == 1:
            self.connections.append(connection)

    def leave(self, connection: RegisteredConnection) -> None:
        """Count a link route that became inactive for the connection."""
        self._serving[connection] -= 1
        if not self._serving[connection]:
            del self._serving[connection]
            self.connections.remove(connection)

    def refused(self, reason: str) -> None:
        """Note that a container has refused a link, or ended it with an error."""
        self.refusals += 1
        self.last_refusal = reason

    def outward(self, text: str) -> str:
        """Return a terminus address as the container sees it."""
        return self.add_prefix + text.removeprefix(self.delete_prefix)


class LinkRoute:
    """Link route, either configured or created by a client for its own connection. Owner: the link routes."""

    __slots__ = ("address", "availability", "config", "number", "owner", "serving")

    def __init__(
        self, config: LinkRouteConfig, address: LinkAddress, owner: RegisteredConnection | None, number: int = 0
    ) -> None:
        """owner: the connection of the client that created the link route; None for a configured one. number: the
        number that management shows for a link route created by a client.
        """
        self.config = config
        self.address = address
        self.owner = owner
        self.number = number
        self.serving: list[RegisteredConnection] = []
        self.availability: Final = Availability(config.name)  # of a configured link route

    @property
    def where(self) -> str:
        """Return the place of a configured link route, for the log."""
        config = self.config
        return f"connection {config.connection}" if config.connection else f"container {config.container_id}"


class LocalLinkRoutes(Subsystem):
    """All local link routes. Owner: the core."""

    def __init__(self, containers: Containers, waker: Waker, log: ProcessLog) -> None:
        self._containers = containers
        self._log = log
        self._changes = AvailabilityLog("Link route", "ROUTER_CORE", waker.later, log)
        self._stopped = False  # True: the router ends, so lost connections are no failures
        self._trees: dict[str, PatternTree[LinkAddress]] = {IN: PatternTree(), OUT: PatternTree()}
        self._routes: dict[str, LinkRoute] = {}  # by identity, in order of creation
        self._own: dict[RegisteredConnection, dict[int, LinkRoute]] = {}  # created by clients, by connection and number
        self._addresses: dict[LinkAddress, None] = {}  # in order of creation
        self._local_changed: list[Callable[[LinkAddress], None]] = []

    def __len__(self) -> int:
        return len(self._routes)

    def __iter__(self) -> Iterator[LinkRoute]:
        return iter(self._routes.values())

    def addresses(self) -> list[LinkAddress]:
        """Return all addresses in order of creation."""
        return list(self._addresses)

    def match(self, direction: str, address: str) -> LinkAddress | None:
        """Return the link-route address that matches a normalised address, or None."""
        return self._trees[direction].match(address)

    def watch_patterns(self, changed: Callable[[], object]) -> None:
        """Call `changed` whenever the patterns of `match` have changed."""
        for tree in self._trees.values():
            tree.watch(changed)

    def active(self, config: LinkRouteConfig) -> bool:
        """Return whether a connection serves the link route (operStatus)."""
        route = self._routes.get(config.identity)
        return route is not None and bool(route.serving)

    def get(self, config: LinkRouteConfig) -> LinkRoute | None:
        """Return a configured link route, or None."""
        return self._routes.get(config.identity)

    def stop(self) -> None:
        self._stopped = True

    def watch_local(self, changed: Callable[[LinkAddress], None]) -> None:
        """Call `changed` when an address gets its first connection or loses its last one."""
        self._local_changed.append(changed)

    # Configuration

    def commit(self, change: ConfigurationChange) -> None:
        if change.whole:
            self.replace(change.new.link_routes)
        for route in change.removed(LinkRouteConfig):
            self.remove(route)
        for route in change.made(LinkRouteConfig):
            self.add(route)

    def replace(self, configs: tuple[LinkRouteConfig, ...]) -> None:
        """Replace the configured link routes. Attached links stay (brokers-and-edge.md LR-7)."""
        wanted = {config.identity: config for config in configs}
        for identity, route in list(self._routes.items()):
            if wanted.get(identity) != route.config:
                self.remove(route.config)
        for identity, config in wanted.items():
            if identity not in self._routes:
                self.add(config)

    def add(self, config: LinkRouteConfig) -> None:
        """Add a configured link route and activate it for matching connections."""
        route = self._routes[config.identity] = self._make(config, None)
        for connection in self._containers.matching(config.container_id, config.connection):
            self._activate(route, connection)

    def remove(self, config: LinkRouteConfig) -> None:
        """Remove a configured link route. Attached links stay (brokers-and-edge.md LR-7)."""
        route = self._routes.pop(config.identity)
        self._changes.forget(route.availability, route.where)
        self._remove(route)

    def _make(self, config: LinkRouteConfig, owner: RegisteredConnection | None, number: int = 0) -> LinkRoute:
        tree = self._trees[config.direction]
        address = tree.get(config.whole_pattern)
        if address is None:
            address = LinkAddress(config)
            tree.put(config.whole_pattern, address)
            self._addresses[address] = None
        address.routes += 1
        return LinkRoute(config, address, owner, number)

    def _remove(self, route: LinkRoute) -> None:
        for connection in list(route.serving):
            self._deactivate(route, connection)
        address = route.address
        address.routes -= 1
        if not address.routes:
            self._trees[address.direction].remove(address.pattern)
            del self._addresses[address]

    # Link routes created by clients

    def own(self, connection: RegisteredConnection) -> list[LinkRoute]:
        """Return the link routes that a client created for its connection, in order of creation."""
        return list(self._own.get(connection, {}).values())

    def create_for(self, connection: RegisteredConnection, config: LinkRouteConfig, number: int) -> LinkRoute | None:
        """Create a link route that a client requests for its connection (brokers-and-edge.md CLR-1).

        Returns None if the connection has MAX_PER_CONNECTION already.
        """
        routes = self._own.setdefault(connection, {})
        if len(routes) >= MAX_PER_CONNECTION:
            return None
        route = routes[number] = self._make(config, connection, number)
        self._activate(route, connection)
        return route

    def delete_for(self, route: LinkRoute) -> None:
        """Remove a link route created by a client. Attached links stay."""
        assert route.owner is not None
        self._remove(self._own[route.owner].pop(route.number))

    # Connections

    def connection_opened(self, connection: RegisteredConnection, message: ControlMessage) -> None:
        if connection.origin.role != ROUTE_CONTAINER:
            return
        for route in self._routes.values():
            config = route.config
            if (config.container_id is not None and config.container_id == connection.container) or (
                config.connection is not None and config.connection == name_of(connection)
            ):
                self._activate(route, connection)

    def connection_closed(self, connection: RegisteredConnection) -> None:
        """Remove the link routes that a client created on the connection (brokers-and-edge.md CLR-6).

        All other link routes no longer use the connection.
        """
        for route in self._own.pop(connection, {}).values():
            self._remove(route)
        if connection.origin.role == ROUTE_CONTAINER and connection.opened:
            lost: dict[str, list[Availability]] = {}  # by place
            for route in self._routes.values():
                if connection in route.serving:
                    self._deactivate(route, connection)
                    if not route.serving and not self._stopped:
                        lost.setdefault(route.where, []).append(route.availability)
            for where, those in lost.items():
                self._changes.fall_together(those, connection.end_reason, where)

    def _activate(self, route: LinkRoute, connection: RegisteredConnection) -> None:
        route.serving.append(connection)
        route.address.serve(connection)
        if len(route.address.connections) == 1:
            self._report_changed(route.address)
        self._log_event("Activated", route, connection)
        if route.owner is None:
            self._changes.rise(route.availability, route.where)

    def _deactivate(self, route: LinkRoute, connection: RegisteredConnection) -> None:
        route.serving.remove(connection)
        route.address.leave(connection)
        if not route.address.connections:
            self._report_changed(route.address)
        self._log_event("Deactivated", route, connection)

    def _report_changed(self, address: LinkAddress) -> None:
        for changed in self._local_changed:
            changed(address)

    def _log_event(self, event: str, route: LinkRoute, connection: RegisteredConnection) -> None:
        by_id = route.owner is not None or route.config.container_id == connection.container
        where = f"container {connection.container}" if by_id else f"connection {name_of(connection)}"
        self._log.info("ROUTER_CORE", f"Link Route {event} '{route.config.name}' on {where}")
