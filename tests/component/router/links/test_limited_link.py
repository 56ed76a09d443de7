"""Consumers with max-message-size whose messages turn out too long while they stream (routing-semantics.md F-22)."""

from typing import Any

import pytest

from sluice.router.testing.engine import live_objects
from tests.component.engine.host import InProcessPeer, InProcessRouter
from tests.peer.frames import ACCEPTED
from tests.peer.talk import consumer, flow, frames, message, messages, of, producer, settle, start, transfer
from tests.peer.types import ULong

LIMIT = 200_000  # octets; a message is routed at 128 KiB, before it is known to be longer
LONG = message(bytes(300_000))
SHORT = message(b"short")


def attached(router: InProcessRouter, octets: bytes) -> InProcessPeer:
    peer = router.connect()
    peer.feed(start() + octets)
    router.settle()
    frames(peer)
    return peer


def limited(router: InProcessRouter, address: str, credit: int = 10) -> InProcessPeer:
    return attached(router, consumer(0, address, credit, max_message_size=ULong(LIMIT)))


def stream(router: InProcessRouter, peer: InProcessPeer, number: int = 0, **fields: Any) -> Any:
    """Send the long message. Return the last disposition that the producer received, or None."""
    peer.feed(transfer(0, number, LONG, **fields))
    router.settle()
    found = of(frames(peer), "disposition")
    return found[-1] if found else None


def test_stream_beyond_limit_is_aborted_and_rejected(routers):
    router = routers()
    receiving = limited(router, "balanced.a")
    sending = attached(router, producer(0, "balanced.a"))
    report = stream(router, sending)
    assert report.settled
    assert report.state.value[0].value[0] == "amqp:link:message-size-exceeded"
    last = of(frames(receiving), "transfer")[-1]
    assert (last.aborted, last.more) == (True, False)
    sending.feed(transfer(0, 1, SHORT))
    router.settle()
    assert messages(frames(receiving)) == [SHORT]


def test_stream_within_limit_arrives(routers):
    router = routers()
    receiving = limited(router, "balanced.a")
    sending = attached(router, producer(0, "balanced.a"))
    octets = message(bytes(LIMIT - 8))
    assert len(octets) == LIMIT
    sending.feed(transfer(0, 0, octets))
    router.settle()
    assert messages(frames(receiving)) == [octets]


def test_queued_stream_beyond_limit_is_dropped_before_its_first_frame(routers):
    router = routers()
    receiving = limited(router, "balanced.a", credit=0)
    sending = attached(router, producer(0, "balanced.a"))
    assert stream(router, sending).settled
    receiving.feed(flow(0, 10))
    sending.feed(transfer(0, 1, SHORT))
    router.settle()
    heard = frames(receiving)
    assert messages(heard) == [SHORT]
    assert [frame.delivery_id for frame in of(heard, "transfer")] == [0]


def test_rejected_stream_is_freed(routers):
    router = routers()
    limited(router, "balanced.a", credit=0)
    sending = attached(router, producer(0, "balanced.a"))
    before = live_objects()
    stream(router, sending)
    assert live_objects() == before


def test_consumer_without_limit_gets_stream_that_other_refuses(routers):
    router = routers()
    receiving = limited(router, "multicast.a")
    other = attached(router, consumer(0, "multicast.a"))
    sending = attached(router, producer(0, "multicast.a"))
    assert stream(router, sending) is None
    assert messages(frames(other)) == [LONG]
    assert of(frames(receiving), "transfer")[-1].aborted
    other.feed(settle(0, state=ACCEPTED))
    router.settle()
    (report,) = of(frames(sending), "disposition")
    assert report.settled


@pytest.mark.parametrize("credit", [0, 10])
def test_presettled_stream_beyond_limit_counts_as_dropped(routers, credit):
    router = routers()
    receiving = limited(router, "balanced.a", credit)
    sending = attached(router, producer(0, "balanced.a"))
    assert stream(router, sending, settled=True) is None
    (record,) = receiving.client.links.by_number.values()
    counters = router.region.link_counters(0, record.slot.index)
    assert (counters["dropped_presettled"], counters["presettled"], counters["undelivered"]) == (1, 1, 0)
