"""Receivers with max-message-size, which get no larger message (routing-semantics.md 8.11; decision 0062)."""

from __future__ import annotations

import pytest

from tests.peer import message
from tests.peer.links import PeerOutcome, PeerReceiver
from tests.peer.peer import AmqpPeer
from tests.peer.types import ULong
from tests.system.fixtures import Connect, Fresh, bodies
from tests.system.networks import CONVERGENCE, TwoRouterNetwork

pytestmark = pytest.mark.adversarial

WORKER_COUNTS = (1, 3)
CONDITION = "amqp:link:message-size-exceeded"
LONG = message.data(bytes(1000))
SHORT = message.data(b"short")
LIMIT = ULong(500)
#: Octets of one frame of a streamed message: the router forwards the first before the second arrives.
PART = 140_000
#: Two parts exceed it, and another worker gets enough of them to notice that before its consumer grants credit.
STREAM_LIMIT = ULong(200_000)


def limited_receiver(peer: AmqpPeer, address: str, credit: int = 100, limit: ULong = LIMIT) -> PeerReceiver:
    """Return a receiver with a max-message-size."""
    return peer.receiver(address, credit, max_message_size=limit)


def check_rejected(outcome: PeerOutcome) -> None:
    assert outcome.name == "rejected"
    assert outcome.error is not None
    assert outcome.error[0] == CONDITION


@pytest.mark.parametrize("prefix", ["balanced", "closest"])
def test_larger_message_goes_to_consumer_without_limit(connect: Connect, fresh: Fresh, prefix: str) -> None:
    address = fresh(prefix)
    small = [limited_receiver(connect(), address) for _ in range(3)]
    large = connect().receiver(address, 100)
    sender = connect().sender(address)
    for _ in range(6):
        number = sender.send(LONG)
        large.next().settle()
        assert sender.outcome(number).name == "accepted"
    for receiver in small:
        receiver.peer.barrier()
        assert receiver.deliveries == []


@pytest.mark.parametrize("prefix", ["balanced", "closest"])
def test_smaller_messages_go_to_all_consumers_in_turn(connect: Connect, fresh: Fresh, prefix: str) -> None:
    address = fresh(prefix)
    receivers = [
        limited_receiver(connect(), address),
        limited_receiver(connect(), address),
        connect().receiver(address, 100),
    ]
    sender = connect().sender(address)
    for number in range(3):
        sender.send(message.message(number), settled=True)
        sender.peer.barrier()
    assert sorted(message.body(receiver.next().payload) for receiver in receivers) == [0, 1, 2]


def test_message_of_exactly_the_limit_is_delivered(connect: Connect, fresh: Fresh) -> None:
    address = fresh()
    receiver = limited_receiver(connect(), address, limit=ULong(len(LONG)))
    sender = connect().sender(address)
    number = sender.send(LONG)
    receiver.next().settle()
    assert sender.outcome(number).name == "accepted"
    check_rejected(sender.request(message.data(bytes(1001))))


def test_message_beyond_all_limits_is_rejected(connect: Connect, fresh: Fresh) -> None:
    address = fresh()
    receivers = [limited_receiver(connect(), address) for _ in range(2)]
    sender = connect().sender(address)
    before = sender.wait_credit()
    check_rejected(sender.request(LONG))
    sender.wait_credit(before)
    number = sender.send(SHORT)
    while not any(each.deliveries for each in receivers):  # bounded by the timeout of the test
        for each in receivers:
            each.peer.barrier()
    receiver = receivers[0] if receivers[0].deliveries else receivers[1]
    receiver.next().settle()
    assert sender.outcome(number).name == "accepted"
    assert [each.detached for each in (sender, *receivers)] == [None] * 3


def test_message_of_anonymous_sender_beyond_limit_is_rejected(connect: Connect, fresh: Fresh) -> None:
    address = fresh()
    limited_receiver(connect(), address)
    sender = connect().sender(None)
    check_rejected(sender.request(message.message("x" * 1000, to=address)))


def test_limit_leaves_with_its_consumer(connect: Connect, fresh: Fresh) -> None:
    address = fresh()
    small = limited_receiver(connect(), address)
    sender = connect().sender(address)
    check_rejected(sender.request(LONG))
    large = connect().receiver(address, 100)
    small.detach()
    number = sender.send(LONG)
    large.next().settle()
    assert sender.outcome(number).name == "accepted"


def test_presettled_message_beyond_all_limits_is_dropped(connect: Connect, fresh: Fresh) -> None:
    address = fresh()
    receiver = limited_receiver(connect(), address)
    sender = connect().sender(address)
    for _ in range(300):
        sender.wait_credit()
        sender.send(LONG, settled=True)
    sender.send(SHORT, settled=True)
    assert receiver.next().payload == SHORT
    assert receiver.detached is None


@pytest.mark.parametrize("settled", [True, False], ids=["presettled", "unsettled"])
def test_multicast_copies_beyond_limit_are_left_out(connect: Connect, fresh: Fresh, settled: bool) -> None:
    address = fresh("multicast")
    small = [limited_receiver(connect(), address) for _ in range(2)]
    large = [connect().receiver(address, 10) for _ in range(2)]
    sender = connect().sender(address)
    number = sender.send(LONG, settled=settled)
    sender.send(SHORT, settled=True)
    for receiver in large:
        first, second = receiver.receive(2)
        assert (first.payload, second.payload) == (LONG, SHORT)
        if not settled:
            first.settle()
    for receiver in small:
        assert receiver.next().payload == SHORT
    if not settled:
        assert sender.outcome(number).name == "accepted"


def test_multicast_beyond_all_limits_is_rejected(connect: Connect, fresh: Fresh) -> None:
    address = fresh("multicast")
    for _ in range(2):
        limited_receiver(connect(), address)
    check_rejected(connect().sender(address).request(LONG))


@pytest.mark.parametrize("credit", [10, 0], ids=["leaving", "queued"])
def test_stream_growing_beyond_limit_is_aborted(connect: Connect, fresh: Fresh, credit: int) -> None:
    address = fresh()
    receiver = limited_receiver(connect(), address, credit, STREAM_LIMIT)
    sender = connect().sender(address)
    number = sender.send(message.data(bytes(PART)), more=True)
    if credit:
        delivery = receiver.next(complete=False)
    sender.send(bytes(PART), more=True)
    sender.send(b"")
    check_rejected(sender.outcome(number))
    if credit:
        receiver.peer.until(lambda: delivery.complete, "the end of the delivery")
        assert delivery.aborted
    else:
        receiver.flow(10)
    number = sender.send(SHORT)
    following = receiver.next()
    following.settle()
    assert following.payload == SHORT
    assert sender.outcome(number).name == "accepted"
    assert (sender.detached, receiver.detached) == (None, None)


def test_stream_with_last_frame_beyond_limit_is_aborted(connect: Connect, fresh: Fresh) -> None:
    address = fresh()
    receiver = limited_receiver(connect(), address, 10, ULong(PART + 50))
    sender = connect().sender(address)
    number = sender.send(message.data(bytes(PART)), more=True)
    delivery = receiver.next(complete=False)
    sender.send(bytes(100))
    check_rejected(sender.outcome(number))
    receiver.peer.until(lambda: delivery.complete, "the end of the delivery")
    assert delivery.aborted


def test_presettled_stream_growing_beyond_limit_is_aborted(connect: Connect, fresh: Fresh) -> None:
    address = fresh()
    receiver = limited_receiver(connect(), address, 10, STREAM_LIMIT)
    sender = connect().sender(address)
    sender.send(message.data(bytes(PART)), more=True, settled=True)
    delivery = receiver.next(complete=False)
    sender.send(bytes(PART), settled=True)
    receiver.peer.until(lambda: delivery.complete, "the end of the delivery")
    assert delivery.aborted
    sender.send(SHORT, settled=True)
    assert receiver.next().payload == SHORT


def test_multicast_stream_is_aborted_for_one_consumer(connect: Connect, fresh: Fresh) -> None:
    address = fresh("multicast")
    small, large = limited_receiver(connect(), address, 10, STREAM_LIMIT), connect().receiver(address, 10)
    sender = connect().sender(address)
    begin, rest = message.data(bytes(PART)), message.data(bytes(PART))
    number = sender.send(begin, more=True)
    delivery = small.next(complete=False)
    sender.send(rest)
    small.peer.until(lambda: delivery.complete, "the end of the delivery")
    assert delivery.aborted
    whole = large.next()
    assert whole.payload == begin + rest
    whole.settle()
    check_rejected(sender.outcome(number))


def test_message_to_limited_consumers_of_another_router_is_rejected(two_routers: TwoRouterNetwork) -> None:
    """The consumers' router chooses the consumer; a message that none of them accepts is rejected at the producer."""
    address = two_routers.fresh("balanced/")
    small = limited_receiver(two_routers.connect(two_routers.b), address)
    sender = two_routers.connect(two_routers.a).sender(address, credit=False)
    sender.wait_credit(timeout=CONVERGENCE)
    check_rejected(sender.request(LONG))
    large = two_routers.connect(two_routers.b).receiver(address, 100)
    for number in range(5):
        sent = sender.send(message.message(f"{number:01000}"))
        delivery = large.next()
        assert bodies([delivery]) == [f"{number:01000}"]
        delivery.settle()
        assert sender.outcome(sent).name == "accepted"
    small.peer.barrier()
    assert small.deliveries == []


def test_limit_excludes_router_annotations(two_routers: TwoRouterNetwork) -> None:
    """Router annotations are removed before the size is compared."""
    address = two_routers.fresh("balanced/")
    receiver = limited_receiver(two_routers.connect(two_routers.b), address, limit=ULong(len(LONG)))
    sender = two_routers.connect(two_routers.a).sender(address, credit=False)
    sender.wait_credit(timeout=CONVERGENCE)
    number = sender.send(LONG)
    receiver.next().settle()
    assert sender.outcome(number).name == "accepted"
    check_rejected(sender.request(message.data(bytes(1001))))


def test_stream_to_limited_consumer_of_another_router_is_aborted(two_routers: TwoRouterNetwork) -> None:
    address = two_routers.fresh("balanced/")
    receiver = limited_receiver(two_routers.connect(two_routers.b), address, 10, STREAM_LIMIT)
    sender = two_routers.connect(two_routers.a).sender(address, credit=False)
    sender.wait_credit(timeout=CONVERGENCE)
    number = sender.send(message.data(bytes(PART)), more=True)
    delivery = receiver.next(complete=False)
    sender.send(bytes(PART))
    check_rejected(sender.outcome(number))
    receiver.peer.until(lambda: delivery.complete, "the end of the delivery")
    assert delivery.aborted
