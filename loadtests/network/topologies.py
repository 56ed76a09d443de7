"""Shapes of networks: which routers are connected, at what cost."""

import random
from collections.abc import Callable
from typing import Final

Pair = tuple[int, int]  # two routers, the lower number first
Edges = dict[Pair, int]  # with the cost of their connection


def ring(size: int, rng: random.Random) -> Edges:
    """Each with the next, all of cost 1."""
    return {(min(a, b), max(a, b)): 1 for a in range(size) if (b := (a + 1) % size) != a}


def tree(size: int, rng: random.Random) -> Edges:
    """Each with an earlier one."""
    return {(rng.randrange(router), router): rng.randint(1, 5) for router in range(1, size)}


def mesh(size: int, rng: random.Random) -> Edges:
    """A grid whose edges meet, each with four others, all of cost 1; the last ones as many as there are."""
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
    """A tree and as many connections again, costs 1 to 10: four neighbours on average."""
    edges = {pair: rng.randint(1, 10) for pair in tree(size, rng)}
    for _ in range(size if size > 2 else 0):
        a, b = sorted(rng.sample(range(size), 2))
        edges[a, b] = rng.randint(1, 10)
    return edges


def full(size: int, rng: random.Random) -> Edges:
    """Each with all others; for small networks."""
    return {(a, b): rng.randint(1, 3) for b in range(size) for a in range(b)}


TOPOLOGIES: Final[dict[str, Callable[[int, random.Random], Edges]]] = {
    "ring": ring,
    "mesh": mesh,
    "tree": tree,
    "random": scattered,
    "full": full,
}
