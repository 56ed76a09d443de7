"""Messages with the time of sending, which is found again however a broker re-encodes the message."""

from __future__ import annotations

import struct
import time

from proton import Message

MAGIC = b"\xffSLUICE\xfe"
STAMP = struct.Struct(">8sqQ")  # MAGIC, CLOCK_MONOTONIC in ns (one clock for all processes of a machine), number
SMALLEST = STAMP.size


class Template:
    """Message that is encoded once. Each copy gets its own stamp."""

    def __init__(self, size: int, **fields: object) -> None:
        """Encode the message. size: octets of the body, at least SMALLEST. fields: for example reply_to or durable."""
        body = STAMP.pack(MAGIC, 0, 0) + bytes(max(0, size - SMALLEST))
        self._octets = bytearray(Message(body=body, inferred=True, **fields).encode())
        self._place = self._octets.index(MAGIC)

    def stamped(self, number: int) -> bytes:
        """Return the octets of a message sent now."""
        STAMP.pack_into(self._octets, self._place, MAGIC, time.monotonic_ns(), number)
        return bytes(self._octets)


def read(octets: bytes) -> tuple[float, int] | None:
    """Return the milliseconds since the message was stamped, and its number. None: not a stamped message."""
    place = octets.find(MAGIC)
    if place < 0 or len(octets) < place + SMALLEST:
        return None
    _, sent, number = STAMP.unpack_from(octets, place)
    return (time.monotonic_ns() - sent) / 1e6, number
