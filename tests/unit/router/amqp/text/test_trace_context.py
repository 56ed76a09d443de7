"""Trace context of a message: the places where senders put it, and invalid contexts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.router.amqp import codec
from sluice.router.amqp.text.trace_context import trace_context

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SAMPLED = f"00-{TRACE}-{PARENT}-01"
BODY = b"\x00\x53\x75\xa0\x01x"


def section(code: int, *items: bytes) -> bytes:
    entries: bytes = codec.encode_map(list(items))
    return b"\x00\x53" + bytes([code]) + entries


def context(text: str, code: int = 0x74) -> bytes:
    return section(code, codec.encode_string("a"), codec.encode_uint(7), codec.encode_string("traceparent"),
                   codec.encode_string(text))  # fmt: skip


@pytest.mark.parametrize(
    "message",
    [
        context(SAMPLED) + BODY,
        section(0x72, codec.encode_symbol("traceparent"), codec.encode_string(SAMPLED)) + BODY,
        b"\x00\x53\x70\x45\x00\x53\x73\xc0\x03\x01\xa1\x00" + context(SAMPLED),
        context(SAMPLED + "-more"),
    ],
)
def test_trace_context_is_found_in_sections(message):
    found = trace_context(message)
    assert found is not None
    assert (found.trace_id, found.parent_id, found.flags, str(found)) == (TRACE, PARENT, "01", SAMPLED)


@pytest.mark.parametrize(
    "message",
    [
        BODY,
        b"",
        context("nonsense"),
        context(f"ff-{TRACE}-{PARENT}-01"),
        context(f"00-{'0' * 32}-{PARENT}-01"),
        context(f"00-{TRACE}-{'0' * 16}-01"),
        context(SAMPLED.upper()),
        context(SAMPLED)[:60],
        context(SAMPLED, code=0x71),
        BODY + context(SAMPLED),
        b"\x00\x53\x75" + context(SAMPLED)[3:],
    ],
)
def test_invalid_trace_context_is_ignored(message):
    assert trace_context(message) is None


@given(st.binary(), st.integers(0, 200))
def test_trace_context_with_noise_does_not_fail(octets, at):
    trace_context((context(SAMPLED) + BODY)[:at] + octets)
