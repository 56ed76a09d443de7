"""The target of a routed link: a container here, or the next hop towards a router with containers.

No input or output here. brokers-and-edge.md 5.2, inter-router.md 12; decision 0012. Of all patterns that match, of this
router and of others, only the best counts. Containers here come before those of other routers; other routers take turns
in the order of their indexes, whatever the cost.

A link from another router does not go back to a router that it has passed: between Sluice routers it carries their ids
(`route`), and the id of the router that the first one chose. A link from a router of Dispatch 1.19 has no route;
`pairs` detects its loops.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from router.addressing.pattern import PatternTree
from router.control.messages import Attach
from supervisor.connections.connections import Connection
from supervisor.linkroutes.local import LinkAddress, LinkRoutes
from supervisor.linkroutes.remote import RemoteLinkRoutes, RemotePattern

# Number of an inter-router connection -> the connection, and whether its peer is Sluice; None: it is gone.
RouterOf = Callable[[int], tuple[Connection, bool] | None]


def no_router(number: int) -> None:
    """The RouterOf of a router without network."""


class Network(Protocol):
    """Announcements of other routers, and the next hops to them."""

    @property
    def link_routes(self) -> RemoteLinkRoutes:
        """What they have announced."""

    def id_of(self, index: int) -> str | None:
        """The id of a router."""

    def links_of(self, index: int) -> tuple[int, ...]:
        """Numbers of the connections to the next hop of a router; none: it cannot be reached."""


class NextHop(NamedTuple):
    """The next router on the path of a link."""

    ours: bool  # it is Sluice: the whole attach is passed on
    route: list[str]  # ids: of the router that has the container, then of those passed, this one last


class Match(NamedTuple):
    """The link routes of one pattern: local, remote or both."""

    local: LinkAddress | None
    remote: RemotePattern | None


class Target(NamedTuple):
    """The target of a link."""

    connection: Connection
    address: LinkAddress | None  # of the container; None: of a router
    hop: NextHop | None  # None: the container is here


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
        """The link routes that match a normalised address; None: no link route."""
        local = self._link_routes.match(direction, name)
        remote = None if self._network is None else self._network.link_routes.find(direction, name)
        if local is None or remote is None:
            return None if local is None and remote is None else Match(local, remote)
        both: PatternTree[Match] = PatternTree()
        both.put(local.pattern, Match(local, None))
        same = both.get(remote.pattern) is not None
        both.put(remote.pattern, Match(local if same else None, remote))
        return both.match(name)

    def choose(self, match: Match, message: Attach, from_router: bool) -> Target | None:
        """The target for the link of an `attach`; None: none can be reached.

        from_router: a router attaches the link, not a client.
        """
        container = None if match.local is None else match.local.choose()
        if container is not None:
            return Target(container, match.local, None)
        return None if match.remote is None else self._towards(match.remote, message, from_router)

    def _towards(self, pattern: RemotePattern, message: Attach, from_router: bool) -> Target | None:
        """The next hop to the router that was chosen before, else to the next in turn."""
        network = self._network
        assert network is not None
        chosen, *passed = message.route or ("",)
        barred = {self._id, *passed}
        if from_router:
            came_by = self._router_of(message.conn)
            if came_by is None or self._id in passed:
                return None
            barred.add(came_by[0].container or "")
        ids = {index: network.id_of(index) for index in pattern.by_turn()}
        for index in sorted(ids, key=lambda index: ids[index] != chosen):
            destination = ids[index]
            if destination is None or destination in barred:
                continue
            hop = self._next_hop(network.links_of(index), message.conn)
            if hop is None or hop[0].container in barred:
                continue
            if destination != chosen:
                pattern.last = index
            return Target(hop[0], None, NextHop(hop[1], [destination, *passed, self._id]))
        return None

    def _next_hop(self, links: tuple[int, ...], conn: int) -> tuple[Connection, bool] | None:
        """One of several connections to a router: always the same for what came by connection `conn`.

        So the links of a transaction keep their order.
        """
        for number in sorted(links, key=lambda number: hash((number, conn))):
            found = self._router_of(number)
            if found is not None and not found[0].closing:
                return found
        return None
