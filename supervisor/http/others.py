"""What the addresses without series of their own have counted, as counters that never fall."""
from collections.abc import Mapping, Sequence
from typing import Final

from router.ipc.scan import ADDRESS_SUMS
from supervisor.table import Record

FIELDS: Final = len(ADDRESS_SUMS)


class Others:
    """The counters of all addresses that have no series of their own, addresses that are gone included.

    A counter of Prometheus must not fall. So what an address had counted in here before it got series of its own stays
    in here, and what it counts after it has lost them is added; rates are exact, for at no time is an address counted
    in both. An address that had series from its first page on is not in here before it loses them. Owner: the pages.
    """

    __slots__ = ("_hidden", "_shown", "_taken", "_values")

    def __init__(self) -> None:
        self._shown: dict[Record, list[int]] = {}  # counters at the last page
        self._hidden = bytearray()  # by id: 1 if the address was in here at the last page
        self._taken = [0] * FIELDS  # what was counted in series of their own
        self._values = [0] * FIELDS

    def update(
        self, totals: Sequence[int], shown: Mapping[Record, list[int]], present: bytearray
    ) -> list[int]:
        """What all others have counted by now.

        totals: counters of all addresses, read before those of `shown`: the addresses with series, and their counters.
        present: by id, 1 for each address there is; becomes this object's.
        """
        for record, counters in shown.items():
            before = self._shown.get(record)
            if before is None:
                was_hidden = record.id < len(self._hidden) and self._hidden[record.id]
                before = counters if was_hidden else [0] * FIELDS
            for field in range(FIELDS):
                self._taken[field] += counters[field] - before[field]
            present[record.id] = 0
        self._shown = dict(shown)
        self._hidden = present
        # Totals are a little older, so the difference may be too small for a moment, never too large.
        self._values = [max(self._values[field], totals[field] - self._taken[field]) for field in range(FIELDS)]
        return self._values
