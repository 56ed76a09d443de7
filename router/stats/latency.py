"""Latency histogram: number of deliveries by time spent in the router, in buckets of powers of two of 1 µs."""

from collections.abc import Sequence
from typing import Final

_MICROSECOND: Final = 1e-6  # seconds; end of the first bucket. Each further bucket ends at twice the time.


def quantile(histogram: Sequence[int], share: float) -> float | None:
    """Return the seconds within which `share` (0 to 1) of the deliveries were settled, None without deliveries.

    The result is the end of a bucket.
    """
    wanted = share * sum(histogram)
    seen = 0
    for bucket, count in enumerate(histogram):
        seen += count
        if count and seen >= wanted:
            return float(_MICROSECOND * 2**bucket)
    return None
