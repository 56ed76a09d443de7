"""Framing of messages between the supervisor and a child process: length in four octets (network order), then content.

The reader limits the length, so that a broken peer cannot make it collect octets without end.
"""

import struct
from typing import Final

_LENGTH: Final = struct.Struct(">I")


class MessageError(ValueError):
    """Raised for octets that are not a message, and for messages that are too long."""


def pack(content: bytes) -> bytes:
    """Return a message with its length."""
    return _LENGTH.pack(len(content)) + content


class MessageSplitter:
    """Splitter of received octets into complete messages, still encoded. Owner: one end of the socket pair."""

    def __init__(self, most: int) -> None:
        """most: maximum octets of a message."""
        self._most: Final = most
        self._octets = bytearray()

    def feed(self, octets: bytes) -> list[bytes]:
        """Add received octets and return the messages that are complete now. Raises MessageError."""
        self._octets += octets
        found = []
        while len(self._octets) >= _LENGTH.size:
            (size,) = _LENGTH.unpack_from(self._octets)
            if size > self._most:
                raise MessageError(f"a message of {size} octets")
            end = _LENGTH.size + size
            if len(self._octets) < end:
                break
            found.append(bytes(self._octets[_LENGTH.size : end]))
            del self._octets[:end]
        return found
