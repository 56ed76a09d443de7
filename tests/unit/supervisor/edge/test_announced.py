"""Addresses that an edge router announces: by scope, kind, and capability of their phase."""

from __future__ import annotations

import pytest

from sluice.router.addressing.address import LOCAL, MOBILE, key
from sluice.supervisor.edge.announced import AnnouncedAddresses, PeerAddresses, is_announceable
from sluice.supervisor.links.attach import TRACKING
from tests.unit.supervisor.edge.edge_router import EdgeRouter

SETTINGS = """
address {
    prefix: network
    scope: network
}
address {
    prefix: site
    scope: site
}
address {
    prefix: near
    scope: local
}
address {
    prefix: way
    ingressPhase: 1
    egressPhase: 3
}
exchange {
    name: x
    address: exchanged
}
"""


@pytest.fixture
def edge() -> EdgeRouter:
    return EdgeRouter(SETTINGS)


@pytest.fixture
def interior(edge: EdgeRouter) -> AnnouncedAddresses:
    """Addresses for interior routers."""
    return AnnouncedAddresses(edge.core.table, edge.core.settings)


@pytest.fixture
def peers(edge: EdgeRouter) -> PeerAddresses:
    """Addresses for other edge routers."""
    return PeerAddresses(edge.core.table, edge.core.settings)


@pytest.mark.parametrize(
    ("name", "to_interior", "to_peers"),
    [("network", True, True), ("other", True, True), ("site", False, True), ("near", False, False)],
)
def test_scope_decides_which_routers_know_address(
    interior: AnnouncedAddresses, peers: PeerAddresses, name: str, to_interior: bool, to_peers: bool
) -> None:
    address = key(MOBILE, name)
    assert (address in interior, address in peers) == (to_interior, to_peers)


def test_exchange_is_announced_to_interior_routers_only(interior: AnnouncedAddresses, peers: PeerAddresses) -> None:
    address = key(MOBILE, "exchanged")
    assert (address in interior, address in peers) == (True, False)


@pytest.mark.parametrize("address", [key(LOCAL, "a"), key(MOBILE, "$management"), key(MOBILE, TRACKING)])
def test_addresses_that_each_router_has_itself_are_not_announced(
    interior: AnnouncedAddresses, peers: PeerAddresses, address: str
) -> None:
    assert not is_announceable(address)
    assert address not in interior
    assert address not in peers


def test_address_of_router_itself_is_not_announced(edge: EdgeRouter, interior: AnnouncedAddresses) -> None:
    edge.core.in_process.open(key(MOBILE, "own"))
    assert key(MOBILE, "own") not in interior


@pytest.mark.parametrize(
    ("phase", "outgoing", "capability"),
    [
        ("1", True, None),
        ("3", False, None),
        ("2", True, "qd.waypoint.2"),
        ("2", False, "qd.waypoint.3"),
        ("F", True, "qd.fallback"),
        ("F", False, "qd.fallback"),
    ],
)
def test_capability_names_phase_unless_default(
    interior: AnnouncedAddresses, phase: str, outgoing: bool, capability: str | None
) -> None:
    assert interior.capability(f"M{phase}way", outgoing=outgoing) == capability
