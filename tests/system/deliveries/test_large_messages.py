"""Large, streaming, aborted and truncated messages (routing-semantics.md 11.6, 11.7)."""

import socket
import threading

import pytest

from tests.peer import message
from tests.peer.links import PeerReceiver, PeerSender
from tests.system.fixtures import Connect, Fresh, pair
from tests.system.router import Section, listener

pytestmark = pytest.mark.adversarial

WORKER_COUNTS = (1, 3)
SECTIONS: list[Section] = [listener("open", stripAnnotations="no")]
#: Octets of a body far above the limit at which a message streams.
LARGE = 600_000
CONTENT = message.data(bytes(n * 7 & 0xFF for n in range(LARGE)))


def barrier_both(sender: PeerSender, receiver: PeerReceiver) -> None:
    """Make a round trip at both ends."""
    sender.peer.barrier()
    receiver.peer.barrier()


def begin_stream(connect: Connect, address: str, credit: int = 10) -> tuple[PeerSender, int, PeerReceiver]:
    """Send a first part of a message that reaches the consumer, and return sender, delivery-id and receiver."""
    sender, receiver = pair(connect, address, credit)
    number = sender.send(CONTENT[:300_000], more=True)
    receiver.next(complete=False)
    return sender, number, receiver


@pytest.mark.parametrize("size", [0, 1, 511, 512, 16_000, 16_384, 65_536, 131_071, 131_072, 200_000, 1_000_000])
@pytest.mark.parametrize("settled", [True, False], ids=["presettled", "unsettled"])
def test_message_of_any_size_arrives_unchanged(connect: Connect, fresh: Fresh, size: int, settled: bool) -> None:
    sender, receiver = pair(connect, fresh())
    payload = message.data(bytes(n & 0xFF for n in range(size)))
    number = sender.send(payload, settled=settled)
    delivery = receiver.next()
    assert delivery.payload == payload
    if not settled:
        delivery.settle()
        assert sender.outcome(number).name == "accepted"


def test_forwarding_starts_when_complete_or_streaming(connect: Connect, fresh: Fresh) -> None:
    sender, receiver = pair(connect, fresh())
    payload = CONTENT
    for at in range(0, 128_000, 16_000):
        sender.send(payload[at : at + 16_000], more=True)
    barrier_both(sender, receiver)
    assert not receiver.deliveries, "forwarded with 128000 octets received"
    sender.send(payload[128_000:133_000], more=True)
    delivery = receiver.next(complete=False)
    receiver.peer.until(lambda: len(delivery.payload) >= 131_072, "what has been received so far")
    sender.send(payload[133_000:])
    receiver.peer.until(lambda: delivery.complete, "the whole message")
    assert delivery.payload == payload


def test_incomplete_small_message_is_not_forwarded(connect: Connect, fresh: Fresh) -> None:
    sender, receiver = pair(connect, fresh())
    payload = message.message("in two frames")
    sender.send(payload[:5], more=True)
    barrier_both(sender, receiver)
    assert not receiver.deliveries
    sender.send(payload[5:])
    assert receiver.next().payload == payload


def test_stream_annotation_forwards_at_once(connect: Connect, fresh: Fresh) -> None:
    sender, receiver = pair(connect, fresh(), into="open")
    payload = message.annotations({"x-opt-qd.stream": 1}) + message.data(bytes(3000))
    sender.send(payload[:1500], more=True)
    delivery = receiver.next(complete=False)
    assert not delivery.complete
    sender.send(payload[1500:])
    receiver.peer.until(lambda: delivery.complete, "the rest")
    assert message.body(delivery.payload) == bytes(3000)


def test_frames_fit_frame_size_of_each_consumer(connect: Connect, fresh: Fresh) -> None:
    address = fresh("multicast")
    small = connect(max_frame_size=512).receiver(address, 5)
    large = connect(max_frame_size=1_000_000).receiver(address, 5)
    sender = connect().sender(address)
    sender.send(CONTENT, settled=True)
    for receiver in (small, large):
        assert receiver.next().payload == CONTENT
    assert max(frame.size for frame in small.deliveries[0].transfers) <= 512
    assert max(frame.size for frame in large.deliveries[0].transfers) > 512


def test_tiny_frames_from_producer_are_assembled(connect: Connect, fresh: Fresh) -> None:
    sender, receiver = pair(connect, fresh())
    payload = message.annotations({"user": "x" * 40}) + message.message("tiny", subject="s" * 40)
    for at in range(len(payload) - 1):
        sender.send(payload[at : at + 1], more=True)
    sender.send(payload[-1:])
    assert receiver.next().payload == payload


def test_continuation_frames_name_one_delivery(connect: Connect, fresh: Fresh) -> None:
    """Every frame of a delivery has the same delivery-id; only the last frame lacks `more`."""
    address = fresh()
    receiver = connect(max_frame_size=512).receiver(address, 5)
    connect().sender(address).send(message.data(bytes(4000)), settled=True)
    frames = receiver.next().transfers
    assert len(frames) > 8
    assert {frame.delivery_id for frame in frames} <= {frames[0].delivery_id, None}
    assert [bool(frame.more) for frame in frames] == [True] * (len(frames) - 1) + [False]


# --- 11.7 -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("settled", [True, False], ids=["presettled", "unsettled"])
def test_abort_before_forwarding_sends_nothing(connect: Connect, fresh: Fresh, settled: bool) -> None:
    sender, receiver = pair(connect, fresh())
    number = sender.send(bytes(message.data(bytes(50_000)))[:20_000], more=True, settled=settled)
    sender.abort()
    marker = sender.send(message.message("next"))
    delivery = receiver.next()
    assert message.body(delivery.payload) == "next"
    delivery.settle()
    sender.outcome(marker)
    assert number not in sender.session.outcomes
    for _ in range(300):
        sender.wait_credit()
        sender.send(b"\x00", more=True)
        sender.abort()
    sender.wait_credit(125)


@pytest.mark.parametrize("settled", [True, False], ids=["presettled", "unsettled"])
def test_abort_after_forwarding_reaches_consumer(connect: Connect, fresh: Fresh, settled: bool) -> None:
    sender, receiver = pair(connect, fresh())
    sender.send(CONTENT[:300_000], more=True, settled=settled)
    delivery = receiver.next(complete=False)
    sender.abort()
    receiver.peer.until(lambda: delivery.complete, "abort")
    last = delivery.transfers[-1]
    assert (last.aborted, last.settled, last.payload) == (True, True, b"")
    assert len({frame.delivery_id for frame in delivery.transfers} - {None}) == 1
    sender.send(message.message("next"), settled=True)
    assert message.body(receiver.next().payload) == "next"
    sender.wait_credit(125)


def test_abort_of_multicast_stream_reaches_each_consumer(connect: Connect, fresh: Fresh) -> None:
    address = fresh("multicast")
    receivers = [connect().receiver(address, 5) for _ in range(3)]
    sender = connect().sender(address)
    sender.send(CONTENT[:300_000], more=True)
    begun = [receiver.next(complete=False) for receiver in receivers]
    sender.abort()
    for receiver, delivery in zip(receivers, begun, strict=True):
        receiver.peer.until(lambda d=delivery: d.complete, "abort")  # type: ignore[misc]
        assert delivery.aborted
    sender.send(message.message("next"), settled=True)
    for receiver in receivers:
        assert message.body(receiver.next().payload) == "next"


@pytest.mark.parametrize("way", ["detach", "close", "drop"])
def test_complete_message_of_departed_producer_arrives(connect: Connect, fresh: Fresh, way: str) -> None:
    """All octets sent are delivered, however fast the producer leaves (routing-semantics.md M-14)."""
    sender, receiver = pair(connect, fresh())
    sender.send(CONTENT, settled=True)
    if way == "detach":
        sender.send_detach()
    elif way == "close":
        sender.peer.frame("close")
    else:
        # Not closed: with an unread flow that would be a reset, which discards octets that the router has not read.
        sender.peer.socket.shutdown(socket.SHUT_WR)
    delivery = receiver.next()
    assert not delivery.aborted
    assert delivery.payload == CONTENT


def test_settlement_on_later_frame_is_relayed(connect: Connect, fresh: Fresh) -> None:
    sender, number, receiver = begin_stream(connect, fresh())
    sender.send(CONTENT[300_000:], settled=True)
    delivery = receiver.deliveries[0]
    receiver.peer.until(lambda: delivery.complete, "the end")
    assert delivery.settled
    assert delivery.payload == CONTENT
    sender.peer.barrier()
    assert number not in sender.session.outcomes


def test_presettled_stream_arrives_unchanged(connect: Connect, fresh: Fresh) -> None:
    sender, receiver = pair(connect, fresh())
    sender.send(CONTENT[:300_000], more=True, settled=True)
    delivery = receiver.next(complete=False)
    assert delivery.settled
    sender.send(CONTENT[300_000:], settled=True)
    receiver.peer.until(lambda: delivery.complete, "the end")
    assert delivery.payload == CONTENT


@pytest.mark.parametrize("anonymous", [True, False], ids=["anonymous", "targeted"])
def test_stream_without_destination_is_released(connect: Connect, fresh: Fresh, anonymous: bool) -> None:
    """The stream is released at once, its rest is discarded, then it is settled (routing-semantics.md M-11)."""
    address = fresh()
    if anonymous:
        sender = connect().sender()
    else:
        sender, receiver = pair(connect, address)
        receiver.detach()
    content = message.properties(to=address) + CONTENT
    number = sender.send(content[:300_000], more=True)
    assert sender.outcome(number, settled=False).name == "released"
    sender.send(content[300_000:])
    outcome = sender.outcome(number)
    assert (outcome.name, outcome.settled) == ("released", True)


def test_streams_interleaved_in_session_arrive_unchanged(connect: Connect, fresh: Fresh) -> None:
    """Frames of two deliveries on two links of one session may interleave."""
    one, two = fresh(), fresh()
    receivers = [connect().receiver(one, 5), connect().receiver(two, 5)]
    peer = connect()
    senders = [peer.sender(one), peer.sender(two)]
    step = 15_000
    for at in range(0, len(CONTENT), step):
        for sender in senders:
            sender.send(CONTENT[at : at + step], more=at + step < len(CONTENT), settled=True)
    for receiver in receivers:
        assert receiver.next().payload == CONTENT


def test_streams_on_one_link_arrive_consecutively(connect: Connect, fresh: Fresh) -> None:
    """AMQP forbids interleaving on a link: the second message follows the first, both complete."""
    address = fresh()
    first, _number, receiver = begin_stream(connect, address)
    second = connect().sender(address)
    second.send(CONTENT[:100_000], settled=True)
    first.send(CONTENT[300_000:])
    assert receiver.deliveries[0].payload == CONTENT[: len(receiver.deliveries[0].payload)]
    receiver.peer.until(lambda: receiver.deliveries[0].complete, "the first")
    assert receiver.next().payload == CONTENT[:100_000]
    assert receiver.deliveries[0].payload == CONTENT


def test_large_messages_beyond_socket_buffers_arrive(connect: Connect, fresh: Fresh) -> None:
    """The producer is slowed down when all socket buffers are full, and no message is lost."""
    sender, receiver = pair(connect, fresh(), credit=100)
    count = 20
    numbers: list[int] = []
    producer = threading.Thread(target=lambda: numbers.extend(sender.send(CONTENT) for _ in range(count)))
    producer.start()
    for _ in range(count):
        delivery = receiver.next()
        assert delivery.payload == CONTENT
        delivery.settle()
    producer.join()
    assert {sender.outcome(number).name for number in numbers} == {"accepted"}
