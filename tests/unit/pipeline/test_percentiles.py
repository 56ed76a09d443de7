"""Percentiles of histograms and rates."""

from hypothesis import given, settings
from hypothesis import strategies as st

from sluice.pipeline.jobs.percentiles import merge_histograms, percentile, rate_percentile


@settings(deadline=None)
@given(st.dictionaries(st.integers(0, 31), st.integers(1, 1000), min_size=1), st.integers(1, 100))
def test_percentiles_lie_in_their_bucket(histogram, percent):
    found = percentile(histogram, percent)
    assert found is not None
    values = sorted(bucket for bucket, count in histogram.items() for _ in range(count))
    bucket = values[max(0, -(-len(values) * percent // 100) - 1)]
    assert (0 if bucket == 0 else 2 ** (bucket - 1)) <= found <= 2**bucket


def test_percentiles_without_values_are_empty():
    assert percentile({}, 50) is None
    assert rate_percentile([], 50) == 0.0
    assert (rate_percentile([3, 1, 2], 50), rate_percentile([3, 1, 2], 99)) == (2, 3)
    assert merge_histograms([(1, 2), (3, 4), (1, 5)]) == {1: 7, 3: 4}
