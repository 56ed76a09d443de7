"""Endpoints of option -T on the real engine: sources of messages, and an address that rejects messages."""

import pytest

from tests.peer.codec import decode
from tests.peer.frames import ACCEPTED, REJECTED, RELEASED
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
from tests.peer.types import UByte

HOOKS = "org.apache.qpid.dispatch.router/test/"
SETTLED_BY_SENDER = 1
UNSETTLED_MOST = 10_000


@pytest.fixture(params=[1, 2])
def router(request, routers):
    return routers(request.param, test_hooks=True)


def receiver(router, name, credit, **fields):
    peer = router.connect()
    peer.feed(start() + consumer(0, HOOKS + name, credit, **fields))
    router.settle()
    return peer, frames(peer)


def sequence_numbers(received):
    """Return the sequence numbers in the messages."""
    found = []
    for octets in messages(received):
        properties, at = decode(octets, 0)
        body, _ = decode(octets, at)
        assert body.value == f"Sequence: {int(properties.value[0])}"
        found.append(int(properties.value[0]))
    return found


@pytest.mark.parametrize("name", ["source", "source_ps"])
def test_source_sends_as_many_as_credit(router, name):
    peer, received = receiver(router, name, 5)
    assert [frame.name for frame in received[-6:]] == ["attach", *["transfer"] * 5]
    seen = sequence_numbers(received)
    assert seen == list(range(seen[0], seen[0] + 5))
    assert [frame.settled or False for frame in of(received, "transfer")] == [name == "source_ps"] * 5
    peer.feed(flow(0, 300, delivery_count=5))
    router.settle()
    assert sequence_numbers(frames(peer)) == list(range(seen[0] + 5, seen[0] + 305))


@pytest.mark.parametrize("state", [ACCEPTED, REJECTED, RELEASED, None])
def test_outcomes_settle_messages_of_source(router, state):
    peer, _ = receiver(router, "source", 10)
    peer.feed(settle(0, 9, state))
    router.settle()
    assert frames(peer) == []
    peer.feed(flow(0, 1, delivery_count=10))
    router.settle()
    assert len(messages(frames(peer))) == 1


def test_source_keeps_bounded_unsettled_messages(router):
    peer, received = receiver(router, "source", MANY)
    assert len(messages(received)) == UNSETTLED_MOST
    peer.feed(settle(0, 99, ACCEPTED))
    router.settle()
    assert len(messages(frames(peer))) == 100


def test_source_honours_settle_mode_of_receiver(router):
    _, received = receiver(router, "source", 3, snd_settle_mode=UByte(SETTLED_BY_SENDER))
    assert [frame.settled for frame in of(received, "transfer")] == [True] * 3


def test_source_with_shut_window_drains_later(router):
    peer = router.connect()
    peer.feed(start(window=4) + consumer(0, HOOKS + "source_ps", 0))
    peer.feed(flow(0, 10, window=4, drain=True))
    router.settle()
    received = frames(peer)
    assert (len(messages(received)), of(received, "flow")) == (4, [])
    peer.feed(say("flow", next_incoming_id=4, incoming_window=MANY, next_outgoing_id=0, outgoing_window=MANY))
    router.settle()
    assert len(messages(frames(peer))) == 6


@pytest.mark.parametrize("how", ["detach", "end", "close", "lose"])
def test_source_of_lost_receiver_is_freed(router, how):
    peer, _ = receiver(router, "source", 200)
    peer.feed(flow(0, 100, window=0, delivery_count=200))
    router.settle()
    if how == "lose":
        peer.lose()
    else:
        peer.feed(say(how, handle=0) if how == "detach" else say(how))
    router.settle()


@pytest.mark.parametrize("size", [10, 40_000, 300_000, 2 << 20])
@pytest.mark.parametrize("target", [HOOKS + "discard", None])
def test_discard_address_rejects_messages(router, size, target):
    peer = router.connect()
    peer.feed(start() + producer(0, target))
    router.settle()
    octets = message(b"x" * size, to=HOOKS + "discard")
    peer.feed(transfer(0, 0, octets) + transfer(0, 1, octets, settled=True) + transfer(0, 2, octets))
    router.settle()
    seen = of(frames(peer), "disposition")
    ended = [each for each in seen if each.settled]
    rejected = {number for each in ended for number in range(each.first, (each.last or each.first) + 1)}
    assert rejected == {0, 2}
    assert {each.state.descriptor for each in seen} == {0x25}
