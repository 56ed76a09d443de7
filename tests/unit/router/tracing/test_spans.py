"""Octets of workers as spans."""

import struct

import pytest

from sluice.router.tracing.spans import SpanError, read_spans

LAYOUT = struct.Struct("=16s8s8s6Q4BI168s")


def encoded(
    kind: int = 2, outcome: int = 0x24, flags: int = 2, parent: bytes = b"p" * 8, from_worker: int = 1
) -> bytes:
    numbers = (1000, 0, 3000, 17, 5, 6)
    return LAYOUT.pack(b"t" * 16, b"s" * 8, parent, *numbers, kind, outcome, flags, from_worker, 3, b"a/b")


def test_span_octets_are_decoded_by_field() -> None:
    (span,) = read_spans(encoded(), 2, 10**9)
    assert span.as_map() == {
        "trace_id": "74" * 16, "span_id": "73" * 8, "parent_id": "70" * 8, "kind": "send", "worker": 2,
        "from_worker": 1, "began": 10**9 + 1000, "sent": None, "ended": 10**9 + 3000, "octets": 17, "link": 5,
        "connection": 6, "address": "a/b", "outcome": "accepted", "queued": True,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("outcome", "flags", "shown"),
    [(0, 1, "presettled"), (0, 0, "settled"), (0, 5, "dropped"), (0x27, 4, "modified"), (0, 18, "unsettled")],
)
def test_outcome_is_named_by_state_and_flags(outcome: int, flags: int, shown: str) -> None:
    (span,) = read_spans(encoded(outcome=outcome, flags=flags), 0, 0)
    assert span.outcome == shown


def test_first_span_of_trace_has_no_parent() -> None:
    (span,) = read_spans(encoded(kind=1, parent=bytes(8), from_worker=255), 0, 0)
    assert (span.parent_id, span.from_worker, span.kind) == (None, None, "receive")


def test_crossing_has_worker_that_it_comes_from() -> None:
    (span,) = read_spans(encoded(kind=3, outcome=0, flags=0, from_worker=1), 2, 0)
    assert (span.kind, span.from_worker, span.worker, span.outcome) == ("cross", 1, 2, "crossed")


def test_cut_address_ends_with_ellipsis() -> None:
    assert read_spans(encoded(flags=8), 0, 0)[0].address == "a/b…"


@pytest.mark.parametrize("octets", [b"x", encoded() + b"x", encoded(kind=9)])
def test_octets_of_no_span_are_refused(octets: bytes) -> None:
    with pytest.raises(SpanError):
        read_spans(octets, 0, 0)
