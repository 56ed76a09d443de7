"""Samples of single deliveries that a worker writes for telemetry."""

from typing import Any

import pytest

from sluice.router.stats.snapshot import SampleReader
from tests.component.engine.host import InProcessPeer, InProcessRouter
from tests.peer.frames import ACCEPTED, RELEASED, modified, rejected
from tests.peer.talk import consumer, flow, frames, message, producer, settle, start, transfer

EVERY = 1024  # deliveries of a link for one sample
MOST_BAD = 100  # samples per second of deliveries that were rejected, modified or slow
SECOND_MS = 1000
REJECTED, MODIFIED = 0x25, 0x27


class SampledRouter:
    """Router with telemetry, a consumer and a producer."""

    def __init__(self, routers: Any) -> None:
        self.router: InProcessRouter = routers()
        self.router.region.keep_links(1)  # as the supervisor does when telemetry is on
        self.reader = SampleReader(self.router.region, 0)
        self.consuming = self.attach(consumer(0, "balanced.a"))
        self.sending = self.attach(producer(0, "balanced.a"))
        self.sent = 0

    def attach(self, octets: bytes) -> InProcessPeer:
        peer = self.router.connect()
        peer.feed(start() + octets)
        self.router.settle()
        return peer

    def send(self, count: int = 1, body: bytes = b"x", **fields: Any) -> None:
        for _ in range(count):
            self.sending.feed(transfer(0, self.sent, message(body), **fields))
            self.sent += 1
        self.router.settle()
        frames(self.consuming)
        frames(self.sending)

    def settle(self, first: int, last: int, state: Any) -> None:
        self.consuming.feed(settle(first, last, state) + flow(None))
        self.router.settle()
        frames(self.sending)

    def samples(self) -> list[dict[str, Any]]:
        """Return the samples since the last call."""
        names = ("at", "octets", "link", "generation", "latency", "settle", "kind", "every")
        return [dict(zip(names, row, strict=True)) for row in self.reader.look()]

    def bad_samples(self) -> list[dict[str, Any]]:
        """Return the samples of deliveries that are all recorded, without those of one delivery of many."""
        return [each for each in self.samples() if each["every"] == 1]


@pytest.fixture
def sampled(routers):
    return SampledRouter(routers)


def test_rejected_or_modified_delivery_is_always_a_sample(sampled):
    for number, state in enumerate((ACCEPTED, rejected("a:b"), RELEASED, modified(True))):
        sampled.send()
        sampled.settle(number, number, state)
    assert [each["kind"] for each in sampled.bad_samples()] == [REJECTED, MODIFIED]


def test_slow_delivery_is_a_sample_with_its_age(sampled):
    sampled.send(2)
    sampled.router.pass_time(900)
    sampled.settle(0, 0, ACCEPTED)
    assert sampled.bad_samples() == []
    sampled.router.pass_time(300)
    sampled.settle(1, 1, ACCEPTED)
    (sample,) = sampled.bad_samples()
    assert (sample["settle"] // 1000, sample["link"]) == (1200, 0)


def test_accepted_deliveries_give_one_sample_of_many(sampled):
    for first in range(0, 2 * EVERY, 128):
        sampled.send(128)
        sampled.settle(first, first + 127, ACCEPTED)
    found = sampled.samples()
    assert [(each["every"], each["octets"]) for each in found] == [(EVERY, len(message(b"x")))] * 2
    assert all(each["latency"] is not None and each["settle"] is not None for each in found)


def test_presettled_sample_has_no_time_of_settlement(sampled):
    sampled.send(EVERY, settled=True)
    (sample,) = sampled.samples()
    assert (sample["every"], sample["settle"], sample["kind"]) == (EVERY, None, 0)
    assert sample["latency"] is not None


def test_rejected_deliveries_beyond_bound_of_second_are_no_samples(sampled):
    """A consumer that rejects everything must not push all other samples out of the ring."""
    sampled.router.pass_time(20 * SECOND_MS)  # the process counts, and other tests may have samples in its first second
    sampled.send(MOST_BAD + 50)
    sampled.settle(0, MOST_BAD + 49, rejected("a:b"))
    assert len(sampled.bad_samples()) == MOST_BAD
    sampled.router.pass_time(SECOND_MS)
    sampled.send()
    sampled.settle(MOST_BAD + 50, MOST_BAD + 50, rejected("a:b"))
    assert len(sampled.bad_samples()) == 1


def test_samples_without_telemetry_are_not_written(sampled):
    sampled.router.region.keep_links(0)
    sampled.send()
    sampled.settle(0, 0, rejected("a:b"))
    assert sampled.samples() == []
