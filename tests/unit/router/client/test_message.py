"""Messages, outcomes and URLs of the client, compared with the codec of the tests."""

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.router.amqp import codec
from sluice.router.amqp.errors import AmqpError
from sluice.router.client import (
    Accepted,
    DataSections,
    Declared,
    Message,
    Modified,
    OtherState,
    Rejected,
    Released,
    Sequences,
    Transactional,
)
from sluice.router.client import message as messages
from sluice.router.client import outcome as outcomes
from sluice.router.client.url import Url, parse
from tests.peer.talk import sections
from tests.peer.types import Symbol

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | st.uuids(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


MESSAGES = st.builds(
    Message,
    body=VALUES,
    durable=st.none() | st.booleans(),
    priority=st.none() | st.integers(0, 255),
    ttl=st.none() | st.integers(0, 2**32 - 1),
    delivery_count=st.none() | st.integers(0, 2**32 - 1),
    annotations=st.dictionaries(st.text("abc-x", min_size=1), VALUES, max_size=2),
    message_id=st.none() | st.integers(0, 2**64 - 1) | st.uuids() | st.text() | st.binary(),
    user_id=st.none() | st.binary(),
    to=st.none() | st.text(),
    subject=st.none() | st.text(),
    creation_time=st.none() | st.integers(0, 2**40),
    content_type=st.none() | st.just("text/plain"),
    group_sequence=st.none() | st.integers(0, 2**32 - 1),
    properties=st.dictionaries(st.text(), VALUES, max_size=3),
)


@given(MESSAGES)
def test_message_is_decoded_unchanged(message):
    assert messages.decode(message.encode()) == message


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"x" * 1000,
        DataSections([b"a", b"b"]),
        [b"a", b"b"],
        Sequences([[1, "a"], []]),
        "text",
        None,
        [1, 2],
        {"a": 1},
        codec.DecimalOctets(bytes(8)),
    ],
)
def test_body_keeps_its_type(body):
    decoded = messages.decode(Message(body).encode())
    assert decoded.body == body
    assert type(decoded.body) is type(body)


def test_sections_equal_those_of_specification():
    message = Message(
        b"body", durable=True, priority=3, annotations={"x-a": 1}, to="q", correlation_id="c", properties={"k": "v"}
    )
    header, annotations, properties, application, data = sections(message.encode())
    assert header == (0x70, [True, 3])
    assert annotations == (0x72, {Symbol("x-a"): 1})
    assert properties == (0x73, [None, None, "q", None, None, "c"])
    assert application == (0x74, {"k": "v"})
    assert data == (0x75, b"body")


@given(st.binary(max_size=60))
def test_random_octets_give_message_or_decode_error(octets):
    error = ""
    try:
        messages.decode(octets)
    except AmqpError as caught:
        error = caught.condition
    assert error in ("", "amqp:decode-error")


@pytest.mark.parametrize("encoded", [b"\x50\x05", b"\x84" + bytes(8)], ids=["ubyte", "decimal64"])
@pytest.mark.parametrize("code", range(0x70, 0x79))
def test_section_of_wrong_type_is_decode_error(code, encoded):
    octets = b"\x00\x53" + bytes([code]) + encoded
    if code == messages.VALUE:
        assert messages.decode(octets).body == codec.decode_one(encoded)
    else:
        with pytest.raises(AmqpError, match="has the wrong type"):
            messages.decode(octets)


def test_value_without_amqp_type_is_refused():
    with pytest.raises(TypeError, match="no AMQP encoding for object"):
        Message(object()).encode()


@pytest.mark.parametrize(
    "outcome",
    [
        Accepted(),
        Rejected(),
        Rejected("a:b", "why"),
        Released(),
        Modified(),
        Modified(True, True, {"x-a": uuid.UUID(int=1)}),
        Declared(b"t"),
        Transactional(b"t" * 36),
        Transactional(b"t", Rejected("a:b", "why")),
        OtherState(codec.encode_described(0x35, [b"\xa0\x01t"])),
    ],
)
def test_outcome_is_decoded_unchanged(outcome):
    assert outcomes.decode(outcomes.encode(outcome)) == outcome


@pytest.mark.parametrize(
    "octets",
    [
        codec.encode_described(0x33, []),
        codec.encode_described(0x33, [codec.encode_binary(b"")]),
        codec.encode_described(0x34, [codec.encode_binary(b"t" * 97)]),
        codec.encode_described(0x34, [codec.encode_string("t")]),
        codec.encode_described(0x33, [b"\x84" + bytes(8)]),  # a decimal64
    ],
)
def test_state_without_txn_id_is_refused(octets):
    with pytest.raises(AmqpError, match="a txn-id is not a binary of 1 to 96 octets"):
        outcomes.decode(octets)


def test_transactional_state_in_transactional_state_is_refused():
    inner = outcomes.encode(Transactional(b"t", Accepted()))
    octets = codec.encode_described(0x34, [codec.encode_binary(b"t"), inner])
    with pytest.raises(AmqpError, match="the outcome in a transactional-state is not one of part 3"):
        outcomes.decode(octets)


def test_nonterminal_state_is_no_outcome():
    assert outcomes.decode(b"") is None
    assert outcomes.decode(codec.encode_described(0x23, [b"\x43", b"\x44"])) is None


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("amqp://h:1/q", Url("h", 1, None, None, "q")),
        ("amqp://u%40d:p%3a@h", Url("h", 5672, "u@d", "p:", "")),
        ("h:77/a/b", Url("h", 77, None, None, "a/b")),
        ("[::1]:5", Url("::1", 5, None, None, "")),
        ("amqps://u:p@h/q", Url("h", 5671, "u", "p", "q", secure=True)),
    ],
)
def test_url_is_parsed_into_parts(text, url):
    assert parse(text) == url


@pytest.mark.parametrize("text", ["http://u:secret@h", "amqp://", "amqp://h:x"])
def test_invalid_url_is_refused_without_its_password(text):
    with pytest.raises(ValueError) as caught:
        parse(text)
    assert "secret" not in str(caught.value)
