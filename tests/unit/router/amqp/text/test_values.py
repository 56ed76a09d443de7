"""Texts of AMQP values: whole ones in Proton's form, and those whose octets end too early or claim too much."""

import pytest

from sluice.router.amqp.text.values import MAX_DEPTH, SHOWN_OCTETS, ShortError, value_text
from tests.peer.codec import encode
from tests.peer.types import Array, Described, Map, Symbol, UInt, ULong

NAMES = {0x10: ("open", ("container-id", "hostname"))}


def shown(octets: bytes) -> str:
    """Return the text of a whole value."""
    text, end = value_text(octets, 0, NAMES)
    assert end == len(octets)
    return text


def shown_short(octets: bytes) -> str:
    """Return the text of a value that ends too early."""
    with pytest.raises(ShortError) as raised:
        value_text(octets, 0, NAMES)
    return raised.value.text


def nested(depth: int) -> bytes:
    """Return an empty list in `depth` other lists."""
    octets = b"\x45"
    for _ in range(depth):
        octets = b"\xd0" + (4 + len(octets)).to_bytes(4, "big") + (1).to_bytes(4, "big") + octets
    return octets


def test_known_list_names_its_fields_without_absent_ones() -> None:
    assert shown(encode(Described(ULong(0x10), [None, "host", UInt(7)]))) == '@open(16) [hostname="host", 7]'
    assert shown(encode(Described(ULong(0x10), []))) == "@open(16) []"


def test_known_descriptor_of_value_without_fields_shows_value() -> None:
    assert shown(encode(Described(ULong(0x10), "text"))) == '@open(16) "text"'


@pytest.mark.parametrize(("prefix", "text"), [(b"", "[true]"), (b"\x00\x53\x10", "@open(16) [container-id=true]")])
def test_list_ends_where_its_size_says(prefix: bytes, text: str) -> None:
    """A list's size may exceed that of its items. What follows the list is read at its end."""
    padded_list = prefix + bytes([0xC0, 4, 1, 0x41, 0, 0])
    assert value_text(padded_list + b"\x42", 0, NAMES) == (text, len(padded_list))


@pytest.mark.parametrize(
    ("octets", "text"),
    [
        (b"", "..."),
        (b"\x70\x00\x00", "..."),
        (b"\xa1", "..."),
        (b"\xa1\x05abc", '"abc"...'),
        (b"\xc0\x01", "..."),
        (encode([UInt(7), "abc"])[:-1], '[7, "ab"...'),
        (encode(Map([("k", "abc")]))[:-1], '{"k"="ab"...'),
        (encode(Described(ULong(0x10), ["abc", "def"]))[:-1], '@open(16) [container-id="abc", hostname="de"...'),
        (encode(Described(ULong(0x99), "abc"))[:-1], '@153 "ab"...'),
    ],
)
def test_cut_value_shows_what_has_arrived(octets: bytes, text: str) -> None:
    assert shown_short(octets) == text


def test_unknown_constructor_is_named() -> None:
    assert shown_short(b"\x3f") == "(type 0x3f?)"


def test_items_beyond_size_of_list_are_not_read() -> None:
    """The list claims three items in the octets of one."""
    assert shown_short(bytes([0xC0, 2, 3]) + b"\x41\x42\x42") == "[true, false (1 more?)"


def test_array_names_type_of_its_items() -> None:
    assert shown(encode(Array([Symbol("a"), Symbol("b-c")]))) == '@PN_SYMBOL[:a, :"b-c"]'


def test_array_of_items_without_octets_shows_count_only() -> None:
    """Such an array may claim four thousand million items in ten octets."""
    octets = b"\xf0" + (5).to_bytes(4, "big") + (0xFFFFFFFF).to_bytes(4, "big") + b"\x41"
    assert shown(octets) == "@PN_BOOL[4294967295 x true]"


@pytest.mark.parametrize("text", ["x", "\N{GREEK SMALL LETTER ALPHA}"])
def test_long_text_is_cut_at_limit(text: str) -> None:
    octets = text.encode()
    fitting = SHOWN_OCTETS // len(octets)
    assert shown(encode(text * fitting)) == f'"{text * fitting}"'
    assert shown(encode(text * (fitting + 1))) == f'"{text * fitting}"...'


def test_cut_symbol_is_quoted() -> None:
    assert shown(encode(Symbol("x" * SHOWN_OCTETS))) == f":{'x' * SHOWN_OCTETS}"
    assert shown(encode(Symbol("x" * (SHOWN_OCTETS + 1)))) == f':"{"x" * SHOWN_OCTETS}"...'


def test_deep_value_ends_at_limit() -> None:
    assert shown(nested(MAX_DEPTH)) == "[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1)
    assert shown_short(nested(2000)).startswith("[" * (MAX_DEPTH + 1) + "...")
    assert shown_short(b"\x00" * 5000).endswith("...")
