"""Deliveries of links with a target: the target names the address, and the message is only checked."""

from typing import Any

import pytest

from sluice.router.control import messages as control
from tests.component.engine.host import InProcessPeer, InProcessRouter
from tests.peer.frames import RELEASED
from tests.peer.talk import consumer, frames, key, message, messages, of, producer, start, transfer


def attached(router: InProcessRouter, octets: bytes, listener: str = "main", **fields: Any) -> InProcessPeer:
    peer = router.connect(listener=listener)
    peer.feed(start(**fields) + octets)
    router.settle()
    frames(peer)
    return peer


@pytest.fixture
def router(routers):
    return routers()


@pytest.fixture
def receiving(router):
    return attached(router, consumer(0, "balanced.a"))


def send(router: InProcessRouter, peer: InProcessPeer, number: int, octets: bytes, **fields: Any) -> Any:
    """Send a message. Return the state that the router reports at once, or None."""
    peer.feed(transfer(0, number, octets, **fields))
    router.settle()
    found = of(frames(peer), "disposition")
    return found[0].state if found else None


def test_address_of_message_has_no_effect(router, receiving):
    other = attached(router, consumer(0, "balanced.b"))
    sending = attached(router, producer(0, "balanced.a"))
    octets = message(b"x", to="balanced.b")
    assert send(router, sending, 0, octets) is None
    assert (messages(frames(receiving)), messages(frames(other))) == ([octets], [])


@pytest.mark.parametrize(
    ("octets", "condition"),
    [
        (b"\x00", "amqp:decode-error"),
        (bytes.fromhex("005372c10b02"), "amqp:decode-error"),
        (message(b"x", annotations=[(key("x-opt-qd.to"), 7)]), "amqp:invalid-field"),
    ],
)
@pytest.mark.parametrize("part", [1, 1000], ids=["octet-by-octet", "whole"])
def test_malformed_sections_are_rejected_and_link_continues(router, octets, condition, part):
    receiving = attached(router, consumer(0, "balanced.a"))
    sending = attached(router, producer(0, "balanced.a"), listener="kept")
    state = send(router, sending, 0, octets, part=part)
    assert str(state.value[0].value[0]) == condition
    assert send(router, sending, 1, message(b"y")) is None
    assert messages(frames(receiving)) == [message(b"y")]


def test_looping_message_is_released_only_if_listener_keeps_annotations(networks):
    """Otherwise annotations of a client are its own. This router is alone, so one router in a trace is allowed."""
    router = networks("A")["A"]
    receiving = attached(router, consumer(0, "balanced.a"))
    looping = message(b"x", annotations=[(key("x-opt-qd.trace"), ["0/B", "0/C"])])
    assert send(router, attached(router, producer(0, "balanced.a")), 0, looping) is None
    assert len(messages(frames(receiving))) == 1
    assert send(router, attached(router, producer(0, "balanced.a"), listener="open"), 0, looping) == RELEASED
    assert messages(frames(receiving)) == []


def test_target_of_tenant_is_in_its_own_space(router, receiving):
    own = attached(router, consumer(0, "green/balanced.a"))
    sending = attached(router, producer(0, "balanced.a"), listener="tenants", hostname="green")
    send(router, sending, 0, message(b"x"))
    assert (messages(frames(own)), messages(frames(receiving))) == ([message(b"x")], [])


def test_link_keeps_its_address_after_snapshot(router, receiving):
    """A snapshot replaces all addresses of the worker's table, to which the handlers of links point."""
    sending = attached(router, producer(0, "balanced.a"))
    send(router, sending, 0, message(b"before"))
    (worker,) = router.workers
    old = worker.table.by_name("M0balanced.a")
    router.core.receive(router.core.workers[0], control.Resync())
    worker.live = False
    router.decide()
    router.settle()
    new = worker.table.by_name("M0balanced.a")
    assert new is not old
    for number in range(1, 4):
        send(router, sending, number, message(b"%d" % number))
    assert messages(frames(receiving)) == [message(body) for body in (b"before", b"1", b"2", b"3")]
    record: Any = next(iter(sending.client.links.by_number.values()))
    assert record.route.address is new
