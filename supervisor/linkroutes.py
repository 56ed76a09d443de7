"""Link routes: which attaches are for a container, and which one gets them (brokers-and-edge.md, chapters 5 and 6).

No input or output here. A link route belongs to an address (`C`, `D` prefix; `E`, `F` pattern; in, out), which exists
while a link route refers to it and knows the connections that serve it.
"""
from collections import deque
from collections.abc import Iterator
from typing import Final

from router.config.entities import LinkRouteConfig
from router.log import Log
from router.routing.pattern import PatternTree
from supervisor.connections import Connection
from supervisor.containers import Containers, name_of

IN: Final = "in"
OUT: Final = "out"


class LinkAddress:
    """An address of link routes. Owner: the link routes."""

    __slots__ = ("add_prefix", "connections", "delete_prefix", "direction", "key", "pattern", "routes")

    def __init__(self, first: LinkRouteConfig) -> None:
        self.key = first.key
        self.pattern = first.whole_pattern
        self.direction = first.direction
        # The link route that made the address decides for all (LR-17).
        self.add_prefix = first.add_prefix or ""
        self.delete_prefix = first.delete_prefix or ""
        self.routes = 0
        self.connections: deque[Connection] = deque()  # whose turn it is comes first

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

    def outward(self, text: str) -> str:
        """The address of a terminus as the container is to see it."""
        return self.add_prefix + text.removeprefix(self.delete_prefix)


class LinkRoute:
    """A link route, configured or made by a client for itself. Owner: the link routes."""

    __slots__ = ("address", "config", "owner", "serving")

    def __init__(self, config: LinkRouteConfig, address: LinkAddress, owner: Connection | None) -> None:
        """owner: the connection that it is for, of a client's own; None: those that the configuration names."""
        self.config = config
        self.address = address
        self.owner = owner
        self.serving: list[Connection] = []


class LinkRoutes:
    """All link routes. Owner: the core."""

    def __init__(self, containers: Containers, log: Log) -> None:
        self._containers = containers
        self._log = log
        self._trees: dict[str, PatternTree[LinkAddress]] = {IN: PatternTree(), OUT: PatternTree()}
        self._routes: dict[str, LinkRoute] = {}  # by identity, in order of creation
        self._own: dict[int, list[LinkRoute]] = {}  # by number of the connection that they are for
        containers.watch(self._opened, self._closed)

    def __len__(self) -> int:
        return len(self._routes)

    def __iter__(self) -> Iterator[LinkRoute]:
        return iter(self._routes.values())

    def addresses(self) -> list[LinkAddress]:
        """All addresses, in order of creation."""
        every = (*self._routes.values(), *(route for routes in self._own.values() for route in routes))
        return list(dict.fromkeys(route.address for route in every))

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
                self._remove(self._routes.pop(identity))
        for identity, config in wanted.items():
            if identity not in self._routes:
                route = self._routes[identity] = self._make(config, None)
                for connection in self._containers.matching(config.container_id, config.connection):
                    self._activate(route, connection)

    def _make(self, config: LinkRouteConfig, owner: Connection | None) -> LinkRoute:
        tree = self._trees[config.direction]
        address = tree.get(config.whole_pattern)
        if address is None:
            address = LinkAddress(config)
            tree.put(config.whole_pattern, address)
        address.routes += 1
        return LinkRoute(config, address, owner)

    def _remove(self, route: LinkRoute) -> None:
        for connection in list(route.serving):
            self._deactivate(route, connection)
        address = route.address
        address.routes -= 1
        if not address.routes:
            self._trees[address.direction].remove(address.pattern)

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
        if connection not in route.address.connections:
            route.address.connections.append(connection)
        self._tell("Activated", route, connection)

    def _deactivate(self, route: LinkRoute, connection: Connection) -> None:
        route.serving.remove(connection)
        every = (*self._routes.values(), *self._own.get(connection.number, ()))
        if not any(other.address is route.address and connection in other.serving for other in every):
            route.address.connections.remove(connection)
        self._tell("Deactivated", route, connection)

    def _tell(self, event: str, route: LinkRoute, connection: Connection) -> None:
        by_id = route.owner is not None or route.config.container_id == connection.container
        where = f"container {connection.container}" if by_id else f"connection {name_of(connection)}"
        self._log.info("ROUTER_CORE", f"Link Route {event} '{route.config.name}' on {where}")
