"""Largest message size of a link (AMQP 1.0 part 2, 2.7.3; security.md P-52)."""

import pytest

from sluice.router.control.messages import Limits
from sluice.supervisor.connections.admission import Admit
from tests.peer.frames import ACCEPTED
from tests.peer.talk import consumer, frames, message, of, producer, say, settle, start, transfer

BODY = message(b"x" * 100)


def error(described):
    """Return condition and description."""
    return tuple(str(each) for each in described.value)


@pytest.fixture
def limited_link(connect_limited):
    """(router, producer, consumer). Messages of the producer are limited to the size of `BODY`."""
    router, sender = connect_limited(message=len(BODY))
    receiver = router.connect()
    receiver.feed(start() + consumer(0, "balanced.a", 10))
    sender.feed(producer(0, "balanced.a"))
    router.settle()
    (attached,) = of(frames(sender), "attach")
    assert attached.max_message_size == len(BODY)
    assert not of(frames(receiver), "attach")[0].max_message_size
    return router, sender, receiver


def test_message_of_maximum_size_is_accepted(limited_link):
    router, sender, receiver = limited_link
    sender.feed(transfer(0, 0, BODY) + transfer(0, 1, BODY, part=30))
    router.settle()
    assert len(of(frames(receiver), "transfer")) >= 2
    receiver.feed(settle(0, 1, ACCEPTED))
    router.settle()
    assert not of(frames(sender), "close")


@pytest.mark.parametrize("part", [1000, 40, 1])
@pytest.mark.parametrize("settled", [False, True])
def test_oversized_message_ends_connection(limited_link, part, settled):
    """The message is rejected when its last octet has arrived, then link and connection end."""
    router, sender, receiver = limited_link
    sender.feed(transfer(0, 0, BODY + b"y", part=part, settled=settled))
    router.settle()
    received = frames(sender)
    assert [f.name for f in received if f.name != "flow"] == ["disposition"] * (not settled) + ["detach", "close"]
    if not settled:
        (outcome,) = of(received, "disposition")
        assert (outcome.first, outcome.settled) == (0, True)
        assert error(outcome.state.value[0]) == ("amqp:link:message-size-exceeded", "Message size exceeded")
    (closed,) = of(received, "close")
    assert error(closed.error) == ("amqp:connection:forced", "Message size exceeded")
    assert not [f for f in of(frames(receiver), "transfer") if not f.aborted and not f.more]
    assert router.core.connections.count == 1


@pytest.mark.parametrize("part", [1000, 40])
def test_oversized_message_on_link_route_ends_connection(routers, decide, part):
    """The limit holds as on other links, even before the container has answered."""
    router = routers()
    broker = router.connect(listener="broker")
    broker.feed(start())
    router.settle()
    decide(Admit(Limits(message=len(BODY))))
    sender = router.connect()
    sender.feed(start() + producer(0, "routed.a"))
    router.settle()
    assert of(frames(broker), "attach")
    sender.feed(transfer(0, 0, BODY + b"y", part=part))
    router.settle()
    assert not [f for f in of(frames(broker), "transfer") if not f.aborted and not f.more]
    received = frames(sender)
    assert error(of(received, "close")[0].error) == ("amqp:connection:forced", "Message size exceeded")
    (outcome,) = of(received, "disposition")
    assert (outcome.first, error(outcome.state.value[0])[0]) == (0, "amqp:link:message-size-exceeded")


def test_unfinished_oversized_message_is_dropped(limited_link):
    """Nothing of an unfinished message beyond the limit is kept, and nothing else of its link passes."""
    router, sender, receiver = limited_link
    part = say("transfer", payload=BODY, handle=0, delivery_id=0, delivery_tag=b"0", message_format=0, more=True)
    sender.feed(part * 50)
    router.settle()
    assert not of(frames(sender), "close")
    assert not of(frames(receiver), "transfer")
    sender.feed(say("transfer", handle=0, delivery_id=0, aborted=True))
    sender.feed(transfer(0, 1, BODY))
    router.settle()
    assert len(of(frames(receiver), "transfer")) == 1


def test_message_without_limit_passes(connect_limited):
    router, sender = connect_limited()
    sender.feed(producer(0, "balanced.a"))
    receiver = router.connect()
    receiver.feed(start() + consumer(0, "balanced.a", 10))
    router.settle()
    sender.feed(transfer(0, 0, message(b"x" * 5000), part=1000))
    router.settle()
    assert of(frames(receiver), "transfer")
