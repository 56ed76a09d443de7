"""Lines between the supervisor, which never waits, and a thread that writes."""

import threading
from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import Final

BATCH_LINES: Final = 64  # that are written at once


class LineQueue:
    """A bounded queue of lines. Filled by the event loop, emptied by one thread.

    A line leaves it when it is written: a fault of the disk costs nothing until the queue is full.
    """

    def __init__(self, most: int) -> None:
        """most: octets."""
        self.most = most
        self._lines: deque[bytes] = deque()
        self._octets = 0
        self._changed: Final = threading.Condition()
        self._closed = False
        self._nudged = False

    def __len__(self) -> int:
        return len(self._lines)

    def room(self, octets: int) -> bool:
        """Return whether so many octets can be added."""
        return self._octets + octets <= self.most

    def put(self, lines: Sequence[bytes]) -> bool:
        """Add lines, all or none; False: there is no room for them."""
        octets = sum(map(len, lines))
        with self._changed:
            if self._closed or not self.room(octets):
                return False
            self._lines.extend(lines)
            self._octets += octets
            self._changed.notify()
        return True

    def nudge(self) -> None:
        """Let `wait` or `pause` return."""
        with self._changed:
            self._nudged = True
            self._changed.notify()

    def close(self) -> None:
        """Take no further lines; `wait` returns what is left, then None."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    @property
    def closed(self) -> bool:
        """Return whether no further lines come."""
        return self._closed

    # The thread

    def wait(self) -> list[bytes] | None:
        """Return the first lines, which stay in the queue until `remove`; none after `nudge`; None at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._lines or self._closed or self._nudged)
            self._nudged = False
            if not self._lines:
                return None if self._closed else []
            return list(islice(self._lines, BATCH_LINES))

    def pause(self, seconds: float) -> None:
        """Wait some time, or until `nudge` or `close`."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._nudged, seconds)

    def remove(self, count: int) -> None:
        """Remove the first lines, which are written."""
        with self._changed:
            for _ in range(count):
                self._octets -= len(self._lines.popleft())
