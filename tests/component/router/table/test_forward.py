"""Choice of consumers, compared with a naive implementation of the rules (routing-semantics.md 8.2 to 8.4)."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.component.engine.host import InProcessRouter
from tests.peer.frames import ACCEPTED, REJECTED, RELEASED, modified
from tests.peer.talk import consumer, frames, message, of, producer, settle, start, transfer

RANK = {0x26: 1, 0x27: 2, 0x24: 3, 0x25: 4}  # rank of outcomes: the highest is reported
CAPACITY = 4  # capacity of links of the listener "kept"


def connect_consumers(router, address, consumers):
    """Connect consumers in order, and a producer."""
    peers = [router.connect(listener="kept") for _ in range(consumers)]
    for peer in peers:
        peer.feed(start() + consumer(0, address))
        router.settle()
        frames(peer)
    sending = router.connect()
    sending.feed(start() + producer(0, address))
    router.settle()
    frames(sending)
    return peers, sending


def receivers(peers):
    return [n for n, peer in enumerate(peers) if of(frames(peer), "transfer")]


@pytest.mark.parametrize("consumers", [1, 2, 3, 5])
def test_closest_consumers_take_turns(routers, consumers):
    router = routers()
    peers, sending = connect_consumers(router, "closest.a", consumers)
    came = []
    for number in range(3 * consumers):
        sending.feed(transfer(0, number, message(b"x"), settled=number % 2 == 0 or None))
        router.settle()
        came += receivers(peers)
    assert came == list(range(consumers)) * 3


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(1, 4), st.lists(st.one_of(st.none(), st.integers(0, 3)), max_size=25))
def test_balanced_chooses_least_loaded_consumer(consumers, steps):
    """Steps: None sends a delivery; n lets consumer n settle its oldest delivery."""
    router = InProcessRouter()
    try:
        peers, sending = connect_consumers(router, "balanced.a", consumers)
        outstanding = [0] * consumers
        settled = [0] * consumers
        first = sent = 0
        for step in steps:
            if step is None and sum(outstanding) < 200:
                order = [(first + n) % consumers for n in range(consumers)]
                free = [n for n in order if outstanding[n] < CAPACITY] or order
                best = min(free, key=lambda n: outstanding[n])
                if outstanding[best] == 0:
                    first = (first + 1) % consumers
                sending.feed(transfer(0, sent, message(b"x")))
                router.settle()
                assert receivers(peers) == [best]
                outstanding[best] += 1
                sent += 1
            elif step is not None and step < consumers and outstanding[step]:
                peers[step].feed(settle(settled[step], state=ACCEPTED))
                router.settle()
                settled[step] += 1
                outstanding[step] -= 1
    finally:
        router.close()


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.sampled_from([ACCEPTED, REJECTED, RELEASED, modified(True)]), min_size=1, max_size=4), st.randoms())
def test_multicast_reports_highest_outcome(outcomes, rng):
    router = InProcessRouter()
    try:
        peers, sending = connect_consumers(router, "multicast.a", len(outcomes))
        sending.feed(transfer(0, 0, message(b"x")))
        router.settle()
        assert receivers(peers) == list(range(len(outcomes)))
        order = list(range(len(outcomes)))
        rng.shuffle(order)
        for n in order:
            assert not of(frames(sending), "disposition")
            peers[n].feed(settle(0, state=outcomes[n]))
            router.settle()
        (report,) = of(frames(sending), "disposition")
        assert report.settled
        assert report.state.descriptor == max((o.descriptor for o in outcomes), key=lambda code: RANK[int(code)])
    finally:
        router.close()


def test_delivery_without_consumer_is_released(routers):
    router = routers()
    peers, sending = connect_consumers(router, "balanced.a", 1)
    peers[0].lose()
    router.settle()
    sending.feed(transfer(0, 0, message(b"x")))
    router.settle()
    (report,) = of(frames(sending), "disposition")
    assert (report.state, report.settled) == (RELEASED, True)


def test_exchange_forwards_once_to_each_next_hop(routers):
    router = routers()
    hops = {name: router.connect() for name in ("balanced.hop", "multicast.hop", "balanced.alternate")}
    for name, peer in hops.items():
        peer.feed(start() + consumer(0, name))
        router.settle()
        frames(peer)
    sending = router.connect()
    sending.feed(start() + producer(0, "exchange"))
    router.settle()
    frames(sending)
    for number, (subject, expected) in enumerate(
        [("a/b", {"balanced.hop", "multicast.hop"}), ("a/b/c", {"multicast.hop"}), ("z", {"balanced.alternate"})]
    ):
        sending.feed(transfer(0, number, message(b"x", subject=subject)))
        router.settle()
        came = {name: of(frames(peer), "transfer") for name, peer in hops.items()}
        assert {name for name, transfers in came.items() if transfers} == expected
        assert all(frame.settled for transfers in came.values() for frame in transfers)
        (report,) = of(frames(sending), "disposition")
        assert report.state == ACCEPTED
