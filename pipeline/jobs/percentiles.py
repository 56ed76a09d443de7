"""Percentiles from histograms whose buckets are powers of two."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

PERCENTS: Final = (50, 95, 99)


def percentile(histogram: Mapping[int, int], percent: float) -> float | None:
    """Return the time in µs within which `percent` were settled, interpolated in its bucket. None: empty histogram.

    Bucket 0 is below 1 µs, bucket b from 2**(b-1) µs to 2**b µs.
    """
    whole = sum(histogram.values())
    if whole <= 0:
        return None
    wanted, seen = whole * percent / 100, 0
    for bucket in sorted(histogram):
        count = histogram[bucket]
        if count and seen + count >= wanted:
            low, high = (0.0, 1.0) if bucket == 0 else (2.0 ** (bucket - 1), 2.0**bucket)
            return low + (high - low) * max(0.0, wanted - seen) / count
        seen += count
    raise AssertionError(f"no bucket of the histogram reaches {percent} %")


def merge_histograms(parts: Iterable[tuple[int, int]]) -> dict[int, int]:
    """Return the histogram of pairs of bucket and count."""
    found: dict[int, int] = {}
    for bucket, count in parts:
        found[bucket] = found.get(bucket, 0) + count
    return found


def rate_percentile(values: Sequence[float], percent: float) -> float:
    """Return the percentile of values by the nearest rank; 0.0 if there are none."""
    if not values:
        return 0.0
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, -(-len(ordered) * int(percent) // 100) - 1))]
