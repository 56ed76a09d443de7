"""Kinds of encoded delivery states, which come from peers, and the plain encodings of outcomes (part 3, 3.4)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.router.amqp import codec
from sluice.router.client.outcome import Accepted, Modified, Rejected, Released, encode
from sluice.router.testing.states import has_field, plain_state, state_kind

OTHER = 0xFF  # kind of a state that the router only relays
NAMED = b"\x00\xa3\x12amqp:accepted:list\x45"
LONG = b"\x00\x80" + (0x24).to_bytes(8, "big") + b"\x45"  # accepted, with a descriptor of 8 octets
ERROR = codec.encode_error("amqp:not-allowed", "no")


@pytest.mark.parametrize("outcome", [Accepted(), Rejected(), Released(), Modified()])
def test_kind_is_the_descriptor_of_the_outcome(outcome):
    assert state_kind(encode(outcome)) == outcome.code


@pytest.mark.parametrize("octets", [LONG, NAMED])
def test_kind_of_long_or_named_descriptor_is_the_same(octets):
    assert state_kind(octets) == Accepted.code


@pytest.mark.parametrize(
    "octets",
    [
        codec.encode_described(0xFF, []),
        b"\x00\x80" + (0x12345).to_bytes(8, "big") + b"\x45",
        b"\x45",
        b"\x00",
        b"\x00\x53",
        b"\x00\x80\x00",
    ],
)
def test_state_without_known_descriptor_is_only_relayed(octets):
    assert state_kind(octets) == OTHER
    assert state_kind(b"") == 0


@pytest.mark.parametrize(
    ("octets", "present"),
    [
        (codec.encode_described(0x25, [ERROR]), True),
        (codec.encode_described(0x25, []), False),
        (codec.encode_described(0x25, [b"\x40"]), False),
        (b"\x00\x53\x25\xc0\x01\x01", False),  # a field is announced and missing
        (b"\x00\x53\x25\xc0\xff\x01\x41", False),  # longer than the state
        (b"\x00\x53\x25", False),
        (b"", False),
    ],
)
def test_field_is_present_if_it_has_a_value(octets, present):
    assert has_field(octets) is present


@given(st.binary(max_size=40))
def test_kind_of_any_octets_is_one_octet(octets):
    assert 0 <= state_kind(octets) <= OTHER
    assert has_field(octets) in (True, False)


@pytest.mark.parametrize(
    ("kind", "octets"),
    [
        (0x24, encode(Accepted())),
        (0x25, codec.encode_described(0x25, [])),
        (0x26, encode(Released())),
        (0x27, b"\x00\x53\x27\xc0\x03\x02\x41\x42"),  # delivery-failed, and not undeliverable-here
        (0x23, b""),
        (0, b""),
        (OTHER, b""),
    ],
)
def test_plain_state_has_no_fields_but_the_flags_of_modified(kind, octets):
    assert plain_state(kind) == octets
