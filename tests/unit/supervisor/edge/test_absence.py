"""Senders of a lost uplink that wait for another one: their place in the table, and the orders to their worker."""

from __future__ import annotations

from typing import Any

import pytest

from sluice.router.control.messages import Resume, Suspended
from sluice.supervisor.connections.connections import RegisteredConnection, RegisteredLink
from tests.unit.supervisor.edge.edge_router import EdgeRouter, connector
from tests.unit.supervisor.links.test_auto import ManualTimers

SECONDS = 60
KEY = "M0b"


class AwaitingEdge(EdgeRouter):
    """Edge router whose client sends to an address with destinations beyond the first of two uplinks."""

    def __init__(self) -> None:
        super().__init__(connector("up"), connector("other"), uplinks=f"one\n    routerAbsenceSeconds: {SECONDS}")
        self.timers = ManualTimers()
        waker: Any = self.timers
        self.core.waker.connect(waker, lambda: None)
        self.sender = self.client()
        self.attach(self.sender, "in", KEY[2:])
        self.first = self.interior("A")
        self.track(self.first, KEY, True)

    def proxy(self, interior: RegisteredConnection) -> RegisteredLink:
        """Return the router's sender for the address."""
        (link,) = [each for each in interior.links.values() if each.owner == KEY and each.consumer]
        return link

    def lose(self, waiting: int = 3) -> RegisteredLink:
        """Lose the first uplink. Return the sender, with which `waiting` messages wait."""
        link = self.proxy(self.first)
        self.core.receive(self.worker, Suspended(self.first.number, link.number, waiting))
        self.close(self.first)
        return link

    def resumes(self) -> list[Resume]:
        self.settle()
        return [order for order in self.orders if isinstance(order, Resume)]


@pytest.fixture
def edge() -> AwaitingEdge:
    return AwaitingEdge()


def test_sender_on_next_uplink_takes_over_what_waits(edge: AwaitingEdge) -> None:
    assert all(link.waits for link in edge.links.values() if link.dir == "out" and link.address == KEY[2:])
    lost = edge.lose()
    assert edge.record(KEY).is_suspended_alone
    second = edge.interior("B", "other")
    assert edge.record(KEY).is_suspended_alone, "no destinations are reported yet"
    edge.track(second, KEY, True)
    successor = edge.proxy(second)
    assert edge.resumes() == [Resume(lost.slot, lost.generation, second.number, successor.number)]
    assert edge.record(KEY).suspended is None
    assert len(edge.record(KEY).consumers or {}) == 1
    edge.timers.advance(SECONDS)
    assert len(edge.resumes()) == 1


def test_sender_releases_what_waits_when_its_time_is_over(edge: AwaitingEdge) -> None:
    lost = edge.lose()
    edge.timers.advance(SECONDS - 1)
    assert edge.resumes() == []
    edge.timers.advance(1)
    assert edge.resumes() == [Resume(lost.slot, lost.generation)]
    assert not edge.record(KEY).consumers


def test_sender_of_address_with_other_consumers_leaves_the_table_and_waits(edge: AwaitingEdge) -> None:
    edge.attach(edge.sender, "out", KEY[2:])
    lost = edge.lose()
    assert edge.record(KEY).suspended is None
    assert len(edge.record(KEY).consumers or {}) == 1
    assert edge.resumes() == []
    second = edge.interior("B", "other")
    edge.track(second, KEY, True)
    assert [(order.slot, order.conn) for order in edge.resumes()] == [(lost.slot, second.number)]


def test_sender_without_destinations_waits_only_with_messages(edge: AwaitingEdge) -> None:
    edge.track(edge.first, KEY, False)
    lost = edge.lose(waiting=0)
    assert edge.resumes() == [Resume(lost.slot, lost.generation)]
    assert edge.timers.waiting == 0


def test_draining_router_releases_what_waits_for_uplinks(edge: AwaitingEdge) -> None:
    lost = edge.lose()
    second = edge.interior("B", "other")
    edge.uplink.absence.end()
    assert edge.resumes() == [Resume(lost.slot, lost.generation)]
    edge.track(second, KEY, True)
    edge.first = second
    later = edge.lose()
    assert edge.resumes()[1:] == [Resume(later.slot, later.generation)]
    assert not edge.record(KEY).consumers
    assert edge.timers.waiting == 0


def test_lost_worker_takes_along_what_waits(edge: AwaitingEdge) -> None:
    edge.lose()
    edge.uplink.worker_lost(edge.worker)
    assert not edge.record(KEY).consumers
    assert edge.timers.waiting == 0
    assert edge.resumes() == []


def test_suspended_sender_is_not_announced_as_consumer(edge: AwaitingEdge) -> None:
    edge.lose()
    assert edge.proxies(edge.interior("B", "other"), "in") == []
