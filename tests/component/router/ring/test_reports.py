"""Reports of outcomes to another worker: equal outcomes of consecutive deliveries are one record."""

from typing import Any

import pytest

from sluice.router.testing.interworker import RingEnd
from tests.component.engine.host import MS, InProcessPeer
from tests.peer.frames import ACCEPTED, RELEASED, rejected
from tests.peer.talk import consumer, frames, message, of, producer, settle, start, transfer

PRODUCING, CONSUMING = 0, 1
LATER_MS = 5  # outcomes wait for a sleeping worker, but not as long


class ReportingPair:
    """Consumer whose outcomes cross a ring to the worker of their producer."""

    def __init__(self, routers: Any) -> None:
        self.router = routers(2)
        self.consuming = self.connect(CONSUMING, consumer(0, "balanced.a"))
        self.sending = self.connect(PRODUCING, producer(0, "balanced.a"))
        self.ring = RingEnd(self.router.region, CONSUMING, PRODUCING)

    def connect(self, worker: int, octets: bytes) -> InProcessPeer:
        peer: InProcessPeer = self.router.connect(worker)
        peer.feed(start() + octets)
        self.router.settle()
        frames(peer)
        return peer

    def send(self, count: int) -> None:
        self.sending.feed(b"".join(transfer(0, number, message(b"x")) for number in range(count)))
        self.router.settle()
        frames(self.consuming)

    def records(self) -> int:
        """Return the number of new records. The producer's worker, which has its own position, reads them later."""
        return sum(1 for _ in iter(self.ring.read, None))

    def settle(self, *settlements: tuple[Any, ...]) -> int:
        """Settle deliveries. Return the number of records about them."""
        worker = self.router.workers[CONSUMING]
        self.records()
        self.consuming.put(b"".join(settle(*each) for each in settlements))
        self.router.run(worker)
        worker.poller.time_ns += LATER_MS * MS
        self.router.run(worker)
        return self.records()

    def outcomes(self) -> list[tuple[int, Any]]:
        """Return delivery-id and state of each outcome that the producer receives."""
        self.router.settle()
        found = []
        for frame in of(frames(self.sending), "disposition"):
            last = frame.first if frame.last is None else frame.last
            found += [(number, frame.state) for number in range(frame.first, last + 1)]
        return found


@pytest.fixture
def pair(routers):
    return ReportingPair(routers)


def test_equal_outcomes_of_consecutive_deliveries_are_one_record(pair):
    pair.send(40)
    assert pair.settle((0, 19, ACCEPTED)) == 1
    assert pair.settle(*[(number, None, ACCEPTED) for number in range(20, 40)]) == 1
    assert pair.outcomes() == [(number, ACCEPTED) for number in range(40)]


def test_gap_or_other_outcome_begins_another_record(pair):
    pair.send(9)
    assert pair.settle((0, 1, ACCEPTED), (3, 3, ACCEPTED)) == 2
    assert pair.settle((4, 4, ACCEPTED), (5, 5, RELEASED), (6, 6, ACCEPTED)) == 3
    assert pair.settle((2, 2, ACCEPTED), (7, 8, ACCEPTED)) == 2
    assert sorted(number for number, _ in pair.outcomes()) == list(range(9))


def test_outcome_with_fields_keeps_them_and_its_place(pair):
    pair.send(4)
    said = [ACCEPTED, rejected("a:b", "why"), ACCEPTED, rejected("a:b")]
    pair.settle(*[(number, None, state) for number, state in enumerate(said)])
    assert pair.outcomes() == list(enumerate(said))
