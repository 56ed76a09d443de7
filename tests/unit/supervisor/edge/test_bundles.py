"""Bundles of edge connections: their numbers, costs and refusals, and the features that a peer announces."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sluice.router.amqp.errors import NOT_ALLOWED
from sluice.router.config.load import load_text
from sluice.router.control.edge_properties import BETWEEN_EDGES, EDGE, UPLINKS
from sluice.supervisor.addresses.consumer_edge import NOT_ON_EDGE
from sluice.supervisor.connections.admission import Deny
from sluice.supervisor.connections.connections import RegisteredConnection
from sluice.supervisor.edge.bundles import (
    COST,
    ITSELF,
    MOST_MARK,
    NO_EDGE,
    Bundles,
    has_several_uplinks,
    reports_all_addresses,
    supports_bundles,
    supports_early_senders,
    supports_lookup_batches,
    supports_several_uplinks,
)
from tests.unit.supervisor.edge.edge_router import SilentInitiator

INTERIOR = """
router {
    id: A
    mode: interior
}
listener {
    port: 0
    role: edge
}
listener {
    port: 1
}
"""
EDGE_ROUTER = """
router {
    id: E
    mode: edge
}
listener {
    port: 0
    role: inter-edge
    cost: 5
}
connector {
    port: 1
    role: edge
    cost: 3
}
"""
INTERIOR_LISTENERS = load_text("router.conf", INTERIOR).listeners
EDGE_CONFIGURATION = load_text("router.conf", EDGE_ROUTER)
MARK = "mark of this router"


@pytest.fixture
def bundles() -> Bundles:
    return Bundles(MARK)


def from_edge(number: int, container: str = "E", **properties: Any) -> RegisteredConnection:
    """Return a connection from an edge router to an interior router."""
    made = RegisteredConnection(number, INTERIOR_LISTENERS[0], "l", "p", "key")
    made.container, made.properties = container, properties
    return made


def to_interior(number: int, **properties: Any) -> RegisteredConnection:
    """Return a connection that this edge router has opened to an interior router."""
    made = RegisteredConnection(number, EDGE_CONFIGURATION.connectors[0], "l", "p", "key")
    made.initiator, made.container, made.properties = SilentInitiator(), "A", properties
    return made


def from_peer(number: int, **properties: Any) -> RegisteredConnection:
    """Return a connection between two edge routers."""
    made = RegisteredConnection(number, EDGE_CONFIGURATION.listeners[0], "l", "p", "key")
    made.container, made.properties = "F", {BETWEEN_EDGES: 1, EDGE: "f", **properties}
    return made


def test_connections_with_same_container_and_mark_are_bundle(bundles: Bundles) -> None:
    ways = [bundles.opened(from_edge(number, **{EDGE: "m"})) for number in (7, 8, 9)]
    assert [way.edge for way in ways] == [7, 7, 7]


def test_restarted_edge_router_begins_new_bundle(bundles: Bundles) -> None:
    """An edge router has another mark after each start; its old connections may not be closed yet."""
    bundles.opened(from_edge(7, **{EDGE: "m"}))
    assert bundles.opened(from_edge(8, **{EDGE: "later"})).edge == 8


@pytest.mark.parametrize("properties", [{}, {EDGE: 4}], ids=["none", "number"])
def test_connections_without_mark_are_no_bundle(bundles: Bundles, properties: dict[str, Any]) -> None:
    assert [bundles.opened(from_edge(number, **properties)).edge for number in (7, 8)] == [7, 8]


def test_bundle_keeps_number_until_last_connection_closes(bundles: Bundles) -> None:
    first, second = (from_edge(number, **{EDGE: "m"}) for number in (7, 8))
    bundles.opened(first)
    bundles.opened(second)
    bundles.closed(first)
    assert bundles.opened(from_edge(9, **{EDGE: "m"})).edge == 7
    bundles.closed(second)
    bundles.closed(from_edge(9, **{EDGE: "m"}))
    assert bundles.opened(from_edge(10, **{EDGE: "m"})).edge == 10


def test_refused_connection_leaves_bundle_unchanged(bundles: Bundles) -> None:
    """Connections that never opened are closed, too."""
    bundles.opened(from_edge(7, **{EDGE: "m"}))
    bundles.closed(from_edge(8, **{EDGE: "m"}))
    assert bundles.opened(from_edge(9, **{EDGE: "m"})).edge == 7


def test_interior_routers_form_one_bundle_at_edge_router(bundles: Bundles) -> None:
    assert [bundles.opened(each).edge for each in (to_interior(7), from_peer(8), to_interior(9))] == [7, 7, 7]


def test_client_is_on_no_edge(bundles: Bundles) -> None:
    client = RegisteredConnection(7, INTERIOR_LISTENERS[1], "l", "p", "key")
    assert bundles.opened(client) == NOT_ON_EDGE


def test_consumers_at_interior_router_cost_more_than_local_ones(bundles: Bundles) -> None:
    assert bundles.opened(to_interior(7)).cost == EDGE_CONFIGURATION.connectors[0].cost + 1
    assert bundles.opened(from_edge(8)).cost == 0


@pytest.mark.parametrize(
    ("announced", "cost"),
    [(9, 9), (2, 5), (-1, 5), ("9", 5), (True, 5), (1 << 40, 0x00FFFFFF)],
    ids=["higher", "lower", "negative", "text", "flag", "excessive"],
)
def test_cost_between_edges_is_higher_of_both_ends(bundles: Bundles, announced: object, cost: int) -> None:
    way = bundles.opened(from_peer(7, **{COST: announced}))
    assert (way.cost, way.peer) == (cost, "f")


@pytest.mark.parametrize(
    "properties",
    [
        {BETWEEN_EDGES: 0},
        {BETWEEN_EDGES: True},
        {BETWEEN_EDGES: "1"},
        {EDGE: ""},
        {EDGE: 4},
        {EDGE: "m" * (MOST_MARK + 1)},
    ],
    ids=["version 0", "flag", "text", "no mark", "number", "long mark"],
)
def test_inter_edge_connection_needs_edge_router(bundles: Bundles, properties: dict[str, Any]) -> None:
    assert bundles.unfit(from_peer(7, **properties)) == Deny(NOT_ALLOWED, NO_EDGE)


def test_inter_edge_connection_to_itself_is_refused(bundles: Bundles) -> None:
    assert bundles.unfit(from_peer(7, **{EDGE: MARK})) == Deny(NOT_ALLOWED, ITSELF)
    assert bundles.unfit(from_peer(7, **{EDGE: "m" * MOST_MARK})) is None


def test_connection_of_other_role_is_fit_without_properties(bundles: Bundles) -> None:
    assert bundles.unfit(from_edge(7)) is bundles.unfit(to_interior(8)) is None


@pytest.mark.parametrize(
    ("supports", "version"),
    [
        (supports_bundles, 1),
        (supports_several_uplinks, 2),
        (supports_early_senders, 3),
        (reports_all_addresses, 4),
        (supports_lookup_batches, 4),
    ],
)
def test_feature_is_supported_from_its_version(supports: Callable[[RegisteredConnection], bool], version: int) -> None:
    assert [supports(to_interior(7, **{EDGE: announced})) for announced in (version - 1, version, 99)] == [
        False,
        True,
        True,
    ]
    assert not supports(to_interior(7, **{EDGE: "a mark"})), "an edge router at the other end"
    assert not supports(to_interior(7)), "Dispatch"


def test_several_uplinks_are_announced_by_edge_router_only() -> None:
    assert has_several_uplinks(from_edge(7, "E", **{UPLINKS: True}))
    assert not has_several_uplinks(from_edge(7, "E", **{UPLINKS: 1})), "neither yes nor no"
    assert not has_several_uplinks(from_edge(7))
    assert not has_several_uplinks(to_interior(7, **{UPLINKS: True}))
