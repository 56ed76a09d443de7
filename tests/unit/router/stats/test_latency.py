"""Quantiles of a histogram with buckets at powers of two of a microsecond."""

import pytest

from sluice.router.stats.latency import quantile


@pytest.mark.parametrize(
    ("histogram", "share", "seconds"),
    [
        ([0, 0], 0.5, None),
        ([1, 0, 0], 0.99, 1e-6),
        ([50, 49, 0, 1], 0.5, 1e-6),
        ([50, 49, 0, 1], 0.99, 2e-6),
        ([50, 49, 0, 1], 1.0, 8e-6),
        ([0] * 20 + [3], 0.0, 2**20 * 1e-6),
    ],
)
def test_quantile_is_upper_bound_of_bucket(histogram: list[int], share: float, seconds: float | None) -> None:
    assert quantile(histogram, share) == seconds
