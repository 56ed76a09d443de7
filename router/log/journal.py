"""Native protocol of systemd's journal: one datagram for each entry, with fields (systemd.journal-fields(7)).

https://systemd.io/JOURNAL_NATIVE_PROTOCOL
"""

import os
import socket
import struct
import sys
from collections.abc import Mapping
from typing import Final

JOURNAL_PATH: Final = "/run/systemd/journal/socket"
_LENGTH: Final = struct.Struct("<Q")


def encode_fields(fields: Mapping[str, bytes]) -> bytes:
    """Encode fields as a datagram, each with its length, because a value may contain any octets."""
    return b"".join(
        name.encode() + b"\n" + _LENGTH.pack(len(value)) + value + b"\n" for name, value in fields.items()
    )


class JournalSocket:
    """Non-blocking connection to the journal. Owner: a Sink."""

    def __init__(self, path: str = JOURNAL_PATH) -> None:
        self._path: Final = path
        self._socket: socket.socket | None = None
        self._identifier = (os.path.basename(sys.argv[0]) or "sluice").encode("utf-8", "backslashreplace")

    def send(self, fields: Mapping[str, bytes]) -> bool:
        """Send an entry. Returns False if the journal does not take it at once, or not in this size."""
        octets = encode_fields({**fields, "SYSLOG_IDENTIFIER": self._identifier})
        for _ in range(2):  # the second attempt reaches a journal that was restarted
            try:
                if self._socket is None:
                    self._socket = self._connect()
                self._socket.send(octets)
            except BlockingIOError:
                return False
            except OSError:
                self.close()
            else:
                return True
        return False

    def _connect(self) -> socket.socket:
        made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        try:
            made.connect(self._path)
        except OSError:
            made.close()
            raise
        return made

    def close(self) -> None:
        """Close the connection."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
