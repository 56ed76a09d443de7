"""Outcomes for a sleeping worker: delayed for a short time, so that they can share a wake with other records."""

from collections.abc import Iterator
from typing import Any

import pytest

from sluice.workers.testing import PrecisePoller
from tests.component.engine.host import InProcessPeer, InProcessRouter, InProcessWorker
from tests.peer.frames import ACCEPTED
from tests.peer.talk import consumer, frames, message, of, producer, settle, start, transfer

CONSUMING, PRODUCING = 0, 1
FEWEST_AT_ONCE = 16


class PatientWorker(InProcessWorker):
    def make_poller(self) -> Any:
        return PrecisePoller()


class SleepingPair:
    """Consumer and producer on two workers that sleep."""

    def __init__(self) -> None:
        self.router = InProcessRouter(2, worker_types=[PatientWorker, PatientWorker])
        self.consumer = self.enter(CONSUMING, consumer(0, "balanced.a"))
        self.producer = self.enter(PRODUCING, producer(0, "balanced.a"))
        self.sent = self.settled = 0
        self.sleep()

    def enter(self, worker: int, octets: bytes) -> InProcessPeer:
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

    def counter(self, name: str) -> int:
        return int(self.router.region.worker_counters(CONSUMING)[name])


@pytest.fixture
def pair() -> Iterator[SleepingPair]:
    made = SleepingPair()
    yield made
    made.router.settle()
    made.router.check_quiet()
    made.router.close()


def test_outcome_shares_wake_with_next_transfer(pair: SleepingPair) -> None:
    pair.send()
    signals = pair.counter("signals")
    pair.accept()
    assert pair.outcomes() == 0
    pair.send()
    assert pair.outcomes() == 1
    assert (pair.counter("signals"), pair.counter("shared_wakes")) == (signals, 1)


def test_outcome_alone_arrives_after_short_wait(pair: SleepingPair) -> None:
    pair.send()
    signals = pair.counter("signals")
    pair.accept()
    assert pair.outcomes() == 0
    pair.router.workers[CONSUMING].poller.time_ns += 2_000_000
    pair.sleep()
    assert pair.outcomes() == 1
    assert (pair.counter("signals"), pair.counter("shared_wakes")) == (signals + 1, 0)


def test_producer_waiting_for_outcomes_is_delayed_rarely(pair: SleepingPair) -> None:
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


def test_urgent_records_carry_outcomes_along(pair: SleepingPair) -> None:
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
