"""HTTP answer with a deadline, for connections of the standard library and of urllib3.

Without it, a time-out bounds each read of the socket only: a server that sends an octet before each time-out, or
interim answers (status 100) without end, holds its client for ever.
"""

import io
import socket
import time
from http.client import HTTPResponse
from typing import Any


class _DeadlineReader(io.RawIOBase):
    """Reader of a socket up to a deadline. Owner: an answer."""

    def __init__(self, connected: socket.socket, deadline: float) -> None:
        """deadline: on the clock `time.monotonic`."""
        self._socket = connected
        # The file counts as a reference to the socket, which stays open although the connection closes it.
        self._file = connected.makefile("rb", buffering=0)
        self._deadline = deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        """Raises TimeoutError at the deadline."""
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("the deadline of the answer has passed")
        self._socket.settimeout(left)
        return self._file.readinto(buffer)

    def close(self) -> None:
        self._file.close()
        super().close()


class DeadlineAnswer(HTTPResponse):
    """Answer that must arrive before a deadline, with its content. deadline: on the clock `time.monotonic`."""

    def __init__(self, connected: socket.socket, *words: Any, deadline: float, **options: Any) -> None:
        super().__init__(connected, *words, **options)
        self.fp.close()
        self.fp = io.BufferedReader(_DeadlineReader(connected, deadline))
