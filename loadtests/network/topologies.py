"""Topologies: connections of routers, with their costs."""

import random
from collections.abc import Callable
from typing import Final

Pair = tuple[int, int]  # two routers, the lower number first
Edges = dict[Pair, int]  # costs of connections


def ring(size: int, rng: random.Random) -> Edges:
    """Connect each router with the next, all at cost 1."""
    return {(min(a, b), max(a, b)): 1 for a in range(size) if (b := (a + 1) % size) != a}


def tree(size: int, rng: random.Random) -> Edges:
    """Connect each router with an earlier one."""
    return {(rng.randrange(router), router): rng.randint(1, 5) for router in range(1, size)}


def mesh(size: int, rng: random.Random) -> Edges:
    """Connect a grid whose edges meet, each router with four others, all at cost 1. The last row may be incomplete."""
    width = max(2, round(size**0.5))
    edges: Edges = {}
    for router in range(size):
        right = router + 1 if (router + 1) % width and router + 1 < size else router - router % width
        below = router + width if router + width < size else router % width
        for other in (right, below):
            if other != router:
                edges[min(router, other), max(router, other)] = 1
    return edges


def scattered(size: int, rng: random.Random) -> Edges:
    """Connect a tree and add as many connections again, at costs 1 to 10: four neighbours on average."""
    edges = {pair: rng.randint(1, 10) for pair in tree(size, rng)}
    for _ in range(size if size > 2 else 0):
        a, b = sorted(rng.sample(range(size), 2))
        edges[a, b] = rng.randint(1, 10)
    return edges


def full(size: int, rng: random.Random) -> Edges:
    """Connect each router with all others; for small networks."""
    return {(a, b): rng.randint(1, 3) for b in range(size) for a in range(b)}


TOPOLOGIES: Final[dict[str, Callable[[int, random.Random], Edges]]] = {
    "ring": ring,
    "mesh": mesh,
    "tree": tree,
    "random": scattered,
    "full": full,
}
