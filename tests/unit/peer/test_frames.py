"""Frames, termini and messages of the test peer."""

import pytest

from tests.peer import frames, message
from tests.peer.frames import Performative, frame_octets, parse_frame
from tests.peer.types import Array, Described, Map, Symbol, UInt, ULong


def test_open_is_encoded_as_expected() -> None:
    octets = frame_octets(Performative("open", container_id="a", max_frame_size=512).encode())
    assert octets == bytes.fromhex("00000017 02 00 0000 00 53 10 c0 0a 03 a10161 40 7000000200")


def test_fields_are_decoded_with_their_types() -> None:
    sent = Performative("attach", name="l", handle=3, role=True, source=frames.source("q", capabilities=["x", "y"]))
    frame = parse_frame(frame_octets(sent.encode() + b"tail", channel=5))
    assert (frame.name, frame.channel, frame.payload) == ("attach", 5, b"tail")
    assert (frame.fields["name"], frame.handle, frame.role, frame.target) == ("l", 3, True, None)
    assert isinstance(frame.handle, UInt)
    assert frames.terminus(frame.source) == {"address": "q", "capabilities": Array([Symbol("x"), Symbol("y")])}


def test_empty_frame_is_a_heartbeat() -> None:
    assert parse_frame(frame_octets(b"")).name == "heartbeat"


def test_unknown_fields_are_refused() -> None:
    with pytest.raises(TypeError, match="no field"):
        Performative("begin", handle=1)
    with pytest.raises(TypeError, match="no field"):
        frames.target("x", filter=None)


def test_errors_and_states_are_decoded() -> None:
    state = frames.rejected("amqp:not-found", "no")
    assert frames.state_name(state) == "rejected"
    assert frames.error_of(state.value[0]) == ("amqp:not-found", "no")
    assert frames.error_of(Described(ULong(0x1D), [Symbol("a:b")])) == ("a:b", None)
    assert frames.error_of(None) is None


def test_message_has_expected_sections() -> None:
    payload = (
        message.header(durable=True, priority=7)
        + message.annotations({"a": 1})
        + message.message(["body"], to="q", subject="s")
    )
    assert [code for code, _value in message.sections(payload)] == [0x70, 0x72, 0x73, 0x77]
    assert message.section_of(payload, message.HEADER) == [True, 7]
    assert message.section_of(payload, message.PROPERTIES) == [None, None, "q", "s"]
    assert message.body(payload) == ["body"]
    assert message.annotations_of(payload) == Map([(Symbol("a"), 1)])
    assert message.body(message.data(b"a") + message.data(b"b")) == b"ab"
