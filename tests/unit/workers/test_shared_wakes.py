"""Outcomes for a sleeping worker: delayed for a short time, so that they can share a wake with other records."""

from collections.abc import Iterator
from typing import Any

import pytest
from workers.testing import PatientPoller

from tests.peer.frames import ACCEPTED
from tests.unit.engine.host import InProcessWorker, Peer, Router
from tests.unit.engine.talk import consumer, frames, message, of, producer, settle, start, transfer

CONSUMING, PRODUCING = 0, 1
FEWEST_AT_ONCE = 16


class PatientWorker(InProcessWorker):
    def make_poller(self) -> Any:
        return PatientPoller()


class Pair:
    """Consumer and producer on two workers that sleep."""

    def __init__(self) -> None:
        self.router = Router(2, worker_types=[PatientWorker, PatientWorker])
        self.consumer = self.enter(CONSUMING, consumer(0, "balanced.a"))
        self.producer = self.enter(PRODUCING, producer(0, "balanced.a"))
        self.sent = self.settled = 0
        self.sleep()

    def enter(self, worker: int, octets: bytes) -> Peer:
        peer = self.router.connect(worker)
        peer.feed(start() + octets)
        self.router.settle()
        frames(peer)
        return peer

    def sleep(self) -> None:
        """Run each worker until it would sleep. A worker is woken only by the other one."""
        self.router._run_all()

    def send(self) -> None:
        self.producer.put(transfer(0, self.sent, message(b"x")))
        self.sent += 1
        self.sleep()
        assert len(of(frames(self.consumer), "transfer")) == 1

    def accept(self) -> None:
        self.consumer.put(settle(self.settled, state=ACCEPTED))
        self.settled += 1
        self.sleep()

    def outcomes(self) -> int:
        return sum((frame.last or frame.first) - frame.first + 1 for frame in of(frames(self.producer), "disposition"))

    def counted(self, name: str) -> int:
        return int(self.router.region.worker_counters(CONSUMING)[name])


@pytest.fixture
def pair() -> Iterator[Pair]:
    made = Pair()
    yield made
    made.router.settle()
    made.router.check_quiet()
    made.router.close()


def test_an_outcome_comes_with_the_next_transfer_and_wakes_nobody(pair: Pair) -> None:
    pair.send()
    signals = pair.counted("signals")
    pair.accept()
    assert pair.outcomes() == 0
    pair.send()
    assert pair.outcomes() == 1
    assert (pair.counted("signals"), pair.counted("shared_wakes")) == (signals, 1)


def test_an_outcome_that_nothing_follows_comes_soon(pair: Pair) -> None:
    pair.send()
    signals = pair.counted("signals")
    pair.accept()
    assert pair.outcomes() == 0
    pair.router.workers[CONSUMING].poller.time_ns += 2_000_000
    pair.sleep()
    assert pair.outcomes() == 1
    assert (pair.counted("signals"), pair.counted("shared_wakes")) == (signals + 1, 0)


def test_who_waits_for_each_outcome_does_so_once_in_many(pair: Pair) -> None:
    """After an outcome that waited in vain, the next outcomes do not wait."""
    pair.send()
    pair.accept()
    pair.router.workers[CONSUMING].poller.time_ns += 2_000_000
    pair.sleep()
    assert pair.outcomes() == 1
    for _ in range(FEWEST_AT_ONCE):
        pair.send()
        pair.accept()
        assert pair.outcomes() == 1
    pair.send()
    pair.accept()
    assert pair.outcomes() == 0


def test_records_that_cannot_wait_take_outcomes_along(pair: Pair) -> None:
    other = pair.enter(CONSUMING, producer(0, "balanced.b"))
    taking = pair.enter(PRODUCING, consumer(0, "balanced.b"))
    pair.sleep()
    pair.send()
    pair.accept()
    assert pair.outcomes() == 0
    other.put(transfer(0, 0, message(b"y")))
    pair.sleep()
    assert len(of(frames(taking), "transfer")) == 1
    assert pair.outcomes() == 1
