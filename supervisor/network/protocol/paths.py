"""Computation of paths from link states: next hops, costs, valid origins and the radius (inter-router.md 8)."""

from collections.abc import Mapping
from typing import NamedTuple

from sluice.router.addressing.paths import ShortestPathTrees

Edges = tuple[tuple[str, int], ...]  # neighbours of a router and the costs of the links to them


class RouterPath(NamedTuple):
    """Path to a router. next_hop: id of the first router on it. valid_origins: a mask."""

    next_hop: str
    cost: int
    valid_origins: int


def compute(own: str, collection: Mapping[str, Edges], bits: Mapping[str, int]) -> tuple[dict[str, RouterPath], int]:
    """Return (path to each reachable router, radius).

    collection: link states of all known routers, including `own`; neighbours that are not in it are unreachable. bits:
    bit of each router in the masks of valid origins.
    """
    ids = sorted(collection)
    numbers = {router: number for number, router in enumerate(ids)}
    # An unknown peer has no edges.
    trees = ShortestPathTrees(
        [[(numbers[peer], cost) for peer, cost in collection[router] if peer in numbers] for router in ids]
    )
    number = numbers[own]
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
