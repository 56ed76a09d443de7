"""Counter slots: blocks of counters in shared memory, for addresses, exchanges, bindings and remote destinations.

The id of an address is the number of its counter slot. No input or output here, except through `reset`.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

from sluice.supervisor.journal.journal import Journal
from sluice.supervisor.subsystem import Subsystem

FIRST_SLOT: Final = 1  # 0 stands for "no address" in a link's slot


class CounterSlots(Subsystem):
    """Allocation of counter slots. Owner: the core.

    A released slot is free when all workers have acknowledged the epoch in which its user was removed, because a worker
    may count in it until then.
    """

    __slots__ = ("_free", "_journal", "_reset", "_retiring", "end", "limit")

    def __init__(self, journal: Journal, limit: int, reset: Callable[[int], None]) -> None:
        """Create with all slots free. limit: all numbers are below it. reset(number): zero a slot before its reuse."""
        self.limit: Final = limit
        self.end = FIRST_SLOT  # upper bound (exclusive) of all numbers that were ever used
        self._journal = journal
        self._reset = reset
        self._free: list[int] = []
        self._retiring: deque[tuple[int, int]] = deque()  # epoch of the removal, slot that becomes free after it

    @property
    def used(self) -> int:
        """Number of slots that were ever used."""
        return self.end - FIRST_SLOT

    def allocate(self) -> int | None:
        """Allocate a slot and return its number; None if no slot is free."""
        if self._free:
            return self._free.pop()
        if self.end >= self.limit:
            return None
        self.end += 1
        return self.end - 1

    def release(self, number: int) -> None:
        """Release a slot. The next delta must announce the removal of its user."""
        self._retiring.append((self._journal.next_epoch, number))

    def after_delta(self) -> None:
        """Free the slots that were released in acknowledged epochs."""
        settled = self._journal.settled
        while self._retiring and self._retiring[0][0] <= settled:
            number = self._retiring.popleft()[1]
            self._reset(number)
            self._free.append(number)
