"""Target of a routed link: a local container, or the next hop towards a router with containers.

Does no input or output. brokers-and-edge.md 5.2, inter-router.md 12; decision 0012. Only the best of all matching
patterns counts, whether this router or others announced it. Local containers take precedence over those of other
routers. Other routers are chosen in rotation by index, whatever their cost.

A link from another router never returns to a router that it has passed. Between Sluice routers the attach carries the
ids of the passed routers (`route`), and the id of the destination that the first router chose. A link from a router of
Dispatch 1.19 carries no route; `pairs` detects its loops.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from sluice.router.addressing.pattern import PatternTree
from sluice.router.control.messages import Attach
from sluice.supervisor.connections.connections import RegisteredConnection
from sluice.supervisor.linkroutes.local import LinkAddress, LocalLinkRoutes
from sluice.supervisor.linkroutes.remote import RemoteLinkRoutes, RemotePattern

# Function from the number of an inter-router connection to the connection and whether its peer is Sluice. Returns None
# if the connection has ended.
RouterOf = Callable[[int], tuple[RegisteredConnection, bool] | None]


def no_router(number: int) -> None:
    """Return None for any connection: the RouterOf of a router without a network."""


class NetworkLinkRoutes(Protocol):
    """Link routes announced by other routers, and the next hops towards these routers."""

    @property
    def link_routes(self) -> RemoteLinkRoutes:
        """Return the link routes that other routers have announced."""

    def id_of(self, index: int) -> str | None:
        """Return the id of a router, or None if the index is unknown."""

    def links_of(self, index: int) -> tuple[int, ...]:
        """Return the numbers of the connections to the next hop of a router; empty if the router is unreachable."""


class LinkNextHop(NamedTuple):
    """Next router on the path of a link."""

    ours: bool  # the next router is Sluice, so the whole attach is passed on
    route: list[str]  # router ids: the destination's first, then those passed, ending with this router's


class LinkRouteMatch(NamedTuple):
    """Link routes of one pattern: local, remote or both."""

    local: LinkAddress | None
    remote: RemotePattern | None


class LinkTarget(NamedTuple):
    """Target of a link."""

    connection: RegisteredConnection
    address: LinkAddress | None  # link-route address of the container; None if the target is a router
    hop: LinkNextHop | None  # None: the container is connected to this router


class LinkTargets:
    """Choice of the target for a routed link. Owner: the core. inter-router-protocol.md 7."""

    def __init__(
        self,
        router_id: str,
        link_routes: LocalLinkRoutes,
        network: NetworkLinkRoutes | None = None,
        router_of: RouterOf = no_router,
    ) -> None:
        self._id = router_id
        self._link_routes = link_routes
        self._network = network
        self._router_of = router_of

    def match(self, direction: str, name: str) -> LinkRouteMatch | None:
        """Return the link routes that best match a normalised address, or None."""
        local = self._link_routes.match(direction, name)
        remote = None if self._network is None else self._network.link_routes.find(direction, name)
        if local is None or remote is None:
            return None if local is None and remote is None else LinkRouteMatch(local, remote)
        both: PatternTree[LinkRouteMatch] = PatternTree()
        both.put(local.pattern, LinkRouteMatch(local, None))
        same = both.get(remote.pattern) is not None
        both.put(remote.pattern, LinkRouteMatch(local if same else None, remote))
        return both.match(name)

    def watch_patterns(self, changed: Callable[[], object]) -> None:
        """Call `changed` whenever the patterns of `match` have changed."""
        self._link_routes.watch_patterns(changed)
        if self._network is not None:
            self._network.link_routes.watch_patterns(changed)

    def choose(self, match: LinkRouteMatch, message: Attach, from_router: bool) -> LinkTarget | None:
        """Return the target for the link of an `attach`, or None if no container can be reached.

        from_router: a router attaches the link, not a client.
        """
        container = None if match.local is None else match.local.choose()
        if container is not None:
            return LinkTarget(container, match.local, None)
        return None if match.remote is None else self._towards(match.remote, message, from_router)

    def _towards(self, pattern: RemotePattern, message: Attach, from_router: bool) -> LinkTarget | None:
        """Return the next hop to the router that an earlier router chose, or else to the next reachable one in
        rotation.
        """
        network = self._network
        assert network is not None
        chosen, *passed = message.route or ("",)
        barred = {self._id, *passed}
        if from_router:
            came_by = self._router_of(message.conn)
            if came_by is None or self._id in passed:
                return None
            barred.add(came_by[0].container or "")
        ids = {index: network.id_of(index) for index in pattern.in_rotation()}
        for index in sorted(ids, key=lambda index: ids[index] != chosen):
            destination = ids[index]
            if destination is None or destination in barred:
                continue
            hop = self._next_hop(network.links_of(index), message.conn)
            if hop is None or hop[0].container in barred:
                continue
            if destination != chosen:
                pattern.last = index
            return LinkTarget(hop[0], None, LinkNextHop(hop[1], [destination, *passed, self._id]))
        return None

    def _next_hop(self, links: tuple[int, ...], conn: int) -> tuple[RegisteredConnection, bool] | None:
        """Return one of several connections to a router, always the same one for links of the connection `conn`.

        This keeps the order of links that belong to one transaction.
        """
        for number in sorted(links, key=lambda number: hash((number, conn))):
            found = self._router_of(number)
            if found is not None and not found[0].closing:
                return found
        return None
