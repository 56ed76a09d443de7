"""Frames and messages as lines of text in the form of Proton and Dispatch, for any octets from a peer."""

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.router.amqp.text.frames import frame_text
from sluice.router.amqp.text.messages import components, message_text
from tests.peer.codec import encode
from tests.peer.frames import ACCEPTED, Performative, frame_octets, source, target
from tests.peer.message import annotations, application_properties, properties, value
from tests.peer.talk import say, transfer
from tests.peer.types import Array, Described, Map, Raw, Symbol, Timestamp, UInt, ULong


def line(octets: bytes, received: bool = False) -> str:
    return frame_text(octets, len(octets), received)


def test_frames_are_shown_as_in_dispatch() -> None:
    opened = say(
        "open",
        container_id="it",
        max_frame_size=16384,
        channel_max=32767,
        offered_capabilities=Array([Symbol("ANONYMOUS-RELAY"), Symbol("x")]),
        properties=Map([(Symbol("product"), "p"), (Symbol("qd.conn-id"), UInt(1))]),
    )
    assert line(opened) == (
        '0 -> @open(16) [container-id="it", max-frame-size=16384, channel-max=32767, '
        'offered-capabilities=@PN_SYMBOL[:"ANONYMOUS-RELAY", :x], properties={:product="p", :"qd.conn-id"=1}]'
    )
    assert line(say("begin", channel=3, next_outgoing_id=0, incoming_window=7, outgoing_window=8), True) == (
        "3 <- @begin(17) [next-outgoing-id=0, incoming-window=7, outgoing-window=8]"
    )
    attach = say("attach", name="p", handle=0, role=False, source=source(), target=target("a1"))
    assert line(attach).startswith('0 -> @attach(18) [name="p", handle=0, role=false, source=@source(40) [')
    assert 'target=@target(41) [address="a1"' in line(attach)
    assert line(transfer(0, 0, b"\x00Sw\xa1\x01x")) == (
        '0 -> @transfer(20) [handle=0, delivery-id=0, delivery-tag=b"0", message-format=0] (6) "\\x00Sw\\xa1\\x01x"'
    )
    settled = say("disposition", role=True, first=0, last=4, settled=True, state=ACCEPTED)
    assert line(settled) == ("0 -> @disposition(21) [role=true, first=0, last=4, settled=true, state=@accepted(36) []]")
    assert line(say("end")) == "0 -> @end(23) []"


def test_headers_and_empty_frames() -> None:
    assert line(b"AMQP\x03\x01\x00\x00", True) == "  <- SASL"
    assert line(b"AMQP\x00\x01\x00\x00") == "  -> AMQP"
    assert line(b"\x00\x00\x00\x08\x02\x00\x00\x00") == "0 -> (EMPTY FRAME)"


def test_long_payload_is_shown_in_part_with_its_length() -> None:
    octets = transfer(0, 0, b"x" * 1000, part=2000)
    whole = line(octets)
    assert whole.endswith(f'] (1000) "{"x" * 64}"...')
    head = len(octets) - 1000
    assert frame_text(octets[: head + 10], len(octets), False) == whole.replace("x" * 64, "x" * 10)


def test_sasl_credentials_are_not_shown() -> None:
    def sasl(name: str, **fields: object) -> str:
        return line(frame_octets(Performative(name, **fields).encode(), kind=1), True)

    assert sasl("sasl-init", mechanism=Symbol("PLAIN"), initial_response=b'\0me\0se"cret') == (
        '0 <- @sasl-init(65) [mechanism=:PLAIN, initial-response=b"*******"]'
    )
    assert "cret" not in sasl("sasl-response", response=b'se\\"cret')
    outcome = frame_octets(Performative("sasl-outcome", code=0).encode(), kind=1)
    assert line(outcome) == "0 -> @sasl-outcome(68) [code=0]"


@pytest.mark.parametrize(
    ("item", "text"),
    [
        (None, "null"),
        (True, "true"),
        ('a"b\\c\n\u202e', '"a\\"b\\\\c\\x0a\\x202e"'),
        (b"\x00a\xff", 'b"\\x00a\\xff"'),
        (Symbol("plain"), ":plain"),
        (Symbol("with-dash"), ':"with-dash"'),
        ([UInt(1), "x"], '[1, "x"]'),
        (Map([("k", None)]), '{"k"=null}'),
        (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (Described(Symbol("a:b"), "v"), '@:"a:b" "v"'),
        (Described(ULong(0x999), "v"), '@2457 "v"'),
        (1.5, "1.5"),
    ],
)
def test_value_is_shown_as_text(item: object, text: str) -> None:
    octets = frame_octets(encode(Described(ULong(0x18), [item, "end"])), 0)
    shown = text if item is not None else None
    expected = f"error={shown}, " if shown else ""
    assert line(octets) == f'0 -> @close(24) [{expected}"end"]'


def char(number: int) -> Raw:
    return Raw(b"\x73" + number.to_bytes(4, "big"))


@pytest.mark.parametrize(
    ("number", "text"),
    [(0x41, "'A'"), (0xD800, "0xd800"), (0xDFFF, "0xdfff"), (0x110000, "0x110000"), (0xFFFFFFFF, "0xffffffff"),
     (0, "0x0"), (10, "0xa"), (0x202E, "0x202e")],
)  # fmt: skip
def test_unprintable_char_is_shown_as_number(number: int, text: str) -> None:
    octets = frame_octets(encode(Described(ULong(0x18), [char(number), "end"])), 0)
    assert line(octets) == f'0 -> @close(24) [error={text}, "end"]'


FIXED = {
    0x50: 1, 0x51: 1, 0x52: 1, 0x53: 1, 0x54: 1, 0x55: 1, 0x56: 1, 0x60: 2, 0x61: 2, 0x70: 4, 0x71: 4, 0x72: 4,
    0x73: 4, 0x74: 4, 0x80: 8, 0x81: 8, 0x82: 8, 0x83: 8, 0x84: 8, 0x94: 16, 0x98: 16,
}  # fmt: skip
CHARS = st.sampled_from([0, 10, 0x41, 0xD7FF, 0xD800, 0xDBFF, 0xDC00, 0xDFFF, 0xE000, 0x10FFFF, 0x110000, 2**32 - 1])


def fixed(code: int) -> st.SearchStrategy[bytes]:
    octets = st.binary(min_size=FIXED[code], max_size=FIXED[code])
    if code == 0x73:
        octets |= CHARS.map(lambda number: number.to_bytes(4, "big"))
    return octets.map(lambda raw: bytes([code]) + raw)


def variable(octets: bytes) -> st.SearchStrategy[bytes]:
    small = st.sampled_from([0xA0, 0xA1, 0xA3]).map(lambda code: bytes([code, len(octets)]) + octets)
    large = st.sampled_from([0xB0, 0xB1, 0xB3])
    return small | large.map(lambda code: bytes([code]) + len(octets).to_bytes(4, "big") + octets)


def compound(items: list[bytes]) -> st.SearchStrategy[bytes]:
    """Return a list or map of these items with a right or wrong count, or an array with the first item's
    constructor."""
    body = b"".join(items)
    counts = st.just(len(items)) | st.integers(0, 2**32 - 1)
    wide = st.sampled_from([0xD0, 0xD1, 0xF0])

    def made(code: int, count: int) -> bytes:
        return bytes([code]) + (len(body) + 4).to_bytes(4, "big") + count.to_bytes(4, "big") + body

    return st.builds(made, wide, counts)


#: Encoded values of every type and nesting, including values that no text can represent.
VALUES = st.recursive(
    st.sampled_from([bytes([code]) for code in range(0x40, 0x46)])
    | st.sampled_from(sorted(FIXED)).flatmap(fixed)
    | st.binary(max_size=20).flatmap(variable),
    lambda values: (
        st.lists(values, max_size=4).flatmap(compound)
        | st.tuples(values, values).map(lambda pair: b"\0" + pair[0] + pair[1])
    ),
    max_leaves=12,
)


@given(VALUES, st.integers(0x10, 0x44), st.booleans())
def test_frame_with_random_value_gives_printable_line(value: bytes, code: int, received: bool) -> None:
    body = b"\0\x53" + bytes([code]) + b"\xd0" + (len(value) + 4).to_bytes(4, "big") + b"\0\0\0\1" + value
    for octets in (frame_octets(value), frame_octets(body), frame_octets(body, kind=1)):
        text = frame_text(octets, len(octets), received)
        assert text.isprintable()
        assert text.encode().decode() == text


@given(VALUES, st.sampled_from([0x70, 0x71, 0x72, 0x73, 0x74]))
def test_message_with_random_value_gives_printable_line(value: bytes, section: int) -> None:
    head = b"\0\x53" + bytes([section])
    size = (len(value) + 4).to_bytes(4, "big")
    for code in (0xD0, 0xD1):
        octets = head + bytes([code]) + size + b"\0\0\0\1" + value
        assert message_text(octets, components("all")).isprintable()
    assert message_text(head + value, components("all")).isprintable()


PERFORMATIVES = ["open", "begin", "attach", "flow", "transfer", "disposition", "detach", "end", "close"]


def performative(code: int, fields: list[bytes]) -> bytes:
    """Return a frame on channel 1: a list of encoded values under a descriptor."""
    items = b"".join(fields)
    head = b"\0\x53" + bytes([code]) + b"\xd0" + (len(items) + 4).to_bytes(4, "big") + len(fields).to_bytes(4, "big")
    return frame_octets(head + items, 1)


@given(st.integers(0x10, 0x18), st.lists(VALUES, max_size=4), st.data(), st.booleans())
def test_performative_cut_anywhere_gives_printable_line(
    code: int, fields: list[bytes], data: st.DataObject, received: bool
) -> None:
    frame = performative(code, fields)
    name = PERFORMATIVES[code - 0x10]
    shown = frame_text(frame, len(frame), received)
    assert shown.startswith(f"1 {'<-' if received else '->'} @{name}({code}) [")
    for octets in (frame, frame[: data.draw(st.integers(8, len(frame)), "cut")]):
        text = frame_text(octets, len(frame), received)
        assert text.startswith("1 <- " if received else "1 -> ")
        assert text.isprintable()
        assert len(text) < 20 * len(frame) + 200


@given(st.binary(max_size=100), st.integers(min_value=0, max_value=99))
def test_frame_with_noise_gives_printable_line(noise: bytes, at: int) -> None:
    octets = say("attach", name="p", handle=0, role=False, source=source("a"), target=target("b"))
    broken = octets[: at % len(octets)] + noise + octets[at % len(octets) :]
    if broken[4:5] == b"\x02" and len(broken) >= 8:
        assert frame_text(broken, len(broken), True).isprintable()


def test_deep_and_empty_values_are_cheap() -> None:
    deep = b"\x00\x00\x00\x00\x02\x00\x00\x00" + b"\x00" * 3000
    assert len(line(deep)) < 200
    many = b"\x00\x00\x00\x00\x02\x00\x00\x00" + b"\xf0\x00\x00\x00\x05\xff\xff\xff\xff\x40"
    assert "4294967295 x null" in line(many)


# -- messages ---------------------------------------------------------------------------------------------------------


PROPERTIES = properties(to="a1", subject="sub", correlation_id=ULong(7))
MESSAGE = PROPERTIES + application_properties({"k": "v"}) + value("body")


def test_message_is_shown_by_selected_components() -> None:
    octets = annotations({"x": 1}) + MESSAGE
    assert message_text(octets, components("all")) == (
        'Message{to="a1", subject="sub", correlation-id=7, app-properties={"k"="v"}}'
    )
    assert message_text(octets, components("to,subject")) == 'Message{to="a1", subject="sub"}'
    assert message_text(octets, components("reply-to")) == "Message{}"
    assert components("none") == frozenset()


@pytest.mark.parametrize(
    ("milliseconds", "shown"),
    [
        (100_000, '"1970-01-01 00:01:40.000 +0000"'),
        (1_487_772_623_883, '"2017-02-22 14:10:23.883 +0000"'),
        (0, '"1970-01-01 00:00:00.000 +0000"'),
        (2**63 - 1, str(2**63 - 1)),
        (-(2**63), str(-(2**63))),
    ],
)
def test_times_of_a_message_are_dates(milliseconds: int, shown: str) -> None:
    octets = properties(absolute_expiry_time=Timestamp(milliseconds), creation_time=Timestamp(milliseconds))
    text = f"Message{{absolute-expiry-time={shown}, creation-time={shown}}}"
    assert message_text(octets, components("all")) == text


@given(st.binary(max_size=200), st.integers(min_value=0, max_value=60))
def test_message_with_noise_gives_line(noise: bytes, at: int) -> None:
    for broken in (noise, MESSAGE[:at], MESSAGE[:at] + noise):
        assert message_text(broken, components("all")).startswith("Message{")
