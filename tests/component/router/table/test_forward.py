"""Outcomes of multicast deliveries, deliveries without consumers, and exchanges (routing-semantics.md 8.4 to 8.7)."""

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
