"""Suspended links of lost brokers, on the real engine: unusual messages that wait, and bounds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from sluice.router.config.load import load_text
from tests.component.engine.host import InProcessPeer, InProcessRouter, configuration
from tests.component.workers.links.test_initiated_link import CONTAINERS, answer, begin
from tests.peer.frames import ACCEPTED, AMQP_HEADER, REJECTED, RELEASED, Frame
from tests.peer.talk import PART, flow, frames, message, messages, of, producer, say, settle, start, transfer
from tests.peer.types import Described, ULong

AUTO_LINK = """
autoLink { address: balanced.own; direction: out; containerId: broker; brokerAbsenceSeconds: 30 }
"""
#: Deliveries that the router releases in one step.
STEP = 1024


class AwaitedBroker:
    """A router whose auto link leads to a broker that may be lost, and a client that sends, by workers."""

    def __init__(self, routers: Any, workers: int) -> None:
        text = configuration(more=CONTAINERS + AUTO_LINK)
        self.router: InProcessRouter = routers(workers, text)
        self.router.core.auto_links.replace(load_text("router.conf", text).auto_links)
        self.broker, self.link = self.connect()
        self.client = self.router.connect(workers - 1)
        self.client.feed(start() + producer(0, "balanced.own"))
        self.router.settle()
        frames(self.client)

    def connect(self, worker: int = 0, **fields: Any) -> tuple[InProcessPeer, Frame]:
        """Connect the broker and accept the router's link. Return it with the router's attach."""
        broker = self.router.connect(worker, listener="containers")
        broker.feed(AMQP_HEADER + say("open", container_id="broker"))
        self.router.settle()
        (attach,) = of(frames(broker), "attach")
        broker.feed(begin(0, 0) + answer(attach, handle=attach.handle, **fields))
        self.router.settle()
        return broker, attach

    def return_with(self, credit: int, worker: int = 0, **fields: Any) -> list[Frame]:
        """Connect the broker again, with credit. Return the frames that it gets."""
        self.broker, self.link = self.connect(worker, **fields)
        self.broker.feed(flow(self.link.handle, credit))
        self.router.settle()
        return frames(self.broker)

    def end(self) -> None:
        """Delete the auto link: nothing waits any more."""
        self.router.core.auto_links.replace([])
        self.router.settle()

    def lose(self) -> None:
        self.broker.lose()
        self.router.settle()

    def send(self, octets: bytes) -> None:
        self.client.feed(octets)
        self.router.settle()

    def outcomes(self) -> list[tuple[int, Any]]:
        """Return first id and state of the dispositions that the client has got."""
        self.router.settle()
        return [(each.first, each.state) for each in of(frames(self.client), "disposition")]


def begin_delivery(octets: bytes) -> bytes:
    """Encode the first frames of a delivery."""
    first = say("transfer", handle=0, delivery_id=0, delivery_tag=b"0", message_format=0, more=True)
    return first + continue_delivery(octets, more=True)


def continue_delivery(octets: bytes, *, more: bool) -> bytes:
    """Encode further frames of the delivery. more: these are not the last ones."""
    parts = [octets[at : at + PART] for at in range(0, len(octets), PART)]
    return b"".join(
        say("transfer", handle=0, more=(more or part is not parts[-1]) or None, payload=part) for part in parts
    )


@pytest.fixture(params=[1, 2], ids=["1-worker", "2-workers"])
def own(request: pytest.FixtureRequest, routers: Any) -> Iterator[AwaitedBroker]:
    own = AwaitedBroker(routers, request.param)
    yield own
    own.end()


def test_message_that_arrives_in_parts_during_absence_is_sent_whole(own: AwaitedBroker) -> None:
    octets = message(b"x" * 300_000)
    own.send(begin_delivery(octets[:100_000]))
    own.lose()
    own.send(continue_delivery(octets[100_000:200_000], more=True))
    own.send(continue_delivery(octets[200_000:], more=False))
    received = own.return_with(10)
    assert messages(received) == [octets]
    own.broker.feed(settle(0, 0, ACCEPTED))
    assert own.outcomes() == [(0, ACCEPTED)]


def test_waiting_message_longer_than_new_limit_of_broker_is_rejected(own: AwaitedBroker) -> None:
    own.send(transfer(0, 0, message(b"x" * 2000)) + transfer(0, 1, message(b"short")))
    own.lose()
    received = own.return_with(10, max_message_size=1000)
    assert messages(received) == [message(b"short")]
    ((first, state),) = own.outcomes()
    assert (first, state.descriptor) == (0, REJECTED.descriptor)


def test_settled_and_unsettled_messages_keep_their_order(own: AwaitedBroker) -> None:
    bodies = [message(b"%d" % number) for number in range(6)]
    for number in range(3):
        own.send(transfer(0, number, bodies[number], settled=number % 2 == 0))
    own.lose()
    for number in range(3, 6):
        own.send(transfer(0, number, bodies[number], settled=number % 2 == 0))
    assert messages(own.return_with(10)) == bodies


def test_transactional_message_during_absence_is_released(own: AwaitedBroker) -> None:
    own.lose()
    own.send(transfer(0, 0, message(b"x"), state=Described(ULong(0x34), [b"t"])))
    assert own.outcomes() == [(0, RELEASED)]


def test_broker_that_returns_to_another_worker_releases_what_waits(routers: Any) -> None:
    own = AwaitedBroker(routers, 2)
    own.send(transfer(0, 0, message(b"x")))
    own.lose()
    assert own.outcomes() == []
    assert messages(own.return_with(10, worker=1)) == []
    assert own.outcomes() == [(0, RELEASED)]
    own.send(transfer(0, 1, message(b"new")))
    assert messages(frames(own.broker)) == [message(b"new")]
    own.end()


def test_half_of_memory_full_of_waiting_messages_releases_further_ones(own: AwaitedBroker) -> None:
    own.lose()
    memory = own.router.workers[0].loop.scheduler.memory
    limit = memory.content_limit
    memory.content_limit = 100_000
    try:
        own.send(transfer(0, 0, message(b"x" * 30_000)) + transfer(0, 1, message(b"x" * 30_000)))
        own.send(transfer(0, 2, message(b"x")))
        outcomes = own.outcomes()
    finally:
        memory.content_limit = limit
    assert [state for _, state in outcomes] == [RELEASED]
    assert len(messages(own.return_with(10))) == 3 - sum(1 for _ in outcomes)


def test_broker_lost_before_its_answer_arrives_leaves_messages_to_next_link(own: AwaitedBroker) -> None:
    own.send(transfer(0, 0, message(b"x")))
    own.lose()
    broker = own.router.connect(listener="containers")
    broker.feed(AMQP_HEADER + say("open", container_id="broker"))
    own.router.settle()
    (attach,) = of(frames(broker), "attach")
    broker.feed(begin(0, 0) + answer(attach, handle=attach.handle))
    broker.lose()
    own.router.settle()
    assert messages(own.return_with(10)) == [message(b"x")]


def test_producer_that_leaves_during_absence_does_not_take_its_messages_along(own: AwaitedBroker) -> None:
    own.send(transfer(0, 0, message(b"x")) + transfer(0, 1, message(b"y"), settled=True))
    own.lose()
    own.client.feed(say("close"))
    own.router.settle()
    assert messages(own.return_with(10)) == [message(b"x"), message(b"y")]


def test_message_that_producer_aborts_during_absence_is_not_sent(own: AwaitedBroker) -> None:
    octets = message(b"x" * 300_000)
    own.send(begin_delivery(octets[:100_000]))
    own.lose()
    own.send(say("transfer", handle=0, aborted=True))
    own.send(transfer(0, 1, message(b"next")))
    assert messages(own.return_with(10)) == [message(b"next")]
