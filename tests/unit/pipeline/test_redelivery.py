"""Messages that a receiver modified, as they are sent again."""

import pytest

from sluice.pipeline.redelivery import prepare_redelivery
from sluice.router.amqp import codec
from sluice.router.client.message import Message, decode
from sluice.router.client.outcome import Modified, Released, encode

FAILED = encode(Modified(delivery_failed=True))
BODY = b"\x00\x53\x75\xa0\x02hi"


def header(*items: bytes) -> bytes:
    return bytes(codec.encode_described(0x70, items))


def annotations(*pairs: bytes) -> bytes:
    return b"\x00\x53\x72" + bytes(codec.encode_map(pairs))


def test_failed_delivery_raises_the_count_and_keeps_the_rest():
    message = Message(b"hi", message_id="m", durable=True, priority=7, ttl=5, properties={"a": 1}, delivery_count=2)
    message.annotations["x-opt-a"] = "b"
    again = decode(prepare_redelivery(message.encode(), FAILED))
    assert again.delivery_count == 3
    again.delivery_count = 2
    assert again == message


def test_message_without_header_gets_one():
    again = prepare_redelivery(BODY, FAILED)
    assert again.endswith(BODY)
    assert decode(again).delivery_count == 1


def test_redelivered_message_has_another_acquirer():
    first = header(b"\x40", b"\x40", b"\x40", b"\x41") + BODY
    assert prepare_redelivery(first, FAILED) == header(b"\x40", b"\x40", b"\x40", b"\x42", b"\x52\x01") + BODY


def test_symbolic_section_is_found():
    symbolic = b"\x00" + codec.encode_symbol("amqp:header:list") + codec.encode_list([b"\x41"])
    again = decode(prepare_redelivery(symbolic + BODY, FAILED))
    assert (again.durable, again.delivery_count) == (True, 1)


@pytest.mark.parametrize("large", [False, True])
def test_annotations_of_the_outcome_replace_those_of_the_message(large):
    long = codec.encode_string("x" * 300 if large else "x")
    old = annotations(codec.encode_symbol("kept"), long, codec.encode_symbol("changed"), b"\x50\x01")
    state = encode(Modified(annotations={"changed": "new", "added": 5}))
    again = prepare_redelivery(header(b"\x41") + old + BODY, state)
    expected = annotations(
        *(codec.encode_symbol("kept"), long, codec.encode_symbol("changed"), codec.encode_string("new")),
        *(codec.encode_symbol("added"), codec.encode_value(5)),
    )
    assert again == header(b"\x41") + expected + BODY


def test_count_stops_at_its_greatest_value():
    most = header(b"\x40", b"\x40", b"\x40", b"\x40", b"\x70\xff\xff\xff\xff")
    assert decode(prepare_redelivery(most + BODY, FAILED)).delivery_count == 0xFFFFFFFF


@pytest.mark.parametrize("state", [encode(Released()), encode(Modified()), b""])
def test_outcome_without_modification_changes_nothing(state):
    assert prepare_redelivery(BODY, state) == BODY


@pytest.mark.parametrize("octets", [b"\x00\x53\x70\xc0\x05", b"\x00", b"\x00\x53\x72\xa1\x01x"])
def test_malformed_message_stays_as_it_is(octets):
    state = encode(Modified(delivery_failed=True, annotations={"a": 1}))
    assert prepare_redelivery(octets, state) == octets
