"""What a network should have come to, computed anew and naively from what is really connected."""

import heapq
from collections.abc import Mapping

Graph = Mapping[str, Mapping[str, int]]  # live router -> routers connected to it, with the lowest cost


def distances(graph: Graph, root: str) -> dict[str, int]:
    """Cost of the cheapest way from `root` to all that it reaches, itself included."""
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
