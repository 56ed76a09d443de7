"""Sum of the counters of all addresses without series of their own. The sum never decreases."""

from collections.abc import Mapping, Sequence
from typing import Final

from sluice.router.stats.sums import ADDRESS_SUMS
from sluice.supervisor.addresses.record import AddressRecord

FIELDS: Final = len(ADDRESS_SUMS)


class OtherAddresses:
    """Sum of the counters of all addresses without series of their own, including removed ones. Owner: the pages.

    A Prometheus counter must not decrease. Counts from before an address gets its own series therefore stay in this
    sum, and counts after it loses them are added. Rates are exact, because no delivery is counted in both. An address
    with its own series since the first page is not counted here until it loses them.
    """

    __slots__ = ("_hidden", "_shown", "_taken", "_values")

    def __init__(self) -> None:
        self._shown: dict[AddressRecord, list[int]] = {}  # counters at the last page
        self._hidden = bytearray()  # by id: 1 if the address was in this sum at the last page
        self._taken = [0] * FIELDS  # counts in addresses' own series
        self._values = [0] * FIELDS

    def update(self, totals: Sequence[int], shown: Mapping[AddressRecord, list[int]], present: bytearray) -> list[int]:
        """Return the present sum.

        totals: counters of all addresses, read before those of `shown`. shown: addresses with series, and their
        counters. present: by id, 1 for each existing address; this object takes ownership.
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
        # Totals are slightly older, so the difference may be too small for a moment, but never too large.
        self._values = [max(self._values[field], totals[field] - self._taken[field]) for field in range(FIELDS)]
        return self._values
