"""Path computation of 1.19 (inter-router.md 8), written after its description without regard for speed."""

from __future__ import annotations

from dataclasses import dataclass, field

#: Link states: router id -> its peers with the advertised costs.
Collection = dict[str, dict[str, int]]


@dataclass
class Paths:
    """Results of path computation at one router, by router id, for all reachable routers."""

    next_hops: dict[str, str] = field(default_factory=dict)
    costs: dict[str, int] = field(default_factory=dict)
    valid_origins: dict[str, list[str]] = field(default_factory=dict)
    radius: int = 0


def tree(root: str, collection: Collection) -> dict[str, tuple[int, int, str | None]]:
    """Run Dijkstra from `root`. Return router id -> (cost, hops, predecessor)."""
    graph = {one: dict(peers) for one, peers in collection.items()}
    for one, peers in collection.items():
        for peer in peers:
            graph.setdefault(peer, {})
            if peer not in collection:
                graph[peer][one] = 1
    best: dict[str, tuple[int, int, str | None]] = {root: (0, 0, None)}
    settled: set[str] = set()
    while waiting := [(cost, one) for one, (cost, _hops, _from) in best.items() if one not in settled]:
        cost, one = min(waiting)
        settled.add(one)
        for peer, step in graph.get(one, {}).items():
            if peer not in settled and (peer not in best or cost + step < best[peer][0]):
                best[peer] = (cost + step, best[one][1] + 1, one)
    return best


def _path(found: dict[str, tuple[int, int, str | None]], to: str) -> list[str]:
    """Return the routers from the root to `to`, both included."""
    path = [to]
    while (before := found[path[0]][2]) is not None:
        path.insert(0, before)
    return path


def compute(me: str, collection: Collection) -> Paths:
    """Return next hops, costs, valid origins and radius at `me`. `collection` includes its own link state."""
    mine = tree(me, collection)
    reachable = [one for one in mine if one != me]
    paths = Paths(
        next_hops={one: _path(mine, one)[1] for one in reachable},
        costs={one: mine[one][0] for one in reachable},
        valid_origins={one: [] for one in reachable},
        radius=max(hops for _cost, hops, _from in mine.values()),
    )
    for origin in reachable:
        theirs = tree(origin, collection)
        for to in reachable:
            if to != origin and to in theirs and me in _path(theirs, to)[1:-1]:
                paths.valid_origins[to].append(origin)
    for origins in paths.valid_origins.values():
        origins.sort()
    return paths
