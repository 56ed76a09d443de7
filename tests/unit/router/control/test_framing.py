"""Frames of the control channel: whole, split anywhere, and with excessive lengths."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.router.control.framing import MOST_OCTETS, MOST_PARTS, FrameDecoder, FrameError, pack

MESSAGES = st.lists(st.lists(st.binary(max_size=40), max_size=5), max_size=6)


@given(MESSAGES, st.lists(st.integers(1, 30)))
def test_split_stream_yields_same_messages(messages: list[list[bytes]], cuts: list[int]) -> None:
    stream = b"".join(pack(parts) for parts in messages)
    frames, taken = FrameDecoder(), []
    while stream:
        size = cuts.pop() if cuts else len(stream)
        frames.feed(stream[:size])
        stream = stream[size:]
        while (parts := frames.take()) is not None:
            taken.append(parts)
    assert taken == messages


def test_packed_frame_has_expected_octets() -> None:
    assert pack([b"[]", b"", b"abc"]) == bytes.fromhex("00000003 00000002 00000000 00000003") + b"[]abc"


@pytest.mark.parametrize(
    ("octets", "text"),
    [
        (struct.pack("!I", MOST_PARTS + 1), f"a frame has {MOST_PARTS + 1} parts, and at most {MOST_PARTS}"),
        (struct.pack("!3I", 2, 1, MOST_OCTETS), f"a frame has {MOST_OCTETS + 1} octets, and at most {MOST_OCTETS}"),
    ],
    ids=["parts", "octets"],
)
def test_excessive_length_is_refused_before_its_octets_arrive(octets: bytes, text: str) -> None:
    frames = FrameDecoder()
    frames.feed(octets)
    with pytest.raises(FrameError, match=text):
        frames.take()
