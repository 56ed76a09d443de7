"""Link routes: which attaches go to a container, and to which (brokers-and-edge.md 5 and 6).

No input or output here. A link route belongs to an address (`C`, `D` prefix; `E`, `F` pattern; in, out), which exists
while a link route refers to it, and has the connections that serve it.
"""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from router.addressing.pattern import PatternTree
from router.config.entities import LinkRouteConfig
from router.config.roles import ROUTE_CONTAINER
from router.control.message import Message
from router.log import Log
from supervisor.configuration.change import ConfigurationChange
from supervisor.connections.connections import Connection
from supervisor.connections.containers import Containers, name_of
from supervisor.subsystem import Subsystem

IN: Final = "in"
OUT: Final = "out"
MAX_PER_CONNECTION: Final = 1_000  # link routes that a client may make for a connection


class LinkAddress:
    """An address of link routes. Owner: the link routes."""

    __slots__ = ("_serving", "add_prefix", "connections", "delete_prefix", "direction", "key", "pattern", "routes")

    def __init__(self, first: LinkRouteConfig) -> None:
        self.key = first.key
        self.pattern = first.whole_pattern
        self.direction = first.direction
        # The link route that made the address decides for all (brokers-and-edge.md LR-17).
        self.add_prefix = first.add_prefix or ""
        self.delete_prefix = first.delete_prefix or ""
        self.routes = 0
        self.connections: deque[Connection] = deque()  # the next in turn first
        self._serving: dict[Connection, int] = {}  # by how many link routes

    @property
    def containers(self) -> int:
        """How many connections serve it."""
        return len(self.connections)

    def choose(self) -> Connection | None:
        """The next connection in turn (brokers-and-edge.md LR-10); None: no connection serves the address."""
        for _ in range(len(self.connections)):
            chosen = self.connections[0]
            self.connections.rotate(-1)
            if not chosen.closing:
                return chosen
        return None

    def serve(self, connection: Connection) -> None:
        """A link route is active for the connection."""
        self._serving[connection] = self._serving.get(connection, 0) + 1
        if self._serving[connection] == 1:
            self.connections.append(connection)

    def leave(self, connection: Connection) -> None:
        """A link route is no longer active for the connection."""
        self._serving[connection] -= 1
        if not self._serving[connection]:
            del self._serving[connection]
            self.connections.remove(connection)

    def outward(self, text: str) -> str:
        """The address of a terminus as the container sees it."""
        return self.add_prefix + text.removeprefix(self.delete_prefix)


class LinkRoute:
    """A link route, configured or made by a client for itself. Owner: the link routes."""

    __slots__ = ("address", "config", "number", "owner", "serving")

    def __init__(
        self, config: LinkRouteConfig, address: LinkAddress, owner: Connection | None, number: int = 0
    ) -> None:
        """owner: the connection of a link route that a client made; None: a configured one.

        number: of one that a client made, as management shows it.
        """
        self.config = config
        self.address = address
        self.owner = owner
        self.number = number
        self.serving: list[Connection] = []


class LinkRoutes(Subsystem):
    """All link routes. Owner: the core."""

    def __init__(self, containers: Containers, log: Log) -> None:
        self._containers = containers
        self._log = log
        self._trees: dict[str, PatternTree[LinkAddress]] = {IN: PatternTree(), OUT: PatternTree()}
        self._routes: dict[str, LinkRoute] = {}  # by identity, in order of creation
        self._own: dict[Connection, dict[int, LinkRoute]] = {}  # by the connection they are for and their number
        self._addresses: dict[LinkAddress, None] = {}  # in order of creation
        self._local_changed: list[Callable[[LinkAddress], None]] = []

    def __len__(self) -> int:
        return len(self._routes)

    def __iter__(self) -> Iterator[LinkRoute]:
        return iter(self._routes.values())

    def addresses(self) -> list[LinkAddress]:
        """All addresses, in order of creation."""
        return list(self._addresses)

    def match(self, direction: str, address: str) -> LinkAddress | None:
        """The link-route address that matches a normalised address; None: no link route."""
        return self._trees[direction].match(address)

    def active(self, config: LinkRouteConfig) -> bool:
        """operStatus: a connection serves it."""
        route = self._routes.get(config.identity)
        return route is not None and bool(route.serving)

    def watch_local(self, changed: Callable[[LinkAddress], None]) -> None:
        """Call `changed` when an address has got its first connection or lost its last."""
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
        """Replace the configured link routes by these. Attached links stay (brokers-and-edge.md LR-7)."""
        wanted = {config.identity: config for config in configs}
        for identity, route in list(self._routes.items()):
            if wanted.get(identity) != route.config:
                self.remove(route.config)
        for identity, config in wanted.items():
            if identity not in self._routes:
                self.add(config)

    def add(self, config: LinkRouteConfig) -> None:
        """Add a link route."""
        route = self._routes[config.identity] = self._make(config, None)
        for connection in self._containers.matching(config.container_id, config.connection):
            self._activate(route, connection)

    def remove(self, config: LinkRouteConfig) -> None:
        """Remove a link route; see `replace`."""
        self._remove(self._routes.pop(config.identity))

    def _make(self, config: LinkRouteConfig, owner: Connection | None, number: int = 0) -> LinkRoute:
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

    # Made by clients

    def own(self, connection: Connection) -> list[LinkRoute]:
        """The link routes that a client made for its connection, in order of creation."""
        return list(self._own.get(connection, {}).values())

    def create_for(self, connection: Connection, config: LinkRouteConfig, number: int) -> LinkRoute | None:
        """Create a link route of a client for its connection (brokers-and-edge.md CLR-1); None: it has
        MAX_PER_CONNECTION."""
        routes = self._own.setdefault(connection, {})
        if len(routes) >= MAX_PER_CONNECTION:
            return None
        route = routes[number] = self._make(config, connection, number)
        self._activate(route, connection)
        return route

    def delete_for(self, route: LinkRoute) -> None:
        """Remove a link route that a client made; attached links stay."""
        assert route.owner is not None
        self._remove(self._own[route.owner].pop(route.number))

    # Connections

    def connection_opened(self, connection: Connection, message: Message) -> None:
        if connection.origin.role != ROUTE_CONTAINER:
            return
        for route in self._routes.values():
            config = route.config
            if (config.container_id is not None and config.container_id == connection.container) or (
                config.connection is not None and config.connection == name_of(connection)
            ):
                self._activate(route, connection)

    def connection_closed(self, connection: Connection) -> None:
        """Remove its own link routes (brokers-and-edge.md CLR-6), and deactivate the others for it."""
        for route in self._own.pop(connection, {}).values():
            self._remove(route)
        if connection.origin.role == ROUTE_CONTAINER and connection.opened:
            for route in self._routes.values():
                if connection in route.serving:
                    self._deactivate(route, connection)

    def _activate(self, route: LinkRoute, connection: Connection) -> None:
        route.serving.append(connection)
        route.address.serve(connection)
        if len(route.address.connections) == 1:
            self._report_changed(route.address)
        self._log_event("Activated", route, connection)

    def _deactivate(self, route: LinkRoute, connection: Connection) -> None:
        route.serving.remove(connection)
        route.address.leave(connection)
        if not route.address.connections:
            self._report_changed(route.address)
        self._log_event("Deactivated", route, connection)

    def _report_changed(self, address: LinkAddress) -> None:
        for changed in self._local_changed:
            changed(address)

    def _log_event(self, event: str, route: LinkRoute, connection: Connection) -> None:
        by_id = route.owner is not None or route.config.container_id == connection.container
        where = f"container {connection.container}" if by_id else f"connection {name_of(connection)}"
        self._log.info("ROUTER_CORE", f"Link Route {event} '{route.config.name}' on {where}")
