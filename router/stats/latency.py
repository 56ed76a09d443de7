"""The histogram of the time that deliveries spend in the router: counts by powers of two of a microsecond."""

from collections.abc import Sequence
from typing import Final

_MICROSECOND: Final = 1e-6  # seconds; the first bucket ends here, each next at twice the time


def quantile(histogram: Sequence[int], share: float) -> float | None:
    """Seconds within which `share` (0 to 1) of the deliveries were settled: the end of a bucket. None for none."""
    wanted = share * sum(histogram)
    seen = 0
    for bucket, count in enumerate(histogram):
        seen += count
        if count and seen >= wanted:
            return float(_MICROSECOND * 2**bucket)
    return None
