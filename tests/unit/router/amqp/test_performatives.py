"""Fields of open, begin, attach and detach, and errors in them: what a peer may send, and what is shortened."""

from typing import Any

import pytest

from sluice.router.amqp import codec
from sluice.router.amqp.errors import AmqpError
from sluice.router.amqp.performatives import check_error, read_error, short_error, symbols
from tests.peer.codec import encode
from tests.peer.frames import AMQP_HEADER, frame_octets
from tests.peer.talk import frames, of, say
from tests.peer.types import Array, Described, Symbol, ULong
from tests.unit.router.amqp.stub import RecordingHandler

OPEN, BEGIN, ATTACH, DETACH = 0x10, 0x11, 0x12, 0x16
OPENED = AMQP_HEADER + say("open", container_id="c")
BEGUN = OPENED + say("begin", next_outgoing_id=0, incoming_window=10, outgoing_window=10)


class PerformativeServer:
    """Server's end of a connection, and what it writes."""

    def __init__(self) -> None:
        self.handler = RecordingHandler()

    def take(self) -> bytes:
        octets: bytes = self.handler.connection.take_output()
        return octets

    def answers(self, octets: bytes) -> list[Any]:
        self.handler.feed(octets)
        return frames(self)


def performative(code: int, *items: object) -> bytes:
    return frame_octets(encode(Described(ULong(code), list(items))))


@pytest.mark.parametrize(
    ("octets", "text"),
    [
        (AMQP_HEADER + performative(OPEN), "open: container-id is missing or not a string"),
        (AMQP_HEADER + performative(OPEN, 7), "open: container-id is missing or not a string"),
        (AMQP_HEADER + performative(OPEN, "c", 7), "open: hostname is not a string"),
        (AMQP_HEADER + performative(OPEN, "c", None, "x"), "open: max-frame-size is not a number"),
        (OPENED + performative(BEGIN, None, 0, 10), "begin: outgoing-window is missing or not a uint"),
        (OPENED + performative(BEGIN, None, None, 10, 10), "begin: next-outgoing-id is missing or not a uint"),
        (BEGUN + performative(ATTACH, "x", 0), "attach: mandatory field name, handle or role is missing"),
        (BEGUN + performative(ATTACH, "x", True, False), "attach: name, handle or role has the wrong type"),
        (BEGUN + performative(ATTACH, "x", 0, 1), "attach: name, handle or role has the wrong type"),
        (BEGUN + performative(DETACH), "detach: mandatory field handle is missing"),
        (BEGUN + performative(DETACH, False), "detach: handle is not a uint"),
    ],
)
def test_invalid_field_is_named_in_close(octets, text):
    (close,) = of(PerformativeServer().answers(octets), "close")
    assert [str(item) for item in close.error.value[:2]] == ["amqp:invalid-field", text]


def test_open_of_peer_is_passed_with_defaults():
    seen: list[Any] = []
    server = PerformativeServer()
    server.handler.on_open = lambda connection, remote: seen.append(remote)  # type: ignore[method-assign]
    server.answers(OPENED)
    (remote,) = seen
    assert remote == {
        "container": "c", "hostname": None, "properties": {}, "offered": [], "desired": [], "raw_properties": b"",
    }  # fmt: skip


def test_open_of_peer_is_passed_with_capabilities_and_properties():
    seen: list[Any] = []
    server = PerformativeServer()
    server.handler.on_open = lambda connection, remote: seen.append(remote)  # type: ignore[method-assign]
    properties = {Symbol("product"): "p"}
    offered = Array([Symbol("a"), Symbol("b")])
    server.answers(
        AMQP_HEADER
        + say(
            "open", container_id="c", hostname="h", offered_capabilities=offered, desired_capabilities=Symbol("d"),
            properties=properties,
        )
    )  # fmt: skip
    (remote,) = seen
    assert (remote["hostname"], remote["offered"], remote["desired"]) == ("h", ["a", "b"], ["d"])
    assert remote["properties"] == {"product": "p"}
    assert codec.decode_one(remote["raw_properties"]) == {"product": "p"}


def test_begin_answers_channel_of_peer():
    server = PerformativeServer()
    server.answers(OPENED)
    begin = say("begin", channel=3, next_outgoing_id=0, incoming_window=10, outgoing_window=10)
    (answer,) = of(server.answers(begin), "begin")
    assert (answer.remote_channel, answer.next_outgoing_id) == (3, 0)


@pytest.mark.parametrize(
    ("value", "expected"), [(None, []), ("a", ["a"]), (["a", 7, "b"], ["a", "b"]), (7, []), ({"a": 1}, [])]
)
def test_capabilities_are_one_symbol_or_several(value, expected):
    assert symbols(value) == expected


def test_error_is_read_with_what_it_has():
    assert read_error(b"\x40") is None
    assert read_error(codec.encode_error("a:b", "why")) == ("a:b", "why")
    assert read_error(codec.encode_error("a:b")) == ("a:b", "")
    assert read_error(codec.encode_described(0x1D, [])) == ("amqp:internal-error", "")


@pytest.mark.parametrize("raw", [codec.encode_described(0x24, []), b"\x53", b"\xa1\x01x"])
def test_value_other_than_error_is_not_relayed_as_error(raw):
    check_error(codec.encode_error("a:b", "why"))
    with pytest.raises(AmqpError):
        check_error(raw)


@pytest.mark.parametrize(
    ("raw", "condition"),
    [
        (codec.encode_error("a:b", "x" * 5000), "a:b"),
        (codec.encode_error("a" * 5000), "a" * 255),
        (b"\x40", "amqp:internal-error"),
        (b"\x53", "amqp:internal-error"),
        (b"", "amqp:internal-error"),
    ],
)
def test_error_is_shortened_to_its_condition(raw, condition):
    assert read_error(short_error(raw)) == (condition, "")
