"""Computation of paths from link states: next hops, costs, valid origins and the radius (inter-router.md 8)."""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Final, NamedTuple

from router.addressing.paths import ShortestPathTrees

# Topologies whose trees are kept, for links that are lost and return. Each takes 4 bytes for each pair of routers: 4
# MiB in all for 512 routers.
KEPT: Final = 4

Edges = tuple[tuple[str, int], ...]  # neighbours of a router and the costs of the links to them
Topology = tuple[tuple[str, Edges], ...]


class RouterPath(NamedTuple):
    """Path to a router. next_hop: id of the first router on it. valid_origins: a mask."""

    next_hop: str
    cost: int
    valid_origins: int


class TreeCache:
    """Trees of recent topologies. Owner: one engine; engines of a simulated network share a cache."""

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self._trees: OrderedDict[Topology, ShortestPathTrees] = OrderedDict()

    def trees(self, topology: Topology) -> ShortestPathTrees:
        """Return the trees of a topology. Nodes are numbered by their position in `topology`."""
        found = self._trees.get(topology)
        if found is not None:
            self._trees.move_to_end(topology)
            return found
        numbers = {entry[0]: number for number, entry in enumerate(topology)}
        # An unknown peer has no edges.
        made = ShortestPathTrees(
            [[(numbers[peer], cost) for peer, cost in peers if peer in numbers] for _, peers in topology]
        )
        self._trees[topology] = made
        if len(self._trees) > self._kept:
            self._trees.popitem(last=False)
        return made


def compute(
    own: str, collection: Mapping[str, Edges], bits: Mapping[str, int], cache: TreeCache
) -> tuple[dict[str, RouterPath], int]:
    """Return (path to each reachable router, radius).

    collection: link states of all known routers, including `own`; neighbours that are not in it are unreachable. bits:
    bit of each router in the masks of valid origins.
    """
    ids = sorted(collection)
    trees = cache.trees(tuple((router, collection[router]) for router in ids))
    number = ids.index(own)
    costs, hops, ways = trees.paths(number)
    around = {router for router, edges in collection.items() for peer, _ in edges if peer == own}
    around.update(peer for peer, _ in collection[own])
    if len(around) > 1:
        origins = trees.valid_origins(number, [bits[router] for router in ids])
    else:
        origins = [0] * len(ids)  # a leaf of the network: no path leads through it
    found = {
        router: RouterPath(ids[ways[at]], costs[at], origins[at])
        for at, router in enumerate(ids)
        if costs[at] >= 0 and at != number
    }
    return found, max(hops)
