"""Counters of all addresses without their own series; they never fall."""

from collections.abc import Mapping, Sequence
from typing import Final

from router.stats.sums import ADDRESS_SUMS
from supervisor.addresses.record import Record

FIELDS: Final = len(ADDRESS_SUMS)


class Others:
    """The counters of all addresses without their own series, removed ones included.

    A counter of Prometheus must not fall. So counts from before an address got its own series stay here, and counts
    after it has lost them are added; rates are exact, because an address is never counted in both. An address with its
    own series from the first page on is not counted here until it loses them. Owner: the pages.
    """

    __slots__ = ("_hidden", "_shown", "_taken", "_values")

    def __init__(self) -> None:
        self._shown: dict[Record, list[int]] = {}  # counters at the last page
        self._hidden = bytearray()  # by id: 1 if the address was in here at the last page
        self._taken = [0] * FIELDS  # what was counted in series of their own
        self._values = [0] * FIELDS

    def update(self, totals: Sequence[int], shown: Mapping[Record, list[int]], present: bytearray) -> list[int]:
        """The present counters of all other addresses.

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
