"""Consumers of edge routers with several uplinks at one interior router: which of them count there."""

from __future__ import annotations

import itertools

import pytest

from sluice.router.addressing.settings import BALANCED, DEFAULT_OVERFLOW, MULTICAST
from sluice.router.config.load import load_text
from sluice.router.control.edge_properties import UPLINKS
from sluice.supervisor.addresses.consumer_edge import ConsumerEdge
from sluice.supervisor.addresses.record import AddressRecord
from sluice.supervisor.addresses.table import AddressTable
from sluice.supervisor.connections.connections import RegisteredConnection, RegisteredLink
from sluice.supervisor.edge.messages import Precedence
from sluice.supervisor.edge.standby import NEVER, PATIENCE, Standby
from tests.unit.supervisor.journaled_table import JournaledTable

CONFIGURATION = """
router {
    id: B
    mode: interior
}
listener {
    port: 0
    role: edge
}
"""


class ReachableRouters:
    """Fake network protocol with the set of reachable routers."""

    def __init__(self) -> None:
        self.reachable: set[str] = set()
        self.path_changes = 0

    def links_to(self, router_id: str) -> tuple[int, ...]:
        return (1,) if router_id in self.reachable else ()

    def change(self, *reachable: str) -> None:
        self.reachable = set(reachable)
        self.path_changes += 1


class StandbyRouter:
    """Interior router B with an edge connection on which addresses have consumers."""

    def __init__(self) -> None:
        self.journaled = JournaledTable()
        self.table = self.journaled.table
        self.network = ReachableRouters()
        self.standby = Standby("B", self.table, self.network)
        listener = load_text("router.conf", CONFIGURATION).listeners[0]
        self.connection = RegisteredConnection(7, listener, "l", "p", "key")
        self.connection.properties = {UPLINKS: True}
        self.connection.way = ConsumerEdge(7)
        self.standby.opened(self.connection)
        self._numbers = itertools.count(1)

    def consumer(self, name: str, treatment: str = BALANCED) -> RegisteredLink:
        record = self.table.records.get(name) or self.table.create(name, treatment, None, DEFAULT_OVERFLOW)
        number = next(self._numbers)
        link = RegisteredLink(number, f"l{number}", True, number, 1, self.connection, 0)
        link.record = record
        if self.standby.begins(link, record):
            self.table.add_consumer(record, 0, number, 1, 10, ConsumerEdge(7))
        self.journaled.take_delta()
        return link

    def announce(self, *routers: str, complete: bool = True) -> bool:
        bears = self.standby.said(7, Precedence(1, routers, complete))
        self.journaled.take_delta()
        return bears

    def counts(self, link: RegisteredLink) -> bool:
        assert link.record is not None
        assert self.table.records[link.record.key] is link.record, "the record stays, used or not"
        return AddressTable.has_consumer(link.record, 0, link.slot, link.generation)


@pytest.fixture
def interior() -> StandbyRouter:
    return StandbyRouter()


def test_consumer_counts_once_precedence_is_announced(interior: StandbyRouter) -> None:
    link, temporary = interior.consumer("M0a"), interior.consumer("Ltemp.1")
    assert not interior.counts(link)
    assert interior.counts(temporary), "an address of this router alone"
    assert interior.announce("B")
    assert interior.counts(link)
    assert interior.counts(interior.consumer("M0b")), "a later consumer"
    assert interior.counts(interior.consumer("HE"))


def test_first_reachable_router_has_consumers(interior: StandbyRouter, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("sluice.supervisor.edge.standby.time.monotonic", lambda: now)
    link = interior.consumer("M0a")
    interior.network.change("A")
    assert not interior.announce("A", "B")
    interior.network.change()
    interior.standby.step()
    assert interior.counts(link), "router A is unreachable"
    interior.network.change("A")
    interior.standby.step()
    assert not interior.counts(link)
    assert interior.announce("B")
    assert not interior.announce("C"), "this router is not listed"
    assert not interior.counts(link)


def test_unreachable_router_is_waited_for(interior: StandbyRouter, monkeypatch: pytest.MonkeyPatch) -> None:
    """A router that has just started knows no others."""
    now = 100.0
    monkeypatch.setattr("sluice.supervisor.edge.standby.time.monotonic", lambda: now)
    link = interior.consumer("M0a")
    assert not interior.announce("A", "B")
    assert interior.standby.deadline == now + PATIENCE
    interior.standby.step()
    assert not interior.counts(link)
    now += PATIENCE
    interior.standby.step()
    assert interior.counts(link)
    assert interior.standby.deadline == NEVER


def test_multicast_consumers_count_after_complete_precedence(interior: StandbyRouter) -> None:
    one, multicast = interior.consumer("M0a"), interior.consumer("M0m", MULTICAST)
    assert interior.announce("B", "A", complete=False)
    assert (interior.counts(one), interior.counts(multicast)) == (True, False)
    assert interior.announce("B", "A")
    assert (interior.counts(one), interior.counts(multicast)) == (True, True)


def test_detached_link_leaves_no_record(interior: StandbyRouter) -> None:
    link = interior.consumer("M0a")
    interior.standby.dropped(link)
    assert isinstance(link.record, AddressRecord)
    interior.table.release(link.record)
    assert interior.announce("B")
    assert "M0a" not in interior.table.records
    interior.standby.closed(interior.connection)
    assert not interior.announce("B"), "the edge router is unknown"
