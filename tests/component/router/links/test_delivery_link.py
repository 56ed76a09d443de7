"""Frames of outgoing copies: their size, first state and end, and updates of copies that have started."""

from typing import Any

import pytest

from tests.component.engine.host import InProcessPeer, InProcessRouter, configuration
from tests.peer.codec import encode
from tests.peer.frames import ACCEPTED, state_name
from tests.peer.talk import consumer, flow, frames, message, messages, of, producer, say, settle, start, transfer
from tests.peer.types import Described, Symbol, UInt, ULong

SMALL = 512  # octets of the smallest max-frame-size
PART = 70_000  # octets of one frame of a stream; two make the router forward it
MODIFIED = 0x27
LARGE_FRAMES = configuration(listener="maxFrameSize: 100000")


def attached(router: InProcessRouter, octets: bytes, **fields: Any) -> InProcessPeer:
    peer = router.connect()
    peer.feed(start(**fields) + octets)
    router.settle()
    frames(peer)
    return peer


def part(number: int, payload: bytes, *, more: bool = True, **fields: Any) -> bytes:
    """Encode one frame of a delivery."""
    return say(
        "transfer", payload=payload, handle=0, delivery_id=number, delivery_tag=b"t", message_format=0, more=more,
        **fields,
    )  # fmt: skip


@pytest.fixture
def streaming(routers):
    """Router, producer and consumer of a message of which two frames have arrived and left."""
    router = routers(text=LARGE_FRAMES)
    receiving = attached(router, consumer(0, "balanced.a"))
    sending = attached(router, producer(0, "balanced.a"))
    sending.feed(part(0, message(bytes(3 * PART))[:PART]) + part(0, bytes(PART)))
    router.settle()
    return router, sending, receiving


def rest() -> bytes:
    """Return the octets that complete the message of `streaming`."""
    return bytes(len(message(bytes(3 * PART))) - 2 * PART)


def test_frames_are_as_long_as_peer_allows(routers):
    router = routers()
    receiving = attached(router, consumer(0, "balanced.a"), max_frame_size=UInt(SMALL))
    sending = attached(router, producer(0, "balanced.a"))
    octets = message(bytes(range(256)) * 20)
    sending.feed(transfer(0, 0, octets))
    router.settle()
    sent = receiving.take()
    sizes, at = [], 0
    while at < len(sent):
        sizes.append(int.from_bytes(sent[at : at + 4], "big"))
        at += sizes[-1]
    assert max(sizes) <= SMALL
    assert len(sizes) <= len(octets) // (SMALL - 100)


# routing-semantics.md D-4.
def test_state_longer_than_frame_leaves_as_its_kind(routers):
    """The whole state would not fit into the first frame of a consumer with small frames."""
    router = routers()
    receiving = attached(router, consumer(0, "balanced.a"), max_frame_size=UInt(SMALL))
    sending = attached(router, producer(0, "balanced.a"))
    annotations = {Symbol("x"): "y" * SMALL}
    state = Described(ULong(MODIFIED), [None, None, annotations])
    assert len(encode(state)) > SMALL
    sending.feed(transfer(0, 0, message(b"z"), state=state))
    router.settle()
    (frame,) = of(frames(receiving), "transfer")
    assert (state_name(frame.state), frame.state.value[2:]) == ("modified", [])
    assert frame.payload == message(b"z")


def test_message_settled_in_its_last_frame_leaves_settled(streaming):
    router, sending, receiving = streaming
    assert all(not frame.settled for frame in of(frames(receiving), "transfer"))
    sending.feed(part(0, rest(), more=False, settled=True))
    router.settle()
    last = of(frames(receiving), "transfer")[-1]
    assert last.settled
    assert not last.more


def test_message_aborted_by_producer_is_aborted(streaming):
    router, sending, receiving = streaming
    sending.feed(part(0, b"", more=False, aborted=True))
    router.settle()
    last = of(frames(receiving), "transfer")[-1]
    assert (last.aborted, last.payload) == (True, b"")
    sending.feed(transfer(0, 1, message(b"next")))
    router.settle()
    assert messages(frames(receiving)) == [message(b"next")]


def test_aborted_message_without_credit_leaves_no_frame(routers):
    router = routers(text=LARGE_FRAMES)
    receiving = attached(router, consumer(0, "balanced.a", 0))
    sending = attached(router, producer(0, "balanced.a"))
    sending.feed(part(0, message(bytes(3 * PART))[:PART]) + part(0, bytes(PART)))
    sending.feed(part(0, b"", more=False, aborted=True) + transfer(0, 1, message(b"next")))
    receiving.feed(flow(0, 10))
    router.settle()
    heard = of(frames(receiving), "transfer")
    assert [frame.payload for frame in heard] == [message(b"next")]


def test_frame_with_other_delivery_id_closes_connection(streaming):
    router, sending, receiving = streaming
    sending.feed(part(1, b"x"))
    router.settle()
    (close,) = of(frames(sending), "close")
    assert str(close.error.value[0]) == "amqp:session:invalid-field"
    assert of(frames(receiving), "transfer")[-1].aborted


# routing-semantics.md 9.5.
def test_sent_copy_of_lost_producer_is_settled_for_its_consumer(routers):
    """The consumer's settlement would reach nobody. A copy that waits for credit is still delivered."""
    router = routers()
    receiving = attached(router, consumer(0, "multicast.a", 1))
    sending = attached(router, producer(0, "multicast.a"))
    sending.feed(transfer(0, 0, message(b"sent")) + transfer(0, 1, message(b"queued")))
    router.settle()
    assert messages(frames(receiving)) == [message(b"sent")]
    sending.lose()
    router.settle()
    (report,) = of(frames(receiving), "disposition")
    assert (report.role, report.settled, state_name(report.state)) == (False, True, "modified")
    receiving.feed(flow(0, 1, delivery_count=1))
    router.settle()
    (frame,) = of(frames(receiving), "transfer")
    assert (frame.payload, bool(frame.settled)) == (message(b"queued"), False)
    receiving.feed(settle(1, state=ACCEPTED))


def test_closed_link_absorbs_frames_until_its_detach_is_answered(routers):
    router = routers()
    sending = attached(router, producer(0, "balanced.a"))
    (record,) = sending.client.links.by_number.values()
    record.link.close_with("amqp:resource-deleted", "why")
    record.link.close_with("amqp:internal-error", "again")
    router.settle()
    (detach,) = of(frames(sending), "detach")
    assert [str(item) for item in detach.error.value[:2]] == ["amqp:resource-deleted", "why"]
    sending.feed(transfer(0, 0, message(b"x")) + say("detach", handle=0, closed=True))
    sending.feed(producer(0, "balanced.a"))
    router.settle()
    assert [frame.name for frame in frames(sending)] == ["attach"]
