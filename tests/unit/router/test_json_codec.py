"""JSON codec: values that orjson does not have, and the format of Dispatch's tools."""

import enum
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.router.amqp.codec import Char, Symbol
from sluice.router.json_codec import JsonError, decode, decode_exactly, dispatch_text, encode, encode_ascii

ULONG_MOST = 2**64 - 1
LONG_LEAST = -(2**63)
AMQP_DEPTH = 32  # MAX_DEPTH in router/amqp/codec.pyx
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=9)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(LONG_LEAST, ULONG_MOST) | st.floats(allow_nan=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=20,
)


class Level(enum.IntEnum):
    HIGH = 3


@given(VALUES.filter(lambda value: "inf" not in repr(value)))
def test_decode_of_encoded_value_returns_it(value):
    assert decode(encode(value)) == decode(encode_ascii(value)) == decode_exactly(encode(value).decode()) == value


@given(VALUES, st.sampled_from([None, 0, 1, 2, 4]))
def test_dispatch_text_equals_that_of_python(value, indent):
    assert dispatch_text(value, indent) == json.dumps(value, indent=indent)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"a": [1, 2], "b": {}}, '{"a": [1, 2], "b": {}}'),
        ("é\u2028\U0001f600", '"\\u00e9\\u2028\\ud83d\\ude00"'),
        ([1e-07, 1e16, 0.1, -0.0], "[1e-07, 1e+16, 0.1, -0.0]"),
        ([math.nan, -math.inf], "[NaN, -Infinity]"),
        ({1: True, None: 2**70}, '{"1": true, "null": 1180591620717411303424}'),
    ],
)
def test_dispatch_text_is_that_of_dispatch(value, text):
    assert dispatch_text(value) == text


def test_dispatch_text_of_unknown_type_is_converted():
    assert dispatch_text({"octets": b"x"}, 2, repr) == '{\n  "octets": "b\'x\'"\n}'
    with pytest.raises(TypeError):
        dispatch_text(b"x")


@pytest.mark.parametrize("value", [0, ULONG_MOST, LONG_LEAST, ULONG_MOST + 1, LONG_LEAST - 1, 10**60])
def test_integer_of_any_size_keeps_all_digits(value):
    text = f'{{"n":[{value}]}}'
    assert encode({"n": [value]}) == text.encode()
    assert decode_exactly(text) == {"n": [value]}


def test_integer_as_key_becomes_text():
    assert encode({0: 2, True: 3, ULONG_MOST + 1: 4}) == b'{"0":2,"true":3,"18446744073709551616":4}'


def test_integer_of_subclass_is_encoded():
    class Many(int):
        pass

    assert encode([Level.HIGH, Many(5), Many(2**65)]) == b"[3,5,36893488147419103232]"


def test_long_number_within_text_is_unchanged():
    text = '{"id": "12345678901234567890123", "x": 0.1234567890123456789012}'
    assert decode_exactly(text) == decode(text) == json.loads(text)


def test_numbers_that_json_does_not_have_become_null():
    assert encode([math.nan, math.inf, -math.inf, 1.5]) == b"[null,null,null,1.5]"


def test_half_of_surrogate_pair_becomes_escape_in_text():
    octets = encode({"a\udc80": ["é\ud800", 2**64]})
    assert decode_exactly(octets.decode()) == {"a\\udc80": ["é\\ud800", 2**64]}


def test_ascii_encoding_escapes_all_other_characters():
    value = {"é": "\u202e\u009b\U0001f600 plain"}
    octets = encode_ascii(value)
    assert octets == json.dumps(value, separators=(",", ":")).encode("ascii")
    assert decode(octets) == value


def test_text_types_of_amqp_are_text():
    assert encode({Symbol("k"): [Symbol("s"), Char("c")]}) == b'{"k":["s","c"]}'


def test_value_of_greatest_amqp_depth_is_encoded():
    value: object = 1
    for _ in range(AMQP_DEPTH):
        value = {"$map": [[value, 1]]}  # three levels, as in pipeline/values.py
    assert decode(encode(value)) == value


@pytest.mark.parametrize("value", [b"octets", object(), {(1, 2): 3}])
def test_value_that_json_does_not_have_is_refused(value):
    with pytest.raises(TypeError):
        encode(value)


@pytest.mark.parametrize(
    "text",
    ["", "NaN", "-Infinity", "1e400", "[1,]", "01", '"\t"', '"\\ud800"', '"\ud800"', b'"\xff"', "[" * 100_000, "{}x"],
)
def test_text_that_is_not_json_is_refused(text):
    for reader in (decode, decode_exactly):
        with pytest.raises(JsonError):
            reader(text)


def test_error_has_line_and_column():
    with pytest.raises(JsonError, match="line 2 column 6") as caught:
        decode('{"a":\n [1, b]}')
    assert (caught.value.lineno, caught.value.colno) == (2, 6)
    assert isinstance(caught.value, ValueError)


def test_last_of_equal_keys_counts():
    assert decode('{"a": 1, "a": 2}') == {"a": 2}


@pytest.mark.parametrize("levels", [255, 1000, 100_000])
def test_value_with_more_levels_than_can_be_encoded_is_refused(levels: int) -> None:
    value: list[object] = []
    for _ in range(levels):
        value = [value]
    with pytest.raises(TypeError):
        encode(value)
