"""Finding the address of a message (routing-semantics.md 7)."""

import pytest

from tests.peer import message
from tests.peer.codec import encode
from tests.peer.links import PeerOutcome
from tests.peer.types import Described, Raw, Symbol
from tests.system.fixtures import Connect, Fresh, pair
from tests.system.router import Section, listener

SECTIONS: list[Section] = [listener("open", stripAnnotations="no")]
NO_ADDRESS = ("amqp:precondition-failed", "Routing failure: no address present")
INVALID = ("amqp:decode-error", "invalid message format")


def test_targeted_link_ignores_to(connect: Connect, fresh: Fresh) -> None:
    sender, receiver = pair(connect, fresh(), into="open")
    other = connect().receiver(fresh(), 5)
    payload = message.annotations({"x-opt-qd.to": other.address}) + message.message("mine", to=other.address)
    number = sender.send(payload)
    receiver.next().settle()
    assert sender.outcome(number).name == "accepted"
    other.peer.barrier()
    assert not other.deliveries


def test_target_override_requires_open_listener(connect: Connect, fresh: Fresh) -> None:
    by_to, by_override = connect().receiver(fresh(), 5), connect().receiver(fresh(), 5)
    payload = message.annotations({"x-opt-qd.to": by_override.address}) + message.message("m", to=by_to.address)
    connect("open").sender().send(payload, settled=True)
    by_override.next()
    connect().sender().send(payload, settled=True)
    by_to.next()
    assert len(by_override.deliveries) == 1


@pytest.mark.parametrize(
    "payload",
    [
        message.value("no properties"),
        message.properties(subject="s") + message.value("no to"),
        message.properties(message_id=1, to=None, subject="s") + message.value("null to"),
        message.properties() + message.value("empty properties"),
        message.header(durable=True) + message.data(b"x"),
    ],
    ids=["no-properties", "no-to", "null-to", "empty-list", "header-only"],
)
def test_anonymous_message_without_address_is_rejected(connect: Connect, payload: bytes) -> None:
    sender = connect().sender()
    outcome = sender.request(payload)
    assert outcome.error == NO_ADDRESS
    sender.wait_credit()


@pytest.mark.parametrize("target", ["somewhere", None])
def test_oversized_leading_sections_name_the_limit(connect: Connect, target: str | None) -> None:
    """A complete message has an error text of its own; a longer message is rejected before it is complete."""
    sender = connect().sender(target, credit=False)
    sender.peer.receiver(target or "somewhere", 10)
    sender.wait_credit()
    for size, text in (
        (200_000, "message annotations are too large"),
        (400_000, "the sections before the body are too large"),
    ):
        outcome = sender.request(message.annotations({"a": "x" * size}) + message.message("x", to="somewhere"))
        assert (outcome.name, outcome.error) == ("rejected", ("amqp:resource-limit-exceeded", text))


def test_anonymous_message_with_empty_address_is_released(connect: Connect) -> None:
    assert connect().sender().request(message.message(to="")).name == "released"


def test_properties_after_other_sections_are_found(connect: Connect, fresh: Fresh) -> None:
    receiver = connect().receiver(fresh(), 5)
    payload = (
        message.header(priority=3)
        + message.section(message.DELIVERY_ANNOTATIONS, {Symbol("d"): 1})
        + message.annotations({"a": 1})
        + message.message("late", to=receiver.address)
    )
    connect().sender().send(payload, settled=True)
    assert message.body(receiver.next().payload) == "late"


def test_eight_octet_descriptor_of_properties_is_read(connect: Connect, fresh: Fresh) -> None:
    receiver = connect().receiver(fresh(), 5)
    wide = Described(Raw(b"\x80\0\0\0\0\0\0\0\x73"), [None, None, receiver.address])
    payload = encode(wide) + message.value("wide")
    connect().sender().send(payload, settled=True)
    assert receiver.next().payload == payload


def rejection(outcome: PeerOutcome) -> tuple[str, str | None] | None:
    assert outcome.name == "rejected"
    assert outcome.settled
    return outcome.error


@pytest.mark.parametrize(
    "payload",
    [
        b"\x00\x53\x70\xc0\x09\x01\x41",
        b"\x00\x53\x72\xc1\x0f\x02\xa3\x01a\x40",
        b"\x00\x53\x70\xc0",
    ],
    ids=["header-too-long", "annotations-too-long", "header-cut"],
)
@pytest.mark.parametrize("anonymous", [True, False], ids=["anonymous", "targeted"])
def test_malformed_leading_sections_are_rejected(
    connect: Connect, fresh: Fresh, anonymous: bool, payload: bytes
) -> None:
    receiver = connect().receiver(fresh(), 5)
    sender = connect().sender(None if anonymous else receiver.address)
    error = rejection(sender.request(payload))
    assert error is not None
    assert error[0] == "amqp:decode-error" or (anonymous and error == NO_ADDRESS), error
    if error[0] == "amqp:decode-error":
        assert error == INVALID
    receiver.peer.barrier()
    assert not receiver.deliveries


def test_malformed_properties_are_rejected_on_anonymous_links(connect: Connect, fresh: Fresh) -> None:
    sender, receiver = pair(connect, fresh())
    payload = message.annotations({"a": 1}) + b"\x00\x53\x73\xc0\x20\x03\x40"
    sender.send(payload, settled=True)
    assert receiver.next().payload == payload
    assert rejection(connect().sender().request(payload)) is not None


def test_empty_message_is_rejected(connect: Connect, fresh: Fresh) -> None:
    sender, receiver = pair(connect, fresh())
    error = rejection(sender.request(b""))
    assert error is not None
    assert error[0] == "amqp:decode-error"
    sender.send(message.message("next"), settled=True)
    assert message.body(receiver.next().payload) == "next"


@pytest.mark.parametrize("payload", [b"\x01\x02\x03", b"plain text", bytes(10)])
def test_content_without_amqp_sections_is_relayed(connect: Connect, fresh: Fresh, payload: bytes) -> None:
    sender, receiver = pair(connect, fresh())
    number = sender.send(payload)
    delivery = receiver.next()
    assert delivery.payload == payload
    delivery.settle()
    assert sender.outcome(number).name == "accepted"
    assert connect().sender().request(payload).name == "rejected"


def test_rejections_return_credit(connect: Connect) -> None:
    sender = connect().sender()
    for _ in range(300):
        sender.wait_credit()
        sender.send(message.message())
    sender.outcome(299)
    sender.peer.until(lambda: sender.credit > 125, "credit")
