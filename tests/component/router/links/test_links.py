"""Credit, windows, delivery-ids and dispositions of links and sessions, with large and wrapping numbers."""

import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.component.engine.host import InProcessRouter
from tests.peer.frames import ACCEPTED, RELEASED, source
from tests.peer.talk import (
    begin,
    consumer,
    flow,
    frames,
    message,
    messages,
    of,
    producer,
    say,
    settle,
    start,
    transfer,
)

NEAR_WRAP = 0xFFFFFFF0
FAST = 2.0  # seconds, sanitizers included, for work that must not visit 2**31 ids
CAPACITY = 4  # capacity of links of the listener "kept"


def pair(router, credit=0x7FFFFFFF, address="balanced.a", listener="main", **producing):
    """Connect a consumer and a producer."""
    consuming, sending = router.connect(listener=listener), router.connect(listener=listener)
    consuming.feed(start() + consumer(0, address, credit))
    router.settle()
    sending.feed(start() + producer(0, address, **producing))
    router.settle()
    frames(consuming)
    frames(sending)
    return consuming, sending


def test_delivery_ids_and_counts_of_producer_wrap(routers):
    router = routers()
    consuming = router.connect()
    consuming.feed(start() + consumer(0, "balanced.a"))
    sending = router.connect()
    sending.feed(start(next_outgoing_id=NEAR_WRAP) + producer(0, "balanced.a", initial_delivery_count=NEAR_WRAP))
    router.settle()
    frames(sending)
    ids = [(NEAR_WRAP + n) & 0xFFFFFFFF for n in range(40)]
    for n, number in enumerate(ids):
        sending.feed(transfer(0, number, message(b"%d" % n)))
    router.settle()
    assert len(messages(frames(consuming))) == 40
    consuming.feed(settle(0, 39, ACCEPTED))
    router.settle()
    heard = frames(sending)
    settled = [
        (frame.first + n) & 0xFFFFFFFF
        for frame in of(heard, "disposition")
        for n in range(((frame.first if frame.last is None else frame.last) - frame.first & 0xFFFFFFFF) + 1)
    ]
    assert sorted(settled) == sorted(ids)
    last = of(heard, "flow")[-1]
    assert (last.delivery_count, last.link_credit) == ((NEAR_WRAP + 40) & 0xFFFFFFFF, 250)
    assert last.next_incoming_id == (NEAR_WRAP + 40) & 0xFFFFFFFF


def test_peers_window_is_respected_while_ids_wrap(routers):
    router = routers()
    consuming, sending = pair(router)
    consuming.feed(flow(None, window=3))
    for number in range(10):
        sending.feed(transfer(0, number, message(b"x")))
    router.settle()
    assert len(of(frames(consuming), "transfer")) == 3
    for expected, first in ((2, 3), (0, 0), (5, 5)):
        consuming.feed(
            say("flow", next_incoming_id=first, incoming_window=expected, next_outgoing_id=0, outgoing_window=1)
        )
        router.settle()
        assert len(of(frames(consuming), "transfer")) == expected
    consuming.feed(settle(0, 9, ACCEPTED))


def test_outdated_flow_opens_no_window(routers):
    router = routers()
    consuming, sending = pair(router)
    for number in range(5):
        sending.feed(transfer(0, number, message(b"x")))
    router.settle()
    consuming.feed(say("flow", next_incoming_id=0, incoming_window=3, next_outgoing_id=0, outgoing_window=1))
    sending.feed(transfer(0, 5, message(b"y")))
    frames(consuming)
    router.settle()
    assert not of(frames(consuming), "transfer")
    consuming.feed(settle(0, 9, RELEASED) + flow(None, window=100))


def test_drain_gives_remaining_credit_back(routers):
    router = routers()
    consuming, sending = pair(router, credit=5)
    sending.feed(transfer(0, 0, message(b"x"), settled=True))
    router.settle()
    consuming.feed(flow(0, 4, delivery_count=1, drain=True))
    router.settle()
    (answer,) = of(frames(consuming), "flow")
    assert (answer.delivery_count, answer.link_credit, answer.drain) == (5, 0, True)
    sending.feed(transfer(0, 1, message(b"y"), settled=True))
    router.settle()
    assert not of(frames(consuming), "transfer")
    consuming.feed(flow(0, 1, delivery_count=5))
    router.settle()
    assert len(of(frames(consuming), "transfer")) == 1


def test_withdrawn_credit_stops_transfers(routers):
    router = routers()
    consuming, sending = pair(router, credit=5)
    consuming.feed(flow(0, 0))
    sending.feed(transfer(0, 0, message(b"x")))
    router.settle()
    assert not of(frames(consuming), "transfer")
    consuming.feed(flow(0, 1))
    router.settle()
    assert len(of(frames(consuming), "transfer")) == 1
    consuming.feed(settle(0, state=ACCEPTED))


@pytest.mark.timeout(300)
def test_disposition_for_fifty_thousand_ids_is_fast(routers):
    router = routers()
    consuming, sending = pair(router)
    total = 50_000
    batch = 250
    for first in range(0, total, batch):
        sending.feed(b"".join(transfer(0, number, b"\x00\x53\x77\x40") for number in range(first, first + batch)))
        router.settle()
        if first + batch < total:
            consuming.feed(settle(first, first + batch - 1, ACCEPTED))
            router.settle()
    frames(sending)
    began = time.monotonic()
    consuming.feed(settle(0, total - 1, ACCEPTED))
    router.settle()
    assert time.monotonic() - began < FAST
    (report,) = of(frames(sending), "disposition")
    assert (report.first, report.last, report.settled) == (total - batch, total - 1, True)


@pytest.mark.parametrize("first", [0, 0x80000005, 0xFFFFFFFE])
def test_disposition_of_half_of_all_ids_is_fast(routers, first):
    router = routers()
    consuming, sending = pair(router)
    for number in range(3):
        sending.feed(transfer(0, number, message(b"x")))
    router.settle()
    began = time.monotonic()
    consuming.feed(settle(first, (first + 0x7FFFFFFF) & 0xFFFFFFFF, ACCEPTED))
    router.settle()
    assert time.monotonic() - began < FAST
    reported = sum((frame.last or frame.first) - frame.first + 1 for frame in of(frames(sending), "disposition"))
    assert reported == 3


steps = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(1, 6), st.booleans()),
        st.tuples(st.just("settle"), st.integers(0, 5), st.sampled_from([ACCEPTED, RELEASED, None])),
        st.tuples(st.just("credit"), st.integers(0, 6), st.booleans()),
        st.tuples(st.just("parts"), st.integers(2, 4), st.booleans()),
    ),
    max_size=25,
)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps, st.sampled_from(["balanced.a", "closest.a", "multicast.a", "block.a", "oldest.a"]))
def test_credit_and_occupied_places_stay_within_capacity(actions, address):
    router = InProcessRouter()
    try:
        consuming, sending = pair(router, credit=3, address=address, listener="kept")
        link = next(record.link for record in sending.client.links.by_number.values())
        sent = heard = 0
        for what, number, detail in actions:
            if what == "send" and link.credit:
                for _ in range(min(number, link.credit)):
                    sending.feed(transfer(0, sent, message(b"m"), settled=detail or None))
                    sent += 1
            elif what == "parts" and link.credit:
                sending.feed(transfer(0, sent, message(b"m" * 40), part=50 // number, settled=detail or None))
                sent += 1
            elif what == "settle":
                consuming.feed(settle(heard, heard + number, detail))
                heard += number
            elif what == "credit":
                consuming.feed(flow(0, number, delivery_count=heard))
            router.settle()
            router.check_quiet()
            assert link.credit + link.occupied <= CAPACITY
        consuming.feed(flow(0, 0x7FFFFFFF) + settle(0, sent, ACCEPTED))
        router.settle()
        consuming.feed(settle(0, sent, ACCEPTED))
        router.settle()
        assert (link.occupied, link.credit) == (0, CAPACITY)
    finally:
        router.close()


def test_sessions_have_separate_windows(routers):
    router = routers()
    peer = router.connect()
    peer.feed(start() + begin(1) + consumer(0, "multicast.a", 0) + flow(0, 10, window=1))
    peer.feed(say("attach", channel=1, name="other", handle=0, role=True, source=source("multicast.a"), target=None))
    peer.feed(
        say(
            "flow",
            channel=1,
            next_incoming_id=0,
            incoming_window=100,
            next_outgoing_id=0,
            outgoing_window=1,
            handle=0,
            delivery_count=0,
            link_credit=10,
        )
    )
    sending = router.connect()
    sending.feed(start() + producer(0, "multicast.a"))
    for number in range(4):
        sending.feed(transfer(0, number, message(b"x"), settled=True))
    router.settle()
    came = [frame.channel for frame in of(frames(peer), "transfer")]
    assert (came.count(0), came.count(1)) == (1, 4)
