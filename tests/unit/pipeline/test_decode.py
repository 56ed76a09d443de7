"""Decoding of messages into columns, compared with the client's codec, with octets of Apache Qpid Proton, and with the
documented treatment of unusual messages."""

import json
import struct
import uuid
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from proton import Message as ProtonMessage
from proton import symbol, timestamp, ulong

from sluice.router.amqp import codec
from sluice.router.client.message import DataSections, Message, Sequences

pa = pytest.importorskip("pyarrow")
from sluice.pipeline import columns, decode  # noqa: E402

VECTORS = Path(__file__).parents[2] / "vectors" / "message"
NULL = b"\x40"
UUID = uuid.UUID("01234567-89ab-cdef-0123-456789abcdef")


def rows(*messages: bytes, names: list[str] | None = None) -> list[dict[str, Any]]:
    """Return the rows that these messages decode to, with all columns unless `names` are given."""
    array = pa.array(messages, pa.binary())
    found = columns.decoded_columns(array, names or list(columns.DECODED))
    for name, column in found.items():
        column.validate(full=True)
        assert column.type == columns.TYPES[columns.DECODED[name]]
    made: list[dict[str, Any]] = pa.table(found).to_pylist()
    return made


def row(octets: bytes) -> dict[str, Any]:
    (only,) = rows(octets)
    return only


def present_fields(octets: bytes) -> dict[str, Any]:
    """Return the columns that are not null."""
    return {name: value for name, value in row(octets).items() if value is not None}


def section(code: int, value: bytes) -> bytes:
    return bytes((0, 0x53, code)) + value


def value_body(value: bytes) -> tuple[bytes | None, str]:
    found = row(section(0x77, value))
    return found["body"], found["body_kind"]


def test_message_with_all_fields_is_decoded():
    message = Message(
        b"octets", durable=True, priority=7, ttl=5000, delivery_count=2, annotations={"x-opt-a": 1},
        message_id="m", user_id=b"u", to="t", subject="s", reply_to="r", correlation_id="c", content_type="text/plain",
        content_encoding="gzip", absolute_expiry_time=2000, creation_time=1000, group_id="g", group_sequence=9,
        reply_to_group_id="rg", properties={"a": "x", "b": 2, "c": True, "d": None, "e": -3, "f": UUID, "g": 1.5},
    )  # fmt: skip
    found = row(message.encode())
    assert found.pop("creation_time").timestamp() == 1
    assert found.pop("absolute_expiry_time").timestamp() == 2
    assert dict(found.pop("application_properties")) == {
        "a": "x", "b": "2", "c": "true", "d": None, "e": "-3", "f": str(UUID), "g": "1.5",
    }  # fmt: skip
    assert dict(found.pop("message_annotations")) == {"x-opt-a": "1"}
    assert found == {
        "message_id": "m", "user_id": b"u", "to": "t", "subject": "s", "reply_to": "r", "correlation_id": "c",
        "content_type": "text/plain", "content_encoding": "gzip", "group_id": "g", "group_sequence": 9,
        "reply_to_group_id": "rg", "durable": True, "priority": 7, "ttl_ms": 5000, "delivery_count": 2,
        "body": b"octets", "body_kind": "data",
    }  # fmt: skip


def test_absent_fields_are_null():
    assert present_fields(Message(b"x").encode()) == {"body": b"x", "body_kind": "data"}


@pytest.mark.parametrize(
    ("octets", "body", "kind"),
    [
        (b"", None, "none"),
        (section(0x70, b"\x45"), None, "none"),
        (Message(DataSections([b"ab", b"", b"c"])).encode(), b"abc", "data"),
        (Message(b"").encode(), b"", "data"),
        (Message("grün").encode(), "grün".encode(), "string"),
        (section(0x77, b"\xa3\x03sym"), b"sym", "string"),
        (section(0x77, b"\xa1\x01\xff"), b"\xff", "string"),
        (section(0x77, b"\xa0\x02ab"), b"ab", "binary"),
        (section(0x77, NULL), b"null", "json"),
        (section(0x77, codec.encode_value(-5)), b"-5", "json"),
        (Message({"a": [1, None, True, b"\0"]}).encode(), b'{"a":[1,null,true,{"$binary":"AA=="}]}', "json"),
        (Message({1: 2}).encode(), b'{"$map":[[1,2]]}', "json"),
        (Message(float("nan")).encode(), b'{"$float":"NaN"}', "json"),
        (Message(UUID).encode(), json.dumps(str(UUID)).encode(), "json"),
        (section(0x77, b"\0\xa3\x01d\xa1\x01v"), b'{"$descriptor":"d","$value":"v"}', "json"),
        (Message(Sequences([[1], ["x", 2]])).encode(), b'[[1],["x",2]]', "sequence"),
        (b"\0\xa3\x10amqp:data:binary\xa0\x01x", b"x", "data"),
        (b"\0\xa3\x17amqp:amqp-sequence:list\x45", b"[[]]", "sequence"),
    ],
)  # fmt: skip
def test_body_kinds_are_decoded(octets: bytes, body: bytes | None, kind: str):
    found = row(octets)
    assert (found["body"], found["body_kind"]) == (body, kind)


@pytest.mark.parametrize(
    "octets",
    [
        b"\x40",
        b"no message",
        Message(b"x" * 20).encode()[:-1],
        section(0x75, b"\x43"),
        section(0x72, b"\x45") + section(0x75, b"\xa0\0"),
        section(0x72, b"\xc1\x02\x01\x40"),
        section(0x73, b"\xc0\x02\x05\x40"),
        section(0x73, b"\xc0\x03\x01\x40\x40"),
        section(0x79, b"\x45"),
        section(0x75, b"\xa0\0") + section(0x77, NULL),
        section(0x77, NULL) + section(0x77, NULL),
        section(0x77, b"\xc0\x02\x01\x3f"),
        section(0x76, NULL),
        section(0x77, b"\0\x40" * 40 + NULL),
    ],
)
def test_malformed_message_becomes_one_body(octets: bytes):
    """Columns decoded before the damage are null as well."""
    assert present_fields(section(0x74, b"\xc1\x01\0") + octets) == {
        "body": section(0x74, b"\xc1\x01\0") + octets, "body_kind": "malformed",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("encoded", "text"),
    [
        (b"\xa1\x01m", "m"),
        (b"\xa1\x04ul:5", "str:ul:5"),
        (b"\xa1\x05str:m", "str:str:m"),
        (codec.encode_ulong(0), "ul:0"),
        (codec.encode_ulong(2**64 - 1), f"ul:{2**64 - 1}"),
        (codec.encode_value(UUID), f"uuid:{UUID}"),
        (codec.encode_binary(b"\0\xff"), "bin:00ff"),
        (codec.encode_uint(5), "odd:5"),
        (b"\xa3\x01m", "odd:m"),
        (codec.encode_value([1]), "odd:[1]"),
    ],
)
def test_message_ids_keep_their_type(encoded: bytes, text: str):
    octets = section(0x73, codec.encode_list([encoded, NULL, NULL, NULL, NULL, encoded]))
    assert present_fields(octets) == {"message_id": text, "correlation_id": text, "body_kind": "none"}


def test_fields_of_unexpected_type_become_text():
    odd = codec.encode_value([1, "x"])
    octets = section(0x73, codec.encode_list([NULL, odd, odd, codec.encode_value(3), *[odd] * 5, odd, NULL, odd]))
    assert present_fields(octets) == {
        "to": '[1,"x"]', "subject": "3", "reply_to": '[1,"x"]', "correlation_id": 'odd:[1,"x"]',
        "content_type": '[1,"x"]', "content_encoding": '[1,"x"]', "body_kind": "none",
    }  # fmt: skip
    assert present_fields(section(0x70, codec.encode_list([odd] * 5))) == {"body_kind": "none"}


def test_times_outside_calendar_are_null():
    for ms in (-(2**63), 2**63 - 1, 253402300800000):
        octets = Message(b"", creation_time=ms).encode()
        assert row(octets)["creation_time"] is None
    assert row(Message(b"", creation_time=253402300799999).encode())["creation_time"].year == 9999


def test_numbers_outside_column_range_are_null():
    octets = section(0x73, codec.encode_list([NULL] * 11 + [codec.encode_ulong(2**63)]))
    assert row(octets)["group_sequence"] is None


@pytest.mark.parametrize("others", [0, 40])
def test_duplicate_keys_keep_first_value(others: int):
    items = [b"\xa1\x01a", b"\xa1\x011", b"\xa3\x01a", b"\xa1\x012"]
    for number in range(others):
        items += [codec.encode_string(f"k{number}"), NULL]
    found = dict(row(section(0x74, codec.encode_map(items)))["application_properties"])
    assert found.pop("a") == "1"
    assert found == dict.fromkeys((f"k{number}" for number in range(others)), None)


def test_maps_of_many_rows_stay_separate():
    messages = [Message(b"", properties={f"k{i}": i for i in range(n)}).encode() for n in (0, 3, 0, 1)]
    found = rows(*messages, names=["application_properties"])
    assert [each["application_properties"] for each in found] == [
        None, [("k0", "0"), ("k1", "1"), ("k2", "2")], None, [("k0", "0")],
    ]  # fmt: skip


def test_invalid_utf8_is_replaced():
    octets = section(0x73, codec.encode_list([NULL, NULL, b"\xa1\x02a\xff"]))
    assert row(octets)["to"] == "a�"


def test_array_slice_is_decoded():
    array = pa.array([Message(str(i)).encode() for i in range(5)], pa.binary())[2:4]
    assert columns.decoded_columns(array, ["body"])["body"].to_pylist() == [b"2", b"3"]


def test_requested_columns_are_decoded():
    assert list(columns.decoded_columns(pa.array([b""], pa.binary()), ["subject"])) == ["subject"]
    with pytest.raises(KeyError, match="nothing"):
        columns.decoded_columns(pa.array([b""], pa.binary()), ["nothing"])


def test_proton_message_is_decoded():
    message = ProtonMessage(
        body={"temperature": 21.5}, id=ulong(7), correlation_id=UUID, address="sensors/1", subject="reading",
        reply_to="answers", content_type=symbol("application/x"), creation_time=3.0, durable=True, priority=5, ttl=2.0,
        group_id="g", group_sequence=3, properties={"unit": "C", "count": 3},
        annotations={symbol("x-opt-a"): timestamp(5)},
    )  # fmt: skip
    found = row(message.encode())
    assert found.pop("creation_time").timestamp() == 3
    assert {name: value for name, value in found.items() if value is not None} == {
        "message_id": "ul:7", "correlation_id": f"uuid:{UUID}", "to": "sensors/1", "subject": "reading",
        "reply_to": "answers", "content_type": "application/x", "durable": True, "priority": 5, "ttl_ms": 2000,
        "group_id": "g", "group_sequence": 3, "body": b'{"temperature":21.5}', "body_kind": "json",
        "application_properties": [("unit", "C"), ("count", "3")],
        "message_annotations": [("x-opt-a", "5")],
    }  # fmt: skip


@pytest.mark.parametrize("path", sorted(VECTORS.glob("*.json")), ids=lambda path: path.stem)
def test_message_vectors_are_decoded(path: Path):
    octets = bytes.fromhex(json.loads(path.read_text())["octets"])
    found = row(octets)
    assert found["body_kind"] in decode.BODY_KINDS
    if found["body_kind"] == "malformed":
        assert found["body"] == octets


SCALARS = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text(max_size=9) | st.binary(max_size=9)


@given(
    st.lists(
        st.builds(
            Message,
            body=st.binary(max_size=40),
            subject=st.none() | st.text(max_size=300),
            message_id=st.none() | st.text(max_size=9) | st.integers(0, 2**64 - 1) | st.uuids(),
            properties=st.dictionaries(st.text(max_size=5), SCALARS, max_size=40),
        ),
        max_size=5,
    )
)
def test_client_encoding_is_decoded(messages: list[Message]):
    found = rows(*(message.encode() for message in messages))
    assert len(found) == len(messages)
    for message, each in zip(messages, found, strict=True):
        assert (each["body"], each["body_kind"]) == (message.body, "data")
        assert each["subject"] == message.subject
        assert [key for key, _ in each["application_properties"] or ()] == list(message.properties)
        if isinstance(message.message_id, uuid.UUID):
            assert each["message_id"] == f"uuid:{message.message_id}"


@given(st.lists(st.binary(max_size=60), max_size=4))
def test_arbitrary_octets_are_decoded(messages: list[bytes]):
    for octets, each in zip(messages, rows(*messages), strict=True):
        if each["body_kind"] == "malformed":
            assert each["body"] == octets


def test_body_that_is_nested_too_deeply_keeps_its_octets():
    value = b"\x45"
    for _ in range(60):
        value = b"\xd0" + struct.pack(">II", len(value) + 4, 1) + value
    body = section(0x77, value)
    found = row(Message(None, subject="s").encode()[: -len(section(0x77, NULL))] + body)
    assert (found["body_kind"], found["body"], found["subject"]) == ("amqp", body, "s")
