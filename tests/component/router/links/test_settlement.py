"""Runs: deliveries that a consumer settles together by one disposition, whatever their producers and copies."""

import pytest

from tests.component.engine.host import configuration
from tests.peer.frames import ACCEPTED, RELEASED, rejected
from tests.peer.talk import PART, consumer, flow, frames, message, of, producer, settle, start, transfer

MANY = 200  # deliveries; several runs
BODY = message(b"x")
CAPACITY = "linkCapacity: 1000"


class SettlementClients:
    """Consumer, and the producers of its address, each with its own connection."""

    def __init__(self, router, address, producers=1, credit=0x7FFFFFFF):
        self.router = router
        self.consuming = self.connect(consumer(0, address, credit))
        self.producing = [self.connect(producer(0, address)) for _ in range(producers)]

    def connect(self, octets):
        peer = self.router.connect()
        peer.feed(start() + octets)
        self.router.settle()
        frames(peer)
        return peer

    def send(self, octets, by=0):
        self.producing[by].feed(octets)
        self.router.settle()

    def settle(self, first, last, state=ACCEPTED):
        self.consuming.feed(settle(first, last, state))
        self.router.settle()

    def reports(self, by=0):
        """Return (first, last, state) of each disposition that a producer has received and that settles."""
        found = [frame for frame in of(frames(self.producing[by]), "disposition") if frame.settled]
        return [(f.first, f.first if f.last is None else f.last, f.state) for f in found]

    def counters(self, peer):
        """Return the counters of a client's only link."""
        (record,) = peer.client.links.by_number.values()
        return self.router.region.link_counters(0, record.slot.index)


@pytest.fixture
def router(routers):
    return routers(text=configuration(CAPACITY))


@pytest.mark.parametrize("state", [ACCEPTED, RELEASED, rejected("a:b", "text")])
def test_range_is_reported_and_counted_as_sent(router, state):
    clients = SettlementClients(router, "balanced.a")
    clients.send(b"".join(transfer(0, number, BODY) for number in range(MANY)))
    clients.settle(0, MANY - 1, state)
    assert clients.reports() == [(0, MANY - 1, state)]
    kind = {ACCEPTED: "accepted", RELEASED: "released"}.get(state, "rejected")
    for peer in (clients.consuming, *clients.producing):
        counted = clients.counters(peer)
        assert (counted["deliveries"], counted[kind], counted["unsettled"]) == (MANY, MANY, 0)


def test_range_over_several_producers_reports_to_each_its_own(router):
    """A run ends where the next delivery has another producer."""
    clients = SettlementClients(router, "balanced.a", producers=3)
    for number in range(MANY):
        clients.producing[number % 3].feed(transfer(0, number // 3, BODY))
    router.settle()
    clients.settle(0, MANY - 1)
    ends = [len(range(by, MANY, 3)) - 1 for by in range(3)]
    assert [clients.reports(by) for by in range(3)] == [[(0, end, ACCEPTED)] for end in ends]


def test_range_that_ends_with_incomplete_delivery_settles_it_too(router):
    """The consumer settles the last delivery before its last frame is written. The others form a run."""
    clients = SettlementClients(router, "balanced.a")
    large = transfer(0, 10, message(b"y" * 20 * PART))
    clients.send(b"".join(transfer(0, number, BODY) for number in range(10)) + large[: len(large) // 2])
    assert of(frames(clients.consuming), "transfer")[-1].more
    clients.settle(0, 10)
    assert clients.reports() == [(0, 9, ACCEPTED)], "the rest of the last one has not arrived"
    clients.send(large[len(large) // 2 :])
    assert clients.reports() == [(10, 10, ACCEPTED)]
    assert clients.counters(clients.producing[0])["accepted"] == 11


def test_copies_of_multicast_settled_together_wait_for_other_consumers(router):
    clients = SettlementClients(router, "multicast.a")
    other = clients.connect(consumer(0, "multicast.a"))
    clients.send(b"".join(transfer(0, number, BODY) for number in range(MANY)))
    clients.settle(0, MANY - 1, RELEASED)
    assert clients.reports() == []
    assert clients.counters(clients.consuming)["unsettled"] == 0
    other.feed(settle(0, MANY - 1, ACCEPTED))
    router.settle()
    assert clients.reports() == [(0, MANY - 1, ACCEPTED)]


def test_deliveries_of_range_settled_before_are_not_reported_again(router):
    clients = SettlementClients(router, "balanced.a")
    clients.send(b"".join(transfer(0, number, BODY) for number in range(MANY)))
    clients.settle(50, 99, RELEASED)
    assert clients.reports() == [(50, 99, RELEASED)]
    clients.settle(0, MANY - 1)
    assert clients.reports() == [(0, 49, ACCEPTED), (100, MANY - 1, ACCEPTED)]
    clients.settle(0, MANY - 1)
    assert clients.reports() == []
    assert clients.counters(clients.producing[0])["accepted"] == MANY - 50


def test_range_settled_by_producer_lost_meanwhile_settles_consumer(router):
    clients = SettlementClients(router, "balanced.a", producers=2)
    clients.send(b"".join(transfer(0, number, BODY) for number in range(10)))
    clients.send(b"".join(transfer(0, number, BODY) for number in range(10)), by=1)
    clients.producing[0].lose()
    router.settle()
    frames(clients.consuming)
    clients.settle(0, 19)
    assert clients.reports(1) == [(0, 9, ACCEPTED)]
    assert clients.counters(clients.consuming)["unsettled"] == 0


def test_range_ends_at_deliveries_not_sent_yet(router):
    """The disposition names ids that the consumer has not received: the queued deliveries stay."""
    clients = SettlementClients(router, "balanced.a", credit=5)
    clients.send(b"".join(transfer(0, number, BODY) for number in range(10)))
    clients.settle(0, 9)
    assert clients.reports() == [(0, 4, ACCEPTED)]
    clients.consuming.feed(flow(0, 5, delivery_count=5))
    router.settle()
    clients.settle(5, 9)
    assert clients.reports() == [(5, 9, ACCEPTED)]
