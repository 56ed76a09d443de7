"""Queue of audit lines from the event loop, which never blocks, to the thread that writes them."""

import threading
from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import Final

BATCH_LINES: Final = 64  # maximum number of lines written at once


class LineQueue:
    """Bounded queue of lines, filled by the event loop and emptied by one thread.

    A line stays in the queue until it is written, so no line is lost by a write error before the queue is full.
    """

    def __init__(self, most: int) -> None:
        """Create an empty queue. most: maximum octets of all lines."""
        self.most = most
        self._lines: deque[bytes] = deque()
        self._octets = 0
        self._changed: Final = threading.Condition()
        self._closed = False
        self._wait_interrupted = False

    def __len__(self) -> int:
        return len(self._lines)

    def room(self, octets: int) -> bool:
        """True if `octets` more octets fit."""
        return self._octets + octets <= self.most

    def put(self, lines: Sequence[bytes]) -> bool:
        """Add all lines, or none of them. Returns False if there is no room or the queue is closed."""
        octets = sum(map(len, lines))
        with self._changed:
            if self._closed or not self.room(octets):
                return False
            self._lines.extend(lines)
            self._octets += octets
            self._changed.notify()
        return True

    def interrupt_wait(self) -> None:
        """Make `wait` or `pause` return."""
        with self._changed:
            self._wait_interrupted = True
            self._changed.notify()

    def close(self) -> None:
        """Refuse further lines. `wait` returns the remaining lines, then None."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    @property
    def closed(self) -> bool:
        """True if the queue refuses further lines."""
        return self._closed

    # Methods for the writing thread

    def wait(self) -> list[bytes] | None:
        """Wait for lines and return up to BATCH_LINES of them, which stay in the queue until `remove`.

        Returns an empty list after `interrupt_wait` if there are no lines, and None if the queue is closed and empty.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._lines or self._closed or self._wait_interrupted)
            self._wait_interrupted = False
            if not self._lines:
                return None if self._closed else []
            return list(islice(self._lines, BATCH_LINES))

    def pause(self, seconds: float) -> None:
        """Wait for `seconds`, or until `interrupt_wait` or `close`."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._wait_interrupted, seconds)

    def remove(self, count: int) -> None:
        """Remove the first `count` lines, which have been written."""
        with self._changed:
            for _ in range(count):
                self._octets -= len(self._lines.popleft())
