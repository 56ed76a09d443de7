"""Memory that segments are encoded to, one after the other.

Fresh pages are cleared by the kernel, which costs about as much as filling them. A thread therefore keeps the memory of
its last segment. It begins at a page, as direct I/O requires.
"""

import mmap
import threading

KEPT_MOST = 64 << 20  # octets that a thread keeps; only segments with long messages need more


class OutputMemory(threading.local):
    """Output memory of each thread that uses this object."""

    def __init__(self) -> None:
        self._kept: mmap.mmap | None = None

    def take(self, octets: int) -> mmap.mmap:
        """Return writable memory of at least `octets`. It is overwritten after the next call in this thread."""
        if self._kept is not None and len(self._kept) >= octets:
            return self._kept
        self._kept = None  # freed before more is allocated
        taken = mmap.mmap(-1, octets)
        if octets <= KEPT_MOST:
            self._kept = taken
        return taken
