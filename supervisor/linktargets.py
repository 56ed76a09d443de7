"""Where a routed link goes: to a container that is here, or to the next router on the way to one that has containers.

No input or output here. brokers-and-edge.md 5.2, inter-router.md 12; decision 0012. Of all patterns of link routes that
match, those of this router and those that other routers have announced, the best counts alone. Containers that are here
come before those of other routers; of those the routers have their turns in the order of their indexes, whatever the
way to them costs.

A link that came from another router does not go back there, nor to a router that it has come through: between our own
routers it carries their ids (`route`), and the id of the router that the first one has chosen for it. What comes from a
router of Dispatch 1.19 carries nothing; `linkpairs` counts its rounds.
"""
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, Protocol

from router.routing.pattern import PatternTree
from supervisor.connections import Connection
from supervisor.linkroutes import LinkAddress, LinkRoutes
from supervisor.remote_routes import RemoteLinkRoutes, RemotePattern

INTER_ROUTER: Final = "inter-router"
# From the number of an open inter-router connection: itself, and whether its other end is Sluice. None: it is gone.
RouterOf = Callable[[int], tuple[Connection, bool] | None]


def no_router(number: int) -> None:
    """In the place of a RouterOf where there are no other routers."""


class Network(Protocol):
    """What other routers have announced, and the ways to them."""

    @property
    def link_routes(self) -> RemoteLinkRoutes:
        """What they have announced."""

    def id_of(self, index: int) -> str | None:
        """The id of a router."""

    def links_of(self, index: int) -> tuple[int, ...]:
        """Numbers of the connections to the next hop of a router; none: there is no way."""


class Hop(NamedTuple):
    """The next router on the way of a link."""

    ours: bool  # it is Sluice: everything about the link goes there
    route: list[str]  # ids: of the router that has the container, then of those passed, this one last


class Match(NamedTuple):
    """The link routes of one pattern; at least one of both is there."""

    local: LinkAddress | None
    remote: RemotePattern | None


class Target(NamedTuple):
    """Where a link goes."""

    connection: Connection
    address: LinkAddress | None  # of the container; None: of a router
    hop: Hop | None  # None: the container is here


class Targets:
    """Finds targets. Owner: the core."""

    def __init__(
        self,
        router_id: str,
        link_routes: LinkRoutes,
        network: Network | None = None,
        router_of: RouterOf = no_router,
    ) -> None:
        self._id = router_id
        self._link_routes = link_routes
        self._network = network
        self._router_of = router_of

    def match(self, direction: str, name: str) -> Match | None:
        """The link routes that a normalised address belongs to; None: it is for others to route."""
        local = self._link_routes.match(direction, name)
        remote = None if self._network is None else self._network.link_routes.find(direction, name)
        if local is None or remote is None:
            return None if local is None and remote is None else Match(local, remote)
        both: PatternTree[Match] = PatternTree()
        both.put(local.pattern, Match(local, None))
        same = both.get(remote.pattern) is not None
        both.put(remote.pattern, Match(local if same else None, remote))
        return both.match(name)

    def choose(self, match: Match, message: Mapping[str, Any], from_router: bool) -> Target | None:
        """Where the link of an `attach` goes, None: nobody can be reached.

        from_router: a router attaches the link, not a client.
        """
        container = None if match.local is None else match.local.choose()
        if container is not None:
            return Target(container, match.local, None)
        return None if match.remote is None else self._towards(match.remote, message, from_router)

    def _towards(self, pattern: RemotePattern, message: Mapping[str, Any], from_router: bool) -> Target | None:
        """The way to the router that was chosen before, else to that whose turn it is."""
        network = self._network
        assert network is not None
        chosen, *passed = message.get("route") or ("",)
        barred = {self._id, *passed}
        if from_router:
            came_by = self._router_of(message["conn"])
            if came_by is None or self._id in passed:
                return None
            barred.add(came_by[0].container or "")
        ids = {index: network.id_of(index) for index in pattern.by_turn()}
        for index in sorted(ids, key=lambda index: ids[index] != chosen):
            destination = ids[index]
            if destination is None or destination in barred:
                continue
            hop = self._way(network.links_of(index), message["conn"])
            if hop is None or hop[0].container in barred:
                continue
            if destination != chosen:
                pattern.last = index
            return Target(hop[0], None, Hop(hop[1], [destination, *passed, self._id]))
        return None

    def _way(self, links: tuple[int, ...], conn: int) -> tuple[Connection, bool] | None:
        """One of several connections to a router: always the same for what came by connection `conn`.

        So the links of a transaction keep their order.
        """
        for number in sorted(links, key=lambda number: hash((number, conn))):
            found = self._router_of(number)
            if found is not None and not found[0].closing:
                return found
        return None
