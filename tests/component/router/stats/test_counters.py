"""Counters of outcomes, ages, rates and drops, at the links of a delivery and in the totals of the router."""

import time

import pytest

from sluice.router.ring.layout import DROP_NAMES
from tests.component.engine.network import client
from tests.peer.frames import ACCEPTED, RELEASED, modified, rejected
from tests.peer.talk import consumer, flow, frames, message, producer, settle, start, transfer

SECOND_MS = 1000
SECOND_NS = 1_000_000_000
OUTCOMES = ("accepted", "rejected", "released", "modified")


def slot(router, index, worker=0):
    counters = router.region.link_counters(worker, index)
    assert counters is not None
    return counters


def connect_pair(router, address="balanced.a", credit=100):
    """Connect a consumer (slot 0) and a producer (slot 1)."""
    consuming, sending = router.connect(), router.connect()
    consuming.feed(start() + consumer(0, address, credit))
    router.settle()
    sending.feed(start() + producer(0, address))
    router.settle()
    return consuming, sending


# routing-semantics.md 16.3.
@pytest.mark.parametrize(
    ("state", "name"),
    [
        (ACCEPTED, "accepted"),
        (rejected("a:b"), "rejected"),
        (RELEASED, "released"),
        (modified(True), "modified"),
        (None, None),
    ],
)
def test_outcome_is_counted_at_both_links_and_in_totals(routers, state, name):
    router = routers()
    consuming, sending = connect_pair(router)
    for number in range(3):
        sending.feed(transfer(0, number, message(b"x")))
    router.settle()
    consuming.feed(settle(0, state=state) + settle(1, 2, state))
    router.settle()
    expected = {outcome: 3 if outcome == name else 0 for outcome in OUTCOMES}
    totals = router.region.router_totals()
    for counters in (slot(router, 0), slot(router, 1), totals):
        assert {outcome: counters[outcome] for outcome in OUTCOMES} == expected
    assert {outcome: totals[f"ended_{outcome}"] for outcome in OUTCOMES} == expected
    assert totals["settled_no_state"] == (3 if name is None else 0)


def test_delivery_of_other_router_ends_where_it_was_sent(router_pair):
    """Each delivery of a client has one counted end in the network, at the router of its producer."""
    receiving = client(router_pair, "B", consumer(0, "balanced.a"))
    router_pair.known("M0balanced.a", "B")
    sending = client(router_pair, "A", producer(0, "balanced.a"))
    sending.feed(transfer(0, 0, message(b"x")))
    router_pair.settle()
    receiving.feed(settle(0, state=ACCEPTED))
    router_pair.settle()
    ends = {name: router_pair[name].region.router_totals()["ended_accepted"] for name in "AB"}
    assert ends == {"A": 1, "B": 0}


def test_dropped_message_is_counted_with_its_reason(routers):
    router = routers()
    sending = router.connect()
    sending.feed(start() + producer(0, None))
    sending.feed(transfer(0, 0, message(b"x", to="nowhere"), settled=True))
    router.settle()
    assert slot(router, 0)["dropped_presettled"] == 1
    totals = router.region.router_totals()
    assert totals["dropped_presettled"] == 1
    assert (totals["dropped"][DROP_NAMES.index("noDestination")], sum(totals["dropped"])) == (1, 1)


# routing-semantics.md O-1; management.md 7.3.
@pytest.mark.parametrize(("age_ms", "over_1_s", "over_10_s"), [(900, 0, 0), (1_100, 1, 0), (10_100, 0, 1)])
def test_delayed_settlement_is_counted_by_age(routers, age_ms, over_1_s, over_10_s):
    router = routers()
    consuming, sending = connect_pair(router)
    sending.feed(transfer(0, 0, message(b"one")))
    router.settle()
    router.pass_time(age_ms)
    consuming.feed(settle(0, 0, ACCEPTED))
    router.settle()
    for counters in (slot(router, 0), slot(router, 1), router.region.router_totals()):
        assert (counters["delayed_1s"], counters["delayed_10s"]) == (over_1_s, over_10_s)


def test_finished_deliveries_are_counted_once(routers):
    router = routers()
    consuming, sending = connect_pair(router)
    sending.feed(transfer(0, 0, message(b"a")) + transfer(0, 1, message(b"b"), settled=True))
    sending.feed(transfer(0, 2, message(b"c")) + transfer(0, 3, message(b"d")))
    router.settle()
    consuming.feed(settle(0, 0, ACCEPTED) + settle(2, 2))
    router.settle()
    sending.feed(settle(3, 3, ACCEPTED, role=False))
    router.settle()
    assert (slot(router, 0)["finished"], slot(router, 1)["finished"]) == (4, 4)


def use_machine_clock(router):
    """Set the router's clock to the machine's, in the middle of a second. Readers of rates use the machine's clock."""
    now = time.monotonic_ns() // SECOND_NS * SECOND_NS + SECOND_NS // 2
    router.workers[0].poller.time_ns = now
    router.settle()
    return now


def test_link_rate_covers_last_five_seconds(routers, monkeypatch):
    router = routers()
    consuming, sending = connect_pair(router)
    now = use_machine_clock(router)
    reader = [now]
    monkeypatch.setattr("sluice.router.ring.region.time.monotonic_ns", lambda: reader[0])
    number = 0
    for count in (10, 20, 30):  # a second each
        for _ in range(count):
            sending.feed(transfer(0, number, message(b"x")))
            number += 1
        router.settle()
        consuming.feed(settle(number - count, number - 1, ACCEPTED))
        router.settle()
        frames(consuming)
        consuming.feed(flow(0, 100, delivery_count=number))
        router.settle()
        reader[0] = router.workers[0].loop.scheduler.now_ns
        router.pass_time(SECOND_MS)
    assert (slot(router, 0)["rate"], slot(router, 1)["rate"]) == (60 / 5, 60 / 5)
    assert (slot(router, 0)["finished"], slot(router, 1)["finished"]) == (60, 60)
    reader[0] = now + 4 * SECOND_NS  # all of them are within five seconds
    assert slot(router, 0)["rate"] == 60 / 5
    reader[0] = now + 5 * SECOND_NS  # half of the second with the first ten is out
    assert slot(router, 0)["rate"] == 55 / 5
    reader[0] = now + 7 * SECOND_NS
    assert slot(router, 0)["rate"] == 15 / 5
    reader[0] = now + 8 * SECOND_NS
    assert slot(router, 0)["rate"] == 0
    reader[0] = now + 100 * SECOND_NS
    assert slot(router, 0)["rate"] == 0
