"""`balanced` with many consumers: idle consumers take turns; among busy ones, the less loaded of two random picks is
chosen.
"""

from collections import Counter

import pytest

from tests.component.engine.host import InProcessRouter, configuration
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
