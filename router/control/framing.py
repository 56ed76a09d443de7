"""Frames of the control channel, which is a stream of octets. Each frame consists of parts.

A frame has the number of parts and the size of each part in octets (unsigned 32-bit numbers in network order), then the
parts.
"""

import struct
from collections.abc import Sequence
from typing import Final

MOST_PARTS: Final = 1 << 16
MOST_OCTETS: Final = 1 << 30  # octets of all parts of a frame; a snapshot of the largest table is smaller
_NUMBER: Final = struct.Struct("!I")


class FrameError(ValueError):
    """Error for octets that are not a frame; its text is the reason. The rest of the stream cannot be read."""


def pack(parts: Sequence[bytes]) -> bytes:
    """Return the frame with these parts."""
    numbers = struct.pack(f"!{len(parts) + 1}I", len(parts), *map(len, parts))
    return b"".join((numbers, *parts))


class FrameDecoder:
    """Decoder of the frames in a stream. Owner: the reader of the socket."""

    __slots__ = ("_held", "_need")

    def __init__(self) -> None:
        self._held = bytearray()  # octets read and not decoded yet
        self._need = _NUMBER.size  # least number of octets needed to decode further

    def feed(self, octets: bytes | memoryview) -> None:
        """Append octets of the stream."""
        self._held += octets

    def take(self) -> list[bytes] | None:
        """Return the parts of the next frame, or None if it is incomplete. Raises FrameError."""
        held = self._held
        if len(held) < self._need:
            return None
        (count,) = _NUMBER.unpack_from(held)
        if count > MOST_PARTS:
            raise FrameError(f"a frame has {count} parts, and at most {MOST_PARTS} are allowed")
        start = _NUMBER.size * (count + 1)
        if len(held) < start:
            self._need = start
            return None
        sizes = struct.unpack_from(f"!{count}I", held, _NUMBER.size)
        end = start + sum(sizes)
        if end - start > MOST_OCTETS:
            raise FrameError(f"a frame has {end - start} octets, and at most {MOST_OCTETS} are allowed")
        if len(held) < end:
            self._need = end
            return None
        parts = []
        for size in sizes:
            parts.append(bytes(memoryview(held)[start : start + size]))
            start += size
        del held[:end]
        self._need = _NUMBER.size
        return parts
