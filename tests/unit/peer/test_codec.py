"""Codec of the test peer: byte vectors from the specification, and round trips."""

import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.peer.codec import CodecError, decode, decode_all, encode
from tests.peer.types import (
    Array,
    Byte,
    Char,
    Decimal,
    Described,
    Float,
    Int,
    Long,
    Map,
    Raw,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
)

VECTORS: list[tuple[Any, str]] = [
    (None, "40"),
    (True, "41"),
    (False, "42"),
    (UInt(0), "43"),
    (UInt(7), "52 07"),
    (UInt(256), "70 00000100"),
    (ULong(0), "44"),
    (ULong(0x10), "53 10"),
    (ULong(1 << 40), "80 0000010000000000"),
    (UByte(255), "50 ff"),
    (UShort(258), "60 0102"),
    (Byte(-1), "51 ff"),
    (Short(-2), "61 fffe"),
    (Int(-3), "54 fd"),
    (Int(1000), "71 000003e8"),
    (Long(-128), "55 80"),
    (Long(128), "81 0000000000000080"),
    (Timestamp(1), "83 0000000000000001"),
    (Float(1.5), "72 3fc00000"),
    (1.5, "82 3ff8000000000000"),
    (Char("é"), "73 000000e9"),
    (Decimal(b"\x01\x02\x03\x04"), "74 01020304"),
    (uuid.UUID(int=1), "98 00000000000000000000000000000001"),
    (b"ab", "a0 02 6162"),
    ("é", "a1 02 c3a9"),
    (Symbol("ab"), "a3 02 6162"),
    ([], "45"),
    ([None, True], "c0 03 02 4041"),
    (Map([(Symbol("k"), Int(1))]), "c1 06 02 a3016b 5401"),
    (Array([Symbol("a"), Symbol("b")]), "e0 0c 02 b3 00000001 61 00000001 62"),
    (Described(ULong(0x24), []), "00 53 24 45"),
]


@pytest.mark.parametrize(("value", "octets"), VECTORS, ids=[repr(value) for value, _octets in VECTORS])
def test_vectors_are_encoded_and_decoded(value: Any, octets: str) -> None:
    assert encode(value) == bytes.fromhex(octets)
    found, end = decode(bytes.fromhex(octets))
    assert (found, end) == (value, len(bytes.fromhex(octets)))
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("octets", "value"),
    [
        ("56 01", True),
        ("56 00", False),
        ("d0 00000006 00000002 4041", [None, True]),
        ("d1 0000000a 00000002 a3016b 5401 40"[:-3].replace("0a", "09"), {"k": 1}),
        ("b1 00000001 61", "a"),
        ("e0 02 00 40", []),
    ],
)
def test_long_forms_are_read(octets: str, value: Any) -> None:
    assert decode(bytes.fromhex(octets))[0] == value


@pytest.mark.parametrize("octets", ["", "a1 05 61", "c0 09 02 40", "c1 02 01 40", "3f", "c0 03 01 4041", "71 0000"])
def test_malformed_value_is_refused(octets: str) -> None:
    with pytest.raises(CodecError):
        decode(bytes.fromhex(octets))


def test_map_keeps_order_and_duplicates() -> None:
    pairs = [("x", 1), (Symbol("x"), 2), ("x", 3)]
    found, _end = decode(encode(Map(pairs)))
    assert found.pairs == pairs
    assert [type(key) for key, _value in found.pairs] == [str, Symbol, str]


def test_long_values_take_the_wide_form() -> None:
    assert encode("x" * 256)[:1] == b"\xb1"
    assert encode(list(range(300)))[:1] == b"\xd0"
    assert encode({str(n): n for n in range(200)})[:1] == b"\xd1"
    assert encode(Array([Symbol("s" * 300)]))[:1] == b"\xf0"


def test_raw_octets_go_through() -> None:
    assert encode([Raw(b"\x40")]) == encode([None])


def test_values_without_amqp_type_are_refused() -> None:
    with pytest.raises(TypeError):
        encode(object())


SCALARS: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.integers(0, (1 << 32) - 1).map(UInt),
    st.integers(0, (1 << 64) - 1).map(ULong),
    st.integers(-(1 << 31), (1 << 31) - 1).map(Int),
    st.binary(max_size=300),
    st.text(max_size=100),
    st.text("abc-", max_size=300).map(Symbol),
    st.uuids(),
    st.floats(allow_nan=False),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=6),
        st.dictionaries(st.text(max_size=5), inner, max_size=5),
        st.builds(Described, st.integers(0, 300).map(ULong), inner),
    ),
    max_leaves=20,
)


@given(st.lists(VALUES, max_size=4))
def test_values_are_decoded_unchanged(values: list[Any]) -> None:
    assert decode_all(b"".join(map(encode, values))) == values


@given(VALUES, st.data())
def test_truncated_value_is_refused(value: Any, data: st.DataObject) -> None:
    octets = encode(value)
    cut = data.draw(st.integers(0, len(octets) - 1))
    with pytest.raises(CodecError):
        decode(octets[:cut])
