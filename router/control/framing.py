"""Frames of the control channel, which is a stream of octets: each frame has the parts of one message.

A frame: the number of parts, the octets of each part (all unsigned, 32 bits, in network order), then the parts.
"""

import struct
from collections.abc import Sequence
from typing import Final

MOST_PARTS: Final = 1 << 16
MOST_OCTETS: Final = 1 << 30  # of all parts: a snapshot of the largest table has less
_NUMBER: Final = struct.Struct("!I")


class FrameError(ValueError):
    """Octets that are no frame; the text says why. The stream cannot be read any further."""


def pack(parts: Sequence[bytes]) -> bytes:
    """The frame with these parts."""
    numbers = struct.pack(f"!{len(parts) + 1}I", len(parts), *map(len, parts))
    return b"".join((numbers, *parts))


class Frames:
    """Finds the frames in a stream. Owner: whoever reads its socket."""

    __slots__ = ("_held", "_need")

    def __init__(self) -> None:
        self._held = bytearray()  # read, and not taken
        self._need = _NUMBER.size  # octets without which there is no next frame

    def feed(self, octets: bytes | memoryview) -> None:
        """The stream goes on with these octets."""
        self._held += octets

    def take(self) -> list[bytes] | None:
        """The parts of the next frame; None: it is not here yet. Raises FrameError."""
        held = self._held
        if len(held) < self._need:
            return None
        (count,) = _NUMBER.unpack_from(held)
        if count > MOST_PARTS:
            raise FrameError(f"a frame of {count} parts, at most {MOST_PARTS}")
        start = _NUMBER.size * (count + 1)
        if len(held) < start:
            self._need = start
            return None
        sizes = struct.unpack_from(f"!{count}I", held, _NUMBER.size)
        end = start + sum(sizes)
        if end - start > MOST_OCTETS:
            raise FrameError(f"a frame of {end - start} octets, at most {MOST_OCTETS}")
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
