"""Octets needed to scan a message's leading sections, compared with scans of all prefixes."""

import uuid

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sluice.router.testing.message import full_scan, needs, scan_dict, short_scan, user_scan
from tests.peer.codec import encode
from tests.peer.types import Described, Symbol, ULong
from tests.unit.router.message.test_annotations import encoded_message, messages

MORE, TRUNCATED = 1, 2
LONG_MAP = b"\0\x53\x72\xd1\x00\x08\x00\x00\x00\x00\x00\x02"  # annotations of 512 KiB


def is_short(octets: bytes, properties: bool) -> bool:
    """Return True if a scan finds these octets incomplete."""
    return bool(scan_dict(octets, properties)[0] in (MORE, TRUNCATED))


@given(messages, st.booleans())
def test_needs_of_prefix_are_reached_before_scan_succeeds(parts, properties):
    octets = encoded_message(*parts)
    tries, at = 0, 0
    while at <= len(octets) and is_short(octets[:at], properties):
        least = needs(octets[:at])
        assert least is not None
        assert least > at
        assert all(is_short(octets[:end], properties) for end in range(at, min(least, len(octets) + 1)))
        at, tries = least, tries + 1
    assert tries <= 30


@pytest.mark.parametrize(
    ("octets", "least"),
    [
        (b"", 3),
        (b"\0", 3),
        (b"\0\x53", 3),
        (b"\0\x53\x72", 4),
        (LONG_MAP[:4], 8),
        (LONG_MAP[:6], 8),
        (LONG_MAP, 8 + (1 << 19)),
        (b"\0\x53\x70\xc0\x01\x00", 9),
        (b"\0\x80" + bytes(6), 9),
        (b"\0\x53\x72\x00\xa3\x02", 9),
        (b"\0\x53\x72\x0f", None),
        (b"\0\x53\x72" + 40 * b"\0", None),
    ],
)
def test_needs_of_incomplete_sections_are_minimal(octets, least):
    assert needs(octets) == least


field = st.one_of(st.none(), st.text(max_size=20), st.binary(max_size=8), st.just(Symbol("s")), st.just("x" * 300))
message_id = st.one_of(field, st.integers(0, 1 << 40).map(ULong), st.just(uuid.UUID(int=5)), st.just(ULong(0)))
properties = st.tuples(st.tuples(message_id, field, field, field), st.integers(0, 4)).map(
    lambda each: each[0][: each[1]]
)


@given(properties, st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=3))
@example(("a", None, "b"), [(2, 200)])  # a count of items beyond the octets of the list
def test_short_scan_of_properties_agrees_with_full_scan(fields, changes):
    section = bytearray(encode(Described(ULong(0x73), list(fields)))[3:])
    for at, value in changes:
        section[at % len(section)] = value
    octets = bytes(section)
    full, short, user = full_scan(octets), short_scan(octets), user_scan(octets)
    assert short is None or short == full
    assert (user is None) == (full is None)
    assert user is None or full is None or user[0] == full[0]


def test_short_scan_of_usual_properties_finds_address():
    section = encode(Described(ULong(0x73), [ULong(7), b"user", "queue.a", "subject"]))[3:]
    assert short_scan(section) == (b"user", b"queue.a")
