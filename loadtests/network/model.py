"""Expected state of a network, computed naively from the connections that are up."""

import heapq
from collections.abc import Mapping

Graph = Mapping[str, Mapping[str, int]]  # live router -> routers connected to it, with the lowest cost


def distances(graph: Graph, root: str) -> dict[str, int]:
    """Return the cost of the cheapest path from `root` to each reachable router, `root` included."""
    found: dict[str, int] = {}
    open_ways = [(0, root)]
    while open_ways:
        cost, router = heapq.heappop(open_ways)
        if router in found:
            continue
        found[router] = cost
        for peer, price in graph[router].items():
            if peer not in found:
                heapq.heappush(open_ways, (cost + price, peer))
    return found
