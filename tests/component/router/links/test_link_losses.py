"""Deliveries and credit that must survive the end of links, crossing flows, and wrapping numbers."""

import pytest

from tests.component.engine.routed_ends import routed_ends, sending
from tests.peer.frames import ACCEPTED, RELEASED
from tests.peer.talk import (
    MANY,
    consumer,
    flow,
    frames,
    message,
    messages,
    of,
    producer,
    say,
    settle,
    start,
    transfer,
)
from tests.peer.types import Described, Raw, ULong

__all__ = ["routed_ends"]

CAPACITY = 250
PARTS = 30_000  # octets: two frames


def outcomes(peer):
    """Return (delivery-id, state, settled) of each delivery that the peer has received a disposition for."""
    return [
        (number, told.state, bool(told.settled))
        for told in of(frames(peer), "disposition")
        for number in range(told.first, (told.first if told.last is None else told.last) + 1)
    ]


@pytest.mark.parametrize("workers", [1, 2])
def test_lost_consumer_with_backlog_releases_only_its_deliveries(routers, workers):
    """Delivery 0 of a session is with one consumer. A delivery that waits for another consumer of the session has no
    id yet."""
    router = routers(workers)
    receiver = router.connect(0)
    receiver.feed(start() + consumer(0, "balanced.a", 10) + consumer(1, "balanced.b", 0))
    router.settle()
    sender = router.connect(workers - 1)
    sender.feed(start() + producer(0, "balanced.a") + producer(1, "balanced.b"))
    router.settle()
    sender.feed(transfer(0, 0, message(b"a")) + transfer(1, 1, message(b"b")))
    router.settle()
    assert messages(frames(receiver)) == [message(b"a")]
    frames(sender)
    receiver.feed(say("detach", handle=1, closed=True))
    router.settle()
    assert outcomes(sender) == [(1, RELEASED, True)]
    receiver.feed(settle(0, state=ACCEPTED))
    router.settle()
    assert outcomes(sender) == [(0, ACCEPTED, True)]


def test_answer_to_cancelled_drain_keeps_credit(routers):
    router = routers()
    receiver, sender = router.connect(), router.connect()
    receiver.feed(start() + consumer(0, "balanced.a", 10))
    router.settle()
    sender.feed(start() + producer(0, "balanced.a"))
    receiver.feed(say("detach", handle=0, closed=True))
    router.settle()
    sender.feed(transfer(0, 0, message(b"nobody")))
    router.settle()
    assert of(frames(sender), "flow")[-1].drain
    receiver.feed(consumer(1, "balanced.a", 1000))
    router.settle()
    granted = of(frames(sender), "flow")[-1]
    assert (granted.delivery_count, granted.link_credit) == (1, CAPACITY)
    sender.feed(flow(0, 0, delivery_count=CAPACITY, drain=True))  # the peer has not read the second flow yet
    router.settle()
    granted = of(frames(sender), "flow")[-1]
    assert (granted.delivery_count, granted.link_credit) == (CAPACITY, CAPACITY)


@pytest.mark.parametrize("credit", [2**31 - 1, 2**31, 2**32 - 1])
def test_consumer_may_grant_any_credit(routers, credit):
    router = routers()
    receiver, sender = router.connect(), router.connect()
    receiver.feed(start() + consumer(0, "balanced.a", credit))
    router.settle()
    sender.feed(start() + producer(0, "balanced.a"))
    router.settle()
    for number in range(3):
        sender.feed(transfer(0, number, message(b"x"), settled=True))
    router.settle()
    assert len(messages(frames(receiver))) == 3


@pytest.mark.parametrize("workers", [1, 2])
def test_modified_without_fields_is_relayed_unchanged(routers, workers):
    """Modified is encoded as an empty list, as by some clients. The router's own short form has delivery-failed."""
    empty = Raw(bytes.fromhex("00532745"))
    router = routers(workers)
    receiver, sender = router.connect(0), router.connect(workers - 1)
    receiver.feed(start() + consumer(0, "balanced.a"))
    router.settle()
    sender.feed(start() + producer(0, "balanced.a"))
    router.settle()
    sender.feed(transfer(0, 0, message(b"x")))
    router.settle()
    frames(receiver)
    receiver.feed(settle(0, state=empty))
    router.settle()
    assert outcomes(sender) == [(0, Described(ULong(0x27), []), True)]


@pytest.mark.parametrize("end", ["end", "close", "lost"])
def test_settled_messages_before_the_end_of_a_session_arrive(routed_ends, end):
    """More messages wait for the container's window than its worker may hold."""
    router, container, client = routed_ends
    sending(routed_ends, credit=100)
    container.say("flow", next_incoming_id=0, incoming_window=0, next_outgoing_id=0, outgoing_window=MANY)
    frames(container.peer)
    sent = [message(b"%d" % number * 10_000) for number in range(60)]
    for number, octets in enumerate(sent):
        client.feed(transfer(0, number, octets, settled=True))
    router.settle()
    if end == "lost":
        client.lose()
    else:
        client.feed(say(end))
    router.settle()
    container.say("flow", next_incoming_id=0, incoming_window=1000, next_outgoing_id=0, outgoing_window=MANY)
    heard = frames(container.peer)
    assert messages(heard) == sent
    assert heard[-1].name == "detach"


def test_drain_answer_behind_waiting_deliveries_keeps_count(routed_ends):
    router, container, client = routed_ends
    client.feed(consumer(0, "queue.a", 0))
    container.accept()
    client.feed(flow(0, 5, window=1))
    router.settle()
    for number in range(3):
        container.peer.feed(transfer(40, number, message(b"%d" % number), settled=True, channel=7))
    router.settle()
    assert len(messages(frames(client))) == 1  # two wait for the window
    client.feed(
        say("flow", next_incoming_id=1, incoming_window=0, next_outgoing_id=0, outgoing_window=MANY, handle=0,
            delivery_count=1, link_credit=4, drain=True)
    )  # fmt: skip
    router.settle()
    container.say("flow", next_incoming_id=0, incoming_window=MANY, next_outgoing_id=3, outgoing_window=MANY,
                  handle=40, delivery_count=5, link_credit=0, drain=True)  # fmt: skip
    client.feed(
        say("flow", next_incoming_id=1, incoming_window=0, next_outgoing_id=0, outgoing_window=MANY, handle=0,
            delivery_count=1, link_credit=14)
    )  # fmt: skip
    router.settle()
    granted = of(frames(container.peer), "flow")[-1]
    assert granted.delivery_count + granted.link_credit == 15
    for number in range(3, 8):
        container.peer.feed(transfer(40, number, message(b"%d" % number), settled=True, channel=7))
    router.settle()
    client.feed(say("flow", next_incoming_id=1, incoming_window=100, next_outgoing_id=0, outgoing_window=MANY))
    router.settle()
    heard = frames(client)
    assert len(messages(heard)) == 7
    assert of(heard, "flow")[-1].delivery_count == 10  # eight arrived, two were given back
