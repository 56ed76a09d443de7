"""Neighbours and control links: the local link state, and instances of neighbours."""

import pytest

from sluice.supervisor.network.protocol.damping import Damping
from sluice.supervisor.network.protocol.neighbour_table import ControlLink, Neighbour, NeighbourTable
from sluice.supervisor.network.protocol.timers import Timers


@pytest.fixture
def table() -> NeighbourTable:
    return NeighbourTable()


def neighbour(table: NeighbourTable, router_id: str, instance: int, cost: int = 1) -> Neighbour:
    """Return a new neighbour, which is not announced."""
    made = table.known[router_id] = Neighbour(router_id, Damping(Timers()))
    made.instance, made.cost = instance, cost
    return made


def announce(table: NeighbourTable, made: Neighbour) -> None:
    made.announced = True
    table.announced[made.id] = made


def test_link_state_has_announced_neighbours_in_their_order(table: NeighbourTable) -> None:
    late, early = neighbour(table, "B", 1, cost=3), neighbour(table, "C", 1)
    neighbour(table, "D", 1)
    announce(table, early)
    announce(table, late)
    assert table.edges() == (("C", 1), ("B", 3))


def test_instance_is_known_of_announced_and_held_neighbours_only(table: NeighbourTable) -> None:
    announce(table, neighbour(table, "announced", 1))
    neighbour(table, "held", 2)
    table.held.add("held")
    neighbour(table, "lost", 3)
    names = ("announced", "held", "lost", "unknown")
    assert [table.instance_of(name) for name in names] == [1, 2, None, None]


def test_links_to_dispatch_routers_count_before_they_have_a_neighbour(table: NeighbourTable) -> None:
    table.links[1] = ControlLink(1, 1, True, None)
    assert not table.has_links_to_1_19()
    table.links[2] = ControlLink(2, 1, False, None)
    assert table.has_links_to_1_19()
