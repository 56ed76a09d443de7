"""AMQP values as JSON text: the rules of the module for values without a type of their own."""

import json
import struct
import uuid
from typing import Any

import pytest

from sluice.pipeline.values import NotAmqpError, TooDeepError, body_text, decimal_text, field_text, to_json_value
from sluice.router.amqp import codec

UUID = uuid.UUID("01234567-89ab-cdef-0123-456789abcdef")
AMQP_VALUE, AMQP_SEQUENCE, DATA = 0x77, 0x76, 0x75


def section(code: int, value: bytes) -> bytes:
    return bytes((0, 0x53, code)) + value


def sequence(*items: bytes) -> bytes:
    octets = b"".join(items)
    return section(AMQP_SEQUENCE, bytes((0xC0, len(octets) + 1, len(items))) + octets)


def body_value(octets: bytes) -> Any:
    return json.loads(body_text(octets))


@pytest.mark.parametrize(
    ("octets", "text"),
    [
        (b"\x40", b"null"),
        (b"\x41", b"true"),
        (b"\x54\xff", b"-1"),
        (codec.encode_string("plain"), b"plain"),
        (b"\xa3\x03sym", b"sym"),
        (b"\xa0\x03\x00\x01\x02", b"AAEC"),
        (b"\x82" + struct.pack(">d", 1.5), b"1.5"),
        (b"\x82" + struct.pack(">d", float("nan")), b"NaN"),
        (b"\x84" + bytes.fromhex("31a000000000000f"), b"1.5"),
        (b"\x98" + UUID.bytes, b'"01234567-89ab-cdef-0123-456789abcdef"'),
        (b"\x83" + (1000).to_bytes(8, "big"), b"1000"),
    ],
)
def test_field_becomes_plain_text(octets, text):
    assert field_text(octets) == text


@pytest.mark.parametrize("octets", [b"", b"\xa1\x05ab", b"\x40\x40"])
def test_field_that_is_no_value_becomes_hex(octets):
    assert json.loads(field_text(octets)) == {"$amqp": octets.hex()}


def test_map_with_other_keys_than_text_keeps_pairs():
    assert to_json_value({"a": 1}) == {"a": 1}
    assert to_json_value({1: "x", "a": b"\x01"}) == {"$map": [[1, "x"], ["a", {"$binary": "AQ=="}]]}


def test_infinity_and_nan_differ_from_text_in_json():
    found = to_json_value([float("inf"), float("-inf"), float("nan"), "NaN"])
    assert found == [{"$float": "Infinity"}, {"$float": "-Infinity"}, {"$float": "NaN"}, "NaN"]


@pytest.mark.parametrize(
    ("octets", "text"),
    [
        ("32800001", "1"),  # decimal32
        ("b2800001", "-1"),
        ("3200000f", "1.5"),
        ("6cb8967f", "9999999"),
        ("2f800000", "0.000000"),
        ("78000000", "Infinity"),
        ("f8000000", "-Infinity"),
        ("7c000000", "NaN"),
        ("31a000000000000f", "1.5"),  # decimal64
        ("31c0000000000001", "1"),
        ("6c7386f26fc0ffff", "9999999999999999"),
        ("30400000000000000000000000000001", "1"),  # decimal128
        ("303e0000000000000000000000000096", "15.0"),
    ],
)
def test_decimal_keeps_its_digits(octets, text):
    assert decimal_text(bytes.fromhex(octets)) == text


def test_decimal_differs_from_binary_in_json():
    assert body_value(section(AMQP_VALUE, b"\x74\x32\x80\x00\x01")) == {"$decimal": "1"}


def test_map_with_a_key_like_a_marker_keeps_pairs():
    assert to_json_value({"$binary": "AQ=="}) == {"$map": [["$binary", "AQ=="]]}


def test_body_that_is_nested_too_deeply_is_told_from_damage():
    value = b"\x45"
    for _ in range(60):
        value = b"\xd0" + struct.pack(">II", len(value) + 4, 1) + value
    with pytest.raises(TooDeepError):
        body_text(section(AMQP_VALUE, value))


def test_described_value_keeps_descriptor():
    assert body_value(section(AMQP_VALUE, b"\x00\x53\x05\x54\x02")) == {"$descriptor": 5, "$value": 2}


def test_value_without_json_form_is_an_error():
    with pytest.raises(TypeError, match="a value of type object cannot be encoded"):
        to_json_value(object())


def test_sequences_are_joined_to_one_list():
    assert body_value(sequence(b"\x54\x01", b"\x54\x02") + sequence(b"\x40")) == [[1, 2], [None]]


def test_body_text_is_utf8_and_not_escaped():
    assert body_text(section(AMQP_VALUE, codec.encode_string("ü"))) == '"ü"'.encode()


@pytest.mark.parametrize(
    "octets",
    [section(AMQP_VALUE, b"\xa1\x05ab"), section(AMQP_SEQUENCE, b"\x54\x01"), sequence(b"\x54\x01") + b"\x00"],
)
def test_damaged_body_is_not_amqp(octets):
    with pytest.raises(NotAmqpError):
        body_text(octets)
