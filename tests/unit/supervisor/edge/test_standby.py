"""Consumers of edge routers with several uplinks at one interior router: which of them count there."""

from __future__ import annotations

import itertools

import pytest

from router.addressing.settings import BALANCED, DEFAULT_OVERFLOW, MULTICAST
from router.config.load import load_text
from router.control.edge_properties import UPLINKS
from supervisor.addresses.record import Record, Way
from supervisor.addresses.table import Table
from supervisor.connections.connections import Connection, Link
from supervisor.edge.messages import Precedence
from supervisor.edge.standby import NEVER, PATIENCE, Standby

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


class Network:
    """Fake network protocol with the set of reachable routers."""

    def __init__(self) -> None:
        self.reachable: set[str] = set()
        self.path_changes = 0

    def links_to(self, router_id: str) -> tuple[int, ...]:
        return (1,) if router_id in self.reachable else ()

    def change(self, *reachable: str) -> None:
        self.reachable = set(reachable)
        self.path_changes += 1


class World:
    """Interior router B with an edge connection on which addresses have consumers."""

    def __init__(self) -> None:
        self.table = Table(100)
        self.network = Network()
        self.standby = Standby("B", self.table, self.network)
        listener = load_text("router.conf", CONFIGURATION).listeners[0]
        self.connection = Connection(7, listener, "l", "p", "key")
        self.connection.properties = {UPLINKS: True}
        self.connection.way = Way(7)
        self.standby.opened(self.connection)
        self._numbers = itertools.count(1)

    def consumer(self, name: str, treatment: str = BALANCED) -> Link:
        record = self.table.records.get(name) or self.table.create(name, treatment, None, DEFAULT_OVERFLOW)
        number = next(self._numbers)
        link = Link(number, f"l{number}", True, number, 1, self.connection, 0)
        link.record = record
        if self.standby.begins(link, record):
            self.table.add_consumer(record, 0, number, 1, 10, Way(7))
        self.table.take_delta()
        return link

    def say(self, *routers: str, complete: bool = True) -> bool:
        bears = self.standby.said(7, Precedence(1, routers, complete))
        self.table.take_delta()
        return bears

    def counts(self, link: Link) -> bool:
        assert link.record is not None
        assert self.table.records[link.record.key] is link.record, "it stays, used or not"
        return Table.has_consumer(link.record, 0, link.slot, link.generation)


@pytest.fixture
def world() -> World:
    return World()


def test_a_consumer_waits_until_the_edge_router_has_said_more(world: World) -> None:
    link, temporary = world.consumer("M0a"), world.consumer("Ltemp.1")
    assert not world.counts(link)
    assert world.counts(temporary), "an address of this router alone"
    assert world.say("B")
    assert world.counts(link)
    assert world.counts(world.consumer("M0b")), "one that comes later"
    assert world.counts(world.consumer("HE"))


def test_the_first_one_that_can_be_reached_has_them(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("supervisor.edge.standby.time.monotonic", lambda: now)
    link = world.consumer("M0a")
    world.network.change("A")
    assert not world.say("A", "B")
    world.network.change()
    world.standby.step()
    assert world.counts(link), "there are two networks now"
    world.network.change("A")
    world.standby.step()
    assert not world.counts(link)
    assert world.say("B")
    assert not world.say("C"), "this router is not among them"
    assert not world.counts(link)


def test_one_that_is_not_reachable_yet_is_waited_for(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A router that has just started knows no others."""
    now = 100.0
    monkeypatch.setattr("supervisor.edge.standby.time.monotonic", lambda: now)
    link = world.consumer("M0a")
    assert not world.say("A", "B")
    assert world.standby.deadline == now + PATIENCE
    world.standby.step()
    assert not world.counts(link)
    now += PATIENCE
    world.standby.step()
    assert world.counts(link)
    assert world.standby.deadline == NEVER


def test_copies_for_all_come_when_the_others_have_given_up(world: World) -> None:
    one, every = world.consumer("M0a"), world.consumer("M0m", MULTICAST)
    assert world.say("B", "A", complete=False)
    assert (world.counts(one), world.counts(every)) == (True, False)
    assert world.say("B", "A")
    assert (world.counts(one), world.counts(every)) == (True, True)


def test_a_link_that_is_gone_leaves_nothing(world: World) -> None:
    link = world.consumer("M0a")
    world.standby.dropped(link)
    assert isinstance(link.record, Record)
    world.table.release(link.record)
    assert world.say("B")
    assert "M0a" not in world.table.records
    world.standby.closed(world.connection)
    assert not world.say("B"), "nobody knows this edge router any more"
