"""Deliveries that cross from one worker to another, with the same result as within one worker."""

from itertools import chain

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import sluice.router.testing.engine as engine
from sluice.router.testing.engine import port_counts
from tests.component.engine.host import InProcessRouter
from tests.peer.frames import ACCEPTED, REJECTED, RELEASED, modified, rejected
from tests.peer.talk import (
    consumer,
    flow,
    frames,
    key,
    message,
    messages,
    of,
    producer,
    say,
    sections,
    settle,
    start,
    transfer,
)

STREAMED = 300_000  # octets
OUTCOMES = [ACCEPTED, RELEASED, REJECTED, rejected("a:b", "c"), modified(True, False), modified(True, True)]
SMALLEST_RING = 1 << 18
PRODUCTION_RING = 1 << 20


def connect_pair(router, address="balanced.a", listener="main", credit=0x7FFFFFFF):
    """Connect a consumer to worker 0 and a producer to the last worker."""
    last = len(router.workers) - 1
    consuming, sending = router.connect(0, listener), router.connect(last, listener)
    consuming.feed(start() + consumer(0, address, credit))
    router.settle()
    sending.feed(start() + producer(0, address))
    router.settle()
    frames(consuming)
    frames(sending)
    return consuming, sending


def streams(router):
    return [engine.streams(port) for worker in router.workers for port in worker.peers]


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_outcome_crosses_workers(routers, outcome):
    router = routers(2)
    consuming, sending = connect_pair(router)
    sending.feed(transfer(0, 0, message(b"x")))
    router.settle()
    assert messages(frames(consuming)) == [message(b"x")]
    consuming.feed(settle(0, state=outcome))
    router.settle()
    (report,) = of(frames(sending), "disposition")
    assert (report.first, report.settled, report.state) == (0, True, outcome)


def test_stream_across_workers_is_whole_and_bounded(routers):
    router = routers(2, ring_octets=SMALLEST_RING)
    consuming, sending = connect_pair(router)
    consuming.feed(flow(None, window=1))
    octets = message(bytes(range(256)) * 8000)
    sending.feed(transfer(0, 0, octets))
    router.settle()
    assert engine.live_objects()[2] < 2 * len(octets)
    consuming.feed(flow(None))
    router.settle()
    assert messages(frames(consuming)) == [octets]
    assert streams(router) == [0, 0]
    consuming.feed(settle(0, state=ACCEPTED))


def test_waiting_streams_are_not_scanned(routers):
    """The streams wait for octets of their producers, or for their window."""
    router = routers(2)
    pairs = [connect_pair(router, f"balanced.{number}") for number in range(20)]
    octets = transfer(0, 0, message(bytes(2 * STREAMED)))
    slow, shut = pairs[:10], pairs[10:]
    for consuming, _ in shut:
        consuming.feed(flow(None, window=0))
    for _, sending in slow:
        sending.feed(octets[:100_000])
    for _, sending in shut:
        sending.feed(octets)
    router.settle()
    port = router.workers[1].peers[0]
    before = port.outgoing.visits
    for size in range(100_000, 200_000, 10_000):
        slow[0][1].feed(octets[size : size + 10_000])
        router.settle()
    assert port.outgoing.visits - before <= 30
    router.check_quiet()
    for _, sending in slow[1:]:
        sending.feed(octets[100_000:])
    slow[0][1].feed(octets[200_000:])
    for consuming, _ in shut:
        consuming.feed(flow(None))
    router.settle()
    for consuming, _ in pairs:
        assert messages(frames(consuming)) == [message(bytes(2 * STREAMED))]
        consuming.feed(settle(0, state=ACCEPTED))


def test_stream_settled_early_is_freed(routers):
    router = routers(2)
    consuming, sending = connect_pair(router)
    octets = transfer(0, 0, message(bytes(STREAMED)))
    sending.feed(octets[:200_000])
    router.settle()
    assert streams(router) == [1, 0]
    consuming.feed(settle(0, state=REJECTED))
    router.settle()
    assert streams(router) == [0, 0]
    sending.feed(octets[200_000:])
    router.settle()
    (report,) = [frame for frame in of(frames(sending), "disposition") if frame.settled]
    assert report.state == REJECTED


@pytest.mark.parametrize("index", ["consumer", "producer"])
def test_stream_of_lost_client_is_freed(routers, index):
    router = routers(2)
    consuming, sending = connect_pair(router)
    sending.feed(transfer(0, 0, message(bytes(STREAMED)))[:200_000])
    router.settle()
    frames(consuming)
    (consuming if index == "consumer" else sending).lose()
    router.settle()
    assert streams(router) == [0, 0]
    if index == "producer":
        (last,) = [frame for frame in of(frames(consuming), "transfer") if not frame.more]
        assert last.aborted
    else:
        assert [frame.state for frame in of(frames(sending), "disposition")] == [RELEASED]


@pytest.mark.parametrize("size", [10, 30_000, 40_000, 120_000])
def test_annotations_of_any_size_cross_workers(routers, size):
    router = routers(2, ring_octets=PRODUCTION_RING)
    consuming, sending = connect_pair(router, listener="kept")
    pairs = [(key("x-user"), "v" * size), (key("x-opt-qd.trace"), ["0/a"])]
    sending.feed(transfer(0, 0, message(b"x", annotations=pairs)))
    router.settle()
    (octets,) = messages(frames(consuming))
    assert [code for code, _ in sections(octets)] == [0x72, 0x75]
    found = dict(sections(octets)[0][1].pairs)
    assert found["x-user"] == "v" * size
    assert next(iter(found["x-opt-qd.trace"])) == "0/a"
    consuming.feed(settle(0, state=ACCEPTED))


@pytest.mark.parametrize("size", [60_000, 200_000, 250_000])
def test_long_address_annotation_does_not_stall_ring(routers, size):
    router = routers(2, ring_octets=PRODUCTION_RING)
    consuming, sending = router.connect(0, "kept"), router.connect(1, "kept")
    consuming.feed(start() + consumer(0, "balanced.a"))
    router.settle()
    sending.feed(start() + producer(0, None))
    router.settle()
    long = f"amqp://{'h' * size}/balanced.a"
    sending.feed(transfer(0, 0, message(b"x", annotations=[(key("x-opt-qd.to"), long)])))
    router.settle()
    sending.feed(transfer(0, 1, message(b"y", to="balanced.a")))
    router.settle()
    assert any(octets.endswith(b"y") for octets in messages(frames(consuming)))
    consuming.feed(settle(0, 1, ACCEPTED))


def test_lost_worker_settles_its_deliveries(routers):
    router = routers(2)
    consuming, sending = connect_pair(router)
    sending.feed(transfer(0, 0, message(b"x")) + transfer(0, 1, message(b"y"), settled=True))
    sending.feed(transfer(0, 2, message(bytes(STREAMED)))[:200_000])
    router.settle()
    port = router.workers[1].peers[0]
    port.down()
    assert port_counts(port) == (0, 0, 0, 0)
    assert not port.alive
    router.settle()
    states = [(frame.first, frame.state.value[0]) for frame in of(frames(sending), "disposition")]
    assert states == [(0, True), (2, True)]  # modified with delivery-failed: the delivery may have arrived
    consuming.lose()
    sending.lose()
    router.workers[0].peers[0].down()


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("first", [0, 1, 2])
def test_error_of_rejection_is_reported_in_any_order(routers, workers, first):
    """States without and with an error arrive in each order. A worker reports the outcomes of its own consumers
    together."""
    router = routers(workers)
    consuming = [router.connect(min(number, workers - 1)) for number in range(3)]
    for peer in consuming:
        peer.feed(start() + consumer(0, "multicast.a"))
        router.settle()
    sending = router.connect(0)
    sending.feed(start() + producer(0, "multicast.a"))
    router.settle()
    sending.feed(transfer(0, 0, message(b"x")))
    router.settle()
    states = [REJECTED, rejected("a:b", "c"), ACCEPTED]
    for number in range(3):
        consuming[(first + number) % 3].feed(settle(0, state=states[number]))
        router.settle()
    (reported,) = of(frames(sending), "disposition")
    assert reported.settled
    assert reported.state == rejected("a:b", "c")


action = st.one_of(
    st.tuples(st.just("send"), st.integers(0, 1), st.sampled_from([5, 5, 2000, 40_000, 140_000]), st.booleans()),
    st.tuples(st.just("settle"), st.integers(0, 2), st.integers(0, 3), st.sampled_from(OUTCOMES)),
    st.tuples(st.just("part"), st.integers(0, 1), st.booleans(), st.booleans()),
)


def play(workers, address, actions):
    """Run a scenario. Return the messages of each consumer and the outcomes of each producer."""
    router = InProcessRouter(workers)
    try:
        last = workers - 1
        consuming = [router.connect(min(n, last)) for n in range(3)]
        for peer in consuming:
            peer.feed(start() + consumer(0, address))
            router.settle()
        sending = [router.connect(last - min(n, last)) for n in range(2)]
        for peer in sending:
            peer.feed(start() + producer(0, address))
        router.settle()
        number = [0, 0]
        settled_to = [0, 0, 0]
        for what, index, first, second in actions:
            if what == "send":
                body = bytes((index, number[index])) * (first // 2)
                sending[index].feed(transfer(0, number[index], message(body), settled=second or None))
                number[index] += 1
            elif what == "settle":
                consuming[index].feed(settle(settled_to[index], settled_to[index] + first, second))
                settled_to[index] += first + 1
            else:
                sending[index].feed(
                    say(
                        "transfer",
                        payload=message(b"part"),
                        handle=0,
                        delivery_id=number[index],
                        delivery_tag=b"t",
                        more=True,
                    )
                )
                sending[index].feed(say("transfer", payload=b"", handle=0, aborted=first or None))
                number[index] += 1
            router.settle()
            router.check_quiet()
        received = [sorted(messages(frames(peer))) for peer in consuming]
        outcomes = []
        for peer in sending:
            reported = {}
            for frame in of(frames(peer), "disposition"):
                for delivery in range(frame.first, (frame.first if frame.last is None else frame.last) + 1):
                    kind = None if frame.state is None else frame.state.descriptor
                    reported[delivery] = (bool(frame.settled), kind)
            outcomes.append(reported)
        return received, outcomes
    finally:
        router.close()


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(["closest.a", "multicast.a"]), st.lists(action, max_size=15))
def test_deliveries_across_workers_match_one_worker(address, actions):
    one_received, one_outcomes = play(1, address, actions)
    two_received, two_outcomes = play(2, address, actions)
    if address == "multicast.a":
        assert two_received == one_received
        assert two_outcomes == one_outcomes
    else:  # the choice of the consumer differs, but all messages arrive once
        assert sorted(chain(*two_received)) == sorted(chain(*one_received))
