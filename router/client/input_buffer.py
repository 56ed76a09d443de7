"""Buffer for octets that a transport reads, with a free part that the next read fills without a copy."""

from collections.abc import Callable

READ = 1 << 18  # most octets of one read, if no octets are left over


class InputBuffer:
    """Octets that were received and not yet taken. The memory is used again for each read. Owner: its transport."""

    def __init__(self) -> None:
        self._octets = bytearray(READ)
        self._used = 0

    @property
    def room(self) -> memoryview:
        """Writable memory for the next read; never empty."""
        if self._used == len(self._octets):
            # A frame that is longer than the buffer, or a peer that sends on while a login is computed.
            self._octets = self._octets + bytes(self._used)
        return memoryview(self._octets)[self._used :]

    def pass_on(self, count: int, feed: Callable[[memoryview], int]) -> bool:
        """Pass the octets to `feed`, which returns how many it took, after a read of `count`. Keep the others.

        Return True if the read has filled the buffer, so that more may be readable.
        """
        self._used += count
        filled = self._used == len(self._octets)
        octets = memoryview(self._octets)
        taken = feed(octets[: self._used])
        left = self._used - taken
        octets[:left] = octets[taken : self._used]
        self._used = left
        return filled
