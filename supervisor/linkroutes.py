"""Link routes: which attaches are for a container, and which one gets them (brokers-and-edge.md, chapters 5 and 6).

No input or output here. A link route belongs to an address (`C`, `D` prefix; `E`, `F` pattern; in, out), which exists
while a link route refers to it and knows the connections that serve it.
"""
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from router.config.entities import LinkRouteConfig
from router.log import Log
from router.routing.pattern import PatternTree
from supervisor.connections import Connection
from supervisor.containers import Containers, name_of

IN: Final = "in"
OUT: Final = "out"
MAX_OWN: Final = 1_000  # link routes that a client may make for a connection


class LinkAddress:
    """An address of link routes. Owner: the link routes."""

    __slots__ = ("_serving", "add_prefix", "connections", "delete_prefix", "direction", "key", "pattern", "routes")

    def __init__(self, first: LinkRouteConfig) -> None:
        self.key = first.key
        self.pattern = first.whole_pattern
        self.direction = first.direction
        # The link route that made the address decides for all (LR-17).
        self.add_prefix = first.add_prefix or ""
        self.delete_prefix = first.delete_prefix or ""
        self.routes = 0
        self.connections: deque[Connection] = deque()  # whose turn it is comes first
        self._serving: dict[Connection, int] = {}  # by how many link routes

    @property
    def containers(self) -> int:
        """How many connections serve it."""
        return len(self.connections)

    def choose(self) -> Connection | None:
        """The connection whose turn it is (LR-10); None: nobody serves the address."""
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
        """One of those that were active no longer is."""
        self._serving[connection] -= 1
        if not self._serving[connection]:
            del self._serving[connection]
            self.connections.remove(connection)

    def outward(self, text: str) -> str:
        """The address of a terminus as the container is to see it."""
        return self.add_prefix + text.removeprefix(self.delete_prefix)


class LinkRoute:
    """A link route, configured or made by a client for itself. Owner: the link routes."""

    __slots__ = ("address", "config", "number", "owner", "serving")

    def __init__(
        self, config: LinkRouteConfig, address: LinkAddress, owner: Connection | None, number: int = 0
    ) -> None:
        """owner: the connection that it is for, of a client's own; None: those that the configuration names.

        number: that of a client's own, as management shows it.
        """
        self.config = config
        self.address = address
        self.owner = owner
        self.number = number
        self.serving: list[Connection] = []


class LinkRoutes:
    """All link routes. Owner: the core."""

    def __init__(self, containers: Containers, log: Log) -> None:
        self._containers = containers
        self._log = log
        self._trees: dict[str, PatternTree[LinkAddress]] = {IN: PatternTree(), OUT: PatternTree()}
        self._routes: dict[str, LinkRoute] = {}  # by identity, in order of creation
        self._own: dict[Connection, dict[int, LinkRoute]] = {}  # by the connection they are for and their number
        self._addresses: dict[LinkAddress, None] = {}  # in order of creation
        # Called when an address has got its first connection or lost its last; the network of routers hears of it.
        self.local_changed: Callable[[LinkAddress], None] = _nothing
        containers.watch(self._opened, self._closed)

    def __len__(self) -> int:
        return len(self._routes)

    def __iter__(self) -> Iterator[LinkRoute]:
        return iter(self._routes.values())

    def addresses(self) -> list[LinkAddress]:
        """All addresses, in order of creation."""
        return list(self._addresses)

    def match(self, direction: str, address: str) -> LinkAddress | None:
        """The address of link routes that a normalised address belongs to, None: it is for others to route."""
        return self._trees[direction].match(address)

    def active(self, config: LinkRouteConfig) -> bool:
        """operStatus: a connection serves it."""
        route = self._routes.get(config.identity)
        return route is not None and bool(route.serving)

    # Configuration

    def replace(self, configs: tuple[LinkRouteConfig, ...]) -> None:
        """From now on these, and no others, are configured. Links that are attached stay (LR-7)."""
        wanted = {config.identity: config for config in configs}
        for identity, route in list(self._routes.items()):
            if wanted.get(identity) != route.config:
                self.remove(route.config)
        for identity, config in wanted.items():
            if identity not in self._routes:
                self.add(config)

    def add(self, config: LinkRouteConfig) -> None:
        """Have a further one."""
        route = self._routes[config.identity] = self._make(config, None)
        for connection in self._containers.matching(config.container_id, config.connection):
            self._activate(route, connection)

    def remove(self, config: LinkRouteConfig) -> None:
        """Have one no more; see `replace`."""
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

    # Of clients for themselves

    def own(self, connection: Connection) -> list[LinkRoute]:
        """Those that a client has made for its connection, in order of creation."""
        return list(self._own.get(connection, {}).values())

    def create_own(self, connection: Connection, config: LinkRouteConfig, number: int) -> LinkRoute | None:
        """A client makes one for its connection (CLR-1); None: it has as many as it may."""
        routes = self._own.setdefault(connection, {})
        if len(routes) >= MAX_OWN:
            return None
        route = routes[number] = self._make(config, connection, number)
        self._activate(route, connection)
        return route

    def delete_own(self, route: LinkRoute) -> None:
        """A client removes one of its own; links that are attached stay."""
        assert route.owner is not None
        self._remove(self._own[route.owner].pop(route.number))

    def gone(self, connection: Connection) -> None:
        """A connection has ended, and its own link routes with it (CLR-6)."""
        for route in self._own.pop(connection, {}).values():
            self._remove(route)

    # Connections

    def _opened(self, connection: Connection) -> None:
        for route in self._routes.values():
            config = route.config
            if (config.container_id is not None and config.container_id == connection.container) or (
                config.connection is not None and config.connection == name_of(connection)
            ):
                self._activate(route, connection)

    def _closed(self, connection: Connection) -> None:
        for route in self._routes.values():
            if connection in route.serving:
                self._deactivate(route, connection)

    def _activate(self, route: LinkRoute, connection: Connection) -> None:
        route.serving.append(connection)
        route.address.serve(connection)
        if len(route.address.connections) == 1:
            self.local_changed(route.address)
        self._tell("Activated", route, connection)

    def _deactivate(self, route: LinkRoute, connection: Connection) -> None:
        route.serving.remove(connection)
        route.address.leave(connection)
        if not route.address.connections:
            self.local_changed(route.address)
        self._tell("Deactivated", route, connection)

    def _tell(self, event: str, route: LinkRoute, connection: Connection) -> None:
        by_id = route.owner is not None or route.config.container_id == connection.container
        where = f"container {connection.container}" if by_id else f"connection {name_of(connection)}"
        self._log.info("ROUTER_CORE", f"Link Route {event} '{route.config.name}' on {where}")


def _nothing(address: LinkAddress) -> None:
    """In the place of a callback where nobody is to hear of it."""
