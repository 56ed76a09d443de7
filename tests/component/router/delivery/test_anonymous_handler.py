"""Deliveries of links without a target: each message names its address (routing-semantics.md 7)."""

import pytest

from tests.peer.frames import ACCEPTED, RELEASED
from tests.peer.talk import consumer, frames, message, messages, of, producer, say, settle, start, transfer

ADDRESSES = 30  # more than a link remembers


class AnonymousProducer:
    """Client with one link without a target."""

    def __init__(self, router, listener="main", **fields):
        self.router = router
        self.sent = 0
        self.peer = router.connect(listener=listener)
        self.peer.feed(start(**fields) + producer(0, None))
        router.settle()
        frames(self.peer)

    def send(self, to, body=b"x"):
        """Send a message. Return the state that the router reports at once, or None."""
        self.peer.feed(transfer(0, self.sent, message(body, to=to)))
        self.sent += 1
        self.router.settle()
        found = [frame for frame in of(frames(self.peer), "disposition") if frame.first == self.sent - 1]
        return found[0].state if found else None


def condition(state):
    """Return the condition of a rejection."""
    return str(state.value[0].value[0])


def connect_consumer(router, address, listener="main", **fields):
    peer = router.connect(listener=listener)
    peer.feed(start(**fields) + consumer(0, address))
    router.settle()
    frames(peer)
    return peer


def bodies(peer):
    """Return the messages received, which are accepted."""
    found = of(frames(peer), "transfer")
    for frame in found:
        peer.feed(settle(frame.delivery_id, state=ACCEPTED))
    return messages(found)


@pytest.fixture
def router(routers):
    return routers()


def test_message_without_address_is_rejected(router):
    assert condition(AnonymousProducer(router).send(None)) == "amqp:precondition-failed"


def test_message_to_unavailable_address_is_rejected(router):
    assert condition(AnonymousProducer(router).send("nobody.a")) == "amqp:not-found"


@pytest.mark.parametrize("address", ["balanced.a", "multicast.a"])
def test_message_to_address_without_consumer_is_released(router, address):
    sending = AnonymousProducer(router)
    assert sending.send(address) == RELEASED
    assert sending.send(address) == RELEASED


def test_anonymous_messages_reach_consumers_of_their_addresses(router):
    """The addresses are more than the link remembers, in an order in which some are used again soon."""
    sending = AnonymousProducer(router)
    peers = [connect_consumer(router, f"balanced.{number}") for number in range(ADDRESSES)]
    for number in [*range(ADDRESSES), *[0, 1, 0, 2] * 5, *reversed(range(ADDRESSES))]:
        body = b"%d" % sending.sent
        sending.send(f"balanced.{number}", body)
        assert [at for at, peer in enumerate(peers) if bodies(peer) == [message(body, to=f"balanced.{number}")]] == [
            number
        ]


def test_remembered_address_follows_changes_of_its_consumers(router):
    sending = AnonymousProducer(router)
    first = connect_consumer(router, "balanced.a")
    for _ in range(2):
        sending.send("balanced.a")
        assert len(bodies(first)) == 1
    first.feed(say("detach", handle=0, closed=True))
    router.settle()
    assert sending.send("balanced.a") == RELEASED
    second = connect_consumer(router, "balanced.a")
    sending.send("balanced.a")
    assert (len(bodies(first)), len(bodies(second))) == (0, 1)


def test_address_of_tenant_is_in_its_own_space(router):
    """On a multi-tenant listener, the host name of the open is the prefix of all mobile addresses."""
    mine = connect_consumer(router, "balanced.a", "tenants", hostname="one")
    other = connect_consumer(router, "balanced.a", "tenants", hostname="two")
    outside = connect_consumer(router, "balanced.a")
    inside = connect_consumer(router, "one/balanced.a")
    sending = AnonymousProducer(router, "tenants", hostname="one")
    for _ in range(2):
        sending.send("balanced.a")
    assert len(bodies(mine) + bodies(inside)) == 2
    assert bodies(other) == bodies(outside) == []
    AnonymousProducer(router).send("balanced.a")
    assert len(bodies(outside)) == 1
