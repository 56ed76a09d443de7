"""Deliveries that no consumer of their address takes: fallback, release, refusal, or withheld credit."""

from typing import Any

import pytest

from tests.component.engine.host import InProcessPeer, InProcessRouter, configuration
from tests.component.engine.path_comparison import ONE_USER
from tests.peer.frames import ACCEPTED, RELEASED, source, target
from tests.peer.talk import consumer, flow, frames, key, message, messages, of, producer, say, settle, start, transfer
from tests.peer.types import ULong

CAPACITY = 4  # of links of the listener "kept"


def attached(router: InProcessRouter, octets: bytes, listener: str = "main", **fields: Any) -> InProcessPeer:
    """Connect a client and attach its links."""
    peer = router.connect(listener=listener)
    peer.feed(start(**fields) + octets)
    router.settle()
    return peer


def fallback_consumer(handle: int, address: str) -> bytes:
    standing_in = source(address, capabilities=key("qd.fallback"))
    return say("attach", name="f", handle=handle, role=True, source=standing_in, target=target()) + flow(handle, 10)


def outcomes(router: InProcessRouter, peer: InProcessPeer) -> list[Any]:
    """Return the states of the dispositions that a producer received."""
    router.settle()
    return [frame.state for frame in of(frames(peer), "disposition")]


def condition(state: Any) -> str:
    """Return the condition of a rejection."""
    return str(state.value[0].value[0])


def received(router: InProcessRouter, peer: InProcessPeer) -> list[bytes]:
    router.settle()
    return messages(frames(peer))


def address_counters(router: InProcessRouter, record_key: str) -> Any:
    return router.region.address_totals(router.core.table.records[record_key].id)


# -- no consumer


def test_fallback_gets_messages_only_without_consumers(routers):
    router = routers()
    spare = attached(router, fallback_consumer(0, "spare.a"))
    sending = attached(router, producer(0, "spare.a"))
    sending.feed(transfer(0, 0, message(b"redirected")))
    assert received(router, spare) == [message(b"redirected")]
    consuming = attached(router, consumer(0, "spare.a"))
    sending.feed(transfer(0, 1, message(b"direct")))
    assert received(router, consuming) == [message(b"direct")]
    assert received(router, spare) == []
    counters = address_counters(router, "M0spare.a")
    assert (counters["ingress"], counters["redirected"]) == (2, 1)


# routing-semantics.md 5, K-6.
def test_producer_of_lost_consumer_gets_no_credit_until_the_next(routers):
    router = routers()
    consuming = attached(router, consumer(0, "closest.a"))
    sending = attached(router, producer(0, "closest.a"), listener="kept")
    consuming.feed(say("detach", handle=0, closed=True))
    router.settle()
    frames(sending)
    sending.feed(transfer(0, 0, message(b"x")))
    router.settle()
    heard = frames(sending)
    assert [frame.state for frame in of(heard, "disposition")] == [RELEASED]
    assert of(heard, "flow")[-1].drain
    sending.feed(flow(0, 0, delivery_count=CAPACITY, drain=True))
    router.settle()
    assert frames(sending) == []
    attached(router, consumer(0, "closest.a"))
    granted = of(frames(sending), "flow")[-1]
    assert (granted.delivery_count, granted.link_credit) == (CAPACITY, CAPACITY)


def test_anonymous_message_without_consumer_keeps_credit(routers):
    """An anonymous link serves any address, so one without consumers must not take its credit."""
    router = routers()
    sending = attached(router, producer(0, None), listener="kept")
    assert of(frames(sending), "flow")[-1].link_credit == CAPACITY
    for number in range(3 * CAPACITY):
        sending.feed(transfer(0, number, message(b"x", to="closest.nobody")))
        heard = (router.settle(), frames(sending))[1]
        assert [frame.state for frame in of(heard, "disposition")] == [RELEASED]
        assert of(heard, "flow")[-1].delivery_count == number + 1


# -- exchanges


def test_exchange_accepts_message_for_its_consumers(routers):
    router = routers()
    hop = attached(router, consumer(0, "balanced.hop"))
    sending = attached(router, producer(0, "exchange"))
    sending.feed(transfer(0, 0, message(b"x", subject="a/b")))
    assert outcomes(router, sending) == [ACCEPTED]  # before any consumer settles
    assert received(router, hop) == [message(b"x", subject="a/b")]
    hop.feed(settle(0, state=RELEASED))
    assert outcomes(router, sending) == []
    assert address_counters(router, "M0exchange")["ingress"] == 1


def test_exchange_releases_message_without_binding_or_alternate(routers):
    router = routers()
    sending = attached(router, producer(0, "exchange"))
    sending.feed(transfer(0, 0, message(b"x", subject="unbound")))
    assert outcomes(router, sending) == [RELEASED]
    assert address_counters(router, "M0exchange")["ingress"] == 1  # counted although nothing took it


def test_exchange_rejects_message_longer_than_its_consumers_accept(routers):
    router = routers()
    attached(router, consumer(0, "exchange", max_message_size=ULong(30)))
    sending = attached(router, producer(0, "exchange"))
    sending.feed(transfer(0, 0, message(b"x" * 100, subject="unbound")))
    (state,) = outcomes(router, sending)
    assert condition(state) == "amqp:link:message-size-exceeded"


# -- users


# security.md P-51.
@pytest.mark.parametrize("address", ["balanced.a", None], ids=["targeted", "anonymous"])
def test_message_of_other_user_is_rejected(routers, address):
    policy = ONE_USER.replace("allowUserIdProxy: false", "allowUserIdProxy: false\nallowAnonymousSender: true")
    router = routers(text=configuration(more=policy))
    consuming = attached(router, consumer(0, "balanced.a"))
    sending = attached(router, producer(0, address))
    frames(sending)
    sending.feed(transfer(0, 0, message(b"x", user=b"somebody", to="balanced.a")))
    (state,) = outcomes(router, sending)
    assert condition(state) == "amqp:unauthorized-access"
    sending.feed(transfer(0, 1, message(b"y", user=b"anonymous", to="balanced.a")))
    assert received(router, consuming) == [message(b"y", user=b"anonymous", to="balanced.a")]
