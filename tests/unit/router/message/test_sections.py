"""Octets needed to scan a message's leading sections, compared with scans of all prefixes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from router.message.sections import needs, scan_dict

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
