"""Paths: the vectors of inter-router.md 8, and random networks compared with a naive model."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice.router.addressing.paths import ShortestPathTrees
from sluice.supervisor.network.protocol.outputs import indexes
from sluice.supervisor.network.protocol.paths import compute

LINE = {"A": {"B": 1}, "B": {"A": 1, "C": 1}, "C": {"B": 1}}
DIAMOND = {"A": {"B": 1, "C": 1}, "B": {"A": 1, "D": 1}, "C": {"A": 1, "D": 1}, "D": {"B": 1, "C": 1}}
DETOUR = {"A": {"B": 1, "C": 10}, "B": {"A": 1, "C": 2}, "C": {"A": 10, "B": 2}}
ASYMMETRIC = {"A": {"B": 1}, "B": {"A": 4}}
UNKNOWN = {"A": {"B": 1}, "B": {"A": 1, "C": 5}, "C": {}}
ONE_WAY = {"A": {"B": 1}, "B": {}}
OTHER_WAY: dict[str, dict[str, int]] = {"A": {}, "B": {"A": 1}}
RING = {
    "A": {"B": 1, "E": 1}, "B": {"A": 1, "C": 1}, "C": {"B": 1, "D": 1}, "D": {"C": 1, "E": 1}, "E": {"D": 1, "A": 1},
}  # fmt: skip

Links = dict[str, dict[str, int]]


def solve(links: Links, own: str) -> tuple[dict[str, tuple[str, int]], dict[str, str], int]:
    """Return (next hop and cost, valid origins as letters, radius)."""
    ids = sorted(links)
    collection = {router: tuple(peers.items()) for router, peers in links.items()}
    paths, radius = compute(own, collection, {router: 5 * at for at, router in enumerate(ids)})
    origins = {to: "".join(ids[bit // 5] for bit in indexes(path.valid_origins)) for to, path in paths.items()}
    return {to: (path.next_hop, path.cost) for to, path in paths.items()}, origins, radius


@pytest.mark.parametrize(
    ("links", "own", "hops", "origins", "radius"),
    [
        (LINE, "A", {"B": ("B", 1), "C": ("B", 2)}, {"B": "", "C": ""}, 2),
        (LINE, "B", {"A": ("A", 1), "C": ("C", 1)}, {"A": "C", "C": "A"}, 1),
        (DIAMOND, "A", {"B": ("B", 1), "C": ("C", 1), "D": ("B", 2)}, {"B": "C", "C": "B", "D": ""}, 2),
        (DIAMOND, "B", {"A": ("A", 1), "D": ("D", 1), "C": ("A", 2)}, {"A": "D", "C": "", "D": "A"}, 2),
        (DIAMOND, "C", {"A": ("A", 1), "D": ("D", 1), "B": ("A", 2)}, {"A": "", "B": "", "D": ""}, 2),
        (DIAMOND, "D", {"B": ("B", 1), "C": ("C", 1), "A": ("B", 2)}, {"A": "", "B": "", "C": ""}, 2),
        (DETOUR, "A", {"B": ("B", 1), "C": ("B", 3)}, {"B": "", "C": ""}, 2),
        (DETOUR, "B", {"A": ("A", 1), "C": ("C", 2)}, {"A": "C", "C": "A"}, 1),
        (ASYMMETRIC, "A", {"B": ("B", 1)}, {"B": ""}, 1),
        (ASYMMETRIC, "B", {"A": ("A", 4)}, {"A": ""}, 1),
        (UNKNOWN, "A", {"B": ("B", 1), "C": ("B", 6)}, {"B": "", "C": ""}, 2),
        (ONE_WAY, "A", {"B": ("B", 1)}, {"B": ""}, 1),
        (OTHER_WAY, "A", {}, {}, 0),
        (
            RING,
            "A",
            {"B": ("B", 1), "C": ("B", 2), "D": ("E", 2), "E": ("E", 1)},
            {"B": "E", "C": "", "D": "", "E": "B"},
            2,
        ),
    ],
)
def test_path_vectors_are_solved(
    links: Links, own: str, hops: dict[str, tuple[str, int]], origins: dict[str, str], radius: int
) -> None:
    assert solve(links, own) == (hops, origins, radius)


def naive_tree(links: Links, root: str) -> tuple[dict[str, int], dict[str, list[str]]]:
    """Return (cost, whole path), by relaxing edges until nothing changes. Ties are broken as specified: the first
    settled node wins."""
    costs = {root: 0}
    changed = True
    while changed:
        changed = False
        for here in list(costs):
            for peer, cost in links[here].items():
                if peer in links and costs[here] + cost < costs.get(peer, 2**60):
                    costs[peer] = costs[here] + cost
                    changed = True
    before = {
        node: min((costs[peer], peer) for peer in costs if links[peer].get(node, 2**60) + costs[peer] == costs[node])[1]
        for node in costs
        if node != root
    }
    paths = {root: [root]}
    for node in sorted(costs, key=lambda router: costs[router]):
        if node != root:
            paths[node] = [*paths[before[node]], node]
    return costs, paths


def naive_solution(links: Links, own: str) -> tuple[dict[str, tuple[str, int]], dict[str, str], int]:
    costs, paths = naive_tree(links, own)
    trees = {root: naive_tree(links, root)[1] for root in costs if root != own}
    origins = {
        to: "".join(root for root in sorted(trees) if root != to and own in trees[root].get(to, [])[1:-1])
        for to in costs
        if to != own
    }
    hops = {to: (paths[to][1], costs[to]) for to in costs if to != own}
    return hops, origins, max(len(path) - 1 for path in paths.values())


@st.composite
def networks(draw: st.DrawFn) -> Links:
    size = draw(st.integers(1, 9))
    ids = "ABCDEFGHI"[:size]
    pairs = [(a, b) for a in ids for b in ids if a != b]
    edges = draw(st.dictionaries(st.sampled_from(pairs), st.integers(1, 3), max_size=30)) if pairs else {}
    links: Links = {router: {} for router in ids}
    for (a, b), cost in edges.items():
        links[a][b] = cost
        if draw(st.booleans()):
            links[b][a] = cost
    return links


@settings(max_examples=300, deadline=None)
@given(networks())
def test_random_network_paths_match_naive_model(links: Links) -> None:
    for own in links:
        assert solve(links, own) == naive_solution(links, own)


@pytest.mark.parametrize("edges", [[[(1, 1)]], [[(0, 0)]], [[(-1, 1)]], [[(0, 2**31)]]])
def test_invalid_edges_are_refused(edges: list[list[tuple[int, int]]]) -> None:
    with pytest.raises(ValueError, match="edge from 0"):
        ShortestPathTrees(edges)


def test_invalid_tree_arguments_are_refused() -> None:
    trees = ShortestPathTrees([[], []])
    with pytest.raises(IndexError):
        trees.paths(2)
    with pytest.raises(IndexError):
        trees.valid_origins(0, [1])
    with pytest.raises(ValueError, match="bit"):
        trees.valid_origins(0, [1, -1])
    with pytest.raises(ValueError, match="nodes"):
        ShortestPathTrees([[] for _ in range(20000)])
