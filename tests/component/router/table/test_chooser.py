"""Choice of consumers, compared with a naive implementation of the rules (routing-semantics.md 8.2, 8.3).

`balanced` with many consumers: idle consumers take turns; among busy ones, the less loaded of two random picks is
chosen.
"""

from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.component.engine.host import InProcessRouter, configuration
from tests.component.router.table.test_forward import CAPACITY, connect_consumers, receivers
from tests.peer.frames import ACCEPTED
from tests.peer.talk import consumer, frames, message, of, producer, settle, start, transfer

CROWD = 64
EACH = 16  # deliveries per consumer, on average
LOOKED_AT = 16  # consumers examined in addition to two full picks
FULL = 4  # unsettled deliveries of a full consumer of the listener "kept"


class ManyConsumers:
    """Producer and many consumers of one address. Each consumer is a link of its worker's first connection."""

    def __init__(self, router: InProcessRouter, workers: int, listener: str = "main") -> None:
        self.router = router
        self.peers = [router.connect(worker, listener) for worker in range(workers)]
        for number, peer in enumerate(self.peers):
            handles = range(number, CROWD, workers)
            peer.feed(start() + b"".join(consumer(handle, "balanced.a") for handle in handles))
        self.sending = router.connect(0)
        self.sending.feed(start() + producer(0, "balanced.a"))
        router.settle()
        for peer in [*self.peers, self.sending]:
            frames(peer)
        self.sent = 0
        self.shares: Counter[tuple[int, int]] = Counter()

    def send(self, count: int, *, accept: bool) -> list[tuple[tuple[int, int], int]]:
        """Send messages one by one. Return (consumer, delivery-id) of each, where a consumer is (worker, handle)."""
        got = []
        for _ in range(count):
            self.sending.feed(transfer(0, self.sent, message(b"x")))
            self.sent += 1
            self.router.settle()
            for worker, peer in enumerate(self.peers):
                for frame in of(frames(peer), "transfer"):
                    self.shares[worker, frame.handle] += 1
                    got.append(((worker, frame.handle), frame.delivery_id))
                    if accept:
                        peer.feed(settle(frame.delivery_id, state=ACCEPTED))
        self.router.settle()
        return got


def many_consumers(routers, workers: int, listener: str = "main") -> ManyConsumers:
    return ManyConsumers(routers(workers, configuration("linkCapacity: 5000")), workers, listener)


@pytest.mark.parametrize("workers", [1, 3])
def test_unsettled_deliveries_are_spread_evenly(routers, workers):
    crowd = many_consumers(routers, workers)
    crowd.send(CROWD * EACH, accept=False)
    assert len(crowd.shares) == CROWD
    assert max(crowd.shares.values()) <= EACH + 4
    assert min(crowd.shares.values()) >= EACH - 8


@pytest.mark.parametrize("workers", [1, 3])
def test_idle_consumers_take_turns(routers, workers):
    """Each message is settled before the next one is sent."""
    crowd = many_consumers(routers, workers)
    crowd.send(CROWD * EACH, accept=True)
    assert len(crowd.shares) == CROWD
    assert set(crowd.shares.values()) == {EACH}


def test_last_free_consumer_is_found_soon(routers):
    crowd = many_consumers(routers, 1, "kept")
    got = crowd.send(CROWD * (FULL + 2), accept=False)
    (peer,) = crowd.peers
    for free in (5, 40):
        for (_, handle), delivery in got:
            if handle == free:
                peer.feed(settle(delivery, state=ACCEPTED))
        crowd.router.settle()
        found = [handle for (_, handle), _ in crowd.send(CROWD // LOOKED_AT, accept=False)]
        assert free in found


def test_lost_consumers_receive_nothing(routers):
    crowd = many_consumers(routers, 3)
    crowd.peers.pop().lose()
    crowd.router.settle()
    before = crowd.sent
    crowd.send(CROWD, accept=False)
    assert sum(crowd.shares.values()) == crowd.sent - before
    assert {worker for worker, _ in crowd.shares} == {0, 1}


# -- few consumers


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
