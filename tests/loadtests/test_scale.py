"""Counts in routers of growing size: each scenario plays at each size, and growth is detected."""

import pytest

from loadtests import scale, scale_load
from loadtests.scale_rows import ROWS, SCENARIOS


@pytest.mark.parametrize("name", ROWS)
def test_rows_can_be_played(name):
    with ROWS[name]() as play:
        for _ in range(2):
            play(5)


def test_growth_with_size_is_reported():
    counts = dict.fromkeys(scale.names_of(list(SCENARIOS)), 1000.0)
    assert scale.grown(list(SCENARIOS), counts) == []
    counts["wake@64"] = 1060.0
    (line,) = scale.grown(list(SCENARIOS), counts)
    assert line == "wake: 1.06 times as many instructions a wake with 64 worker slots as with 2"
    assert "| wake | wake | worker slots | 2, 8, 32, 64 | 1,000, 1,000, 1,000, 1,060 | +6.0 % |" in scale.as_table(
        counts
    )


@pytest.mark.parametrize(
    ("cores", "counts"), [(1, [1]), (2, [1, 2]), (6, [1, 2, 4, 6]), (64, [1, 2, 4, 8, 16, 32, 64])]
)
def test_worker_counts_grow_up_to_cores(cores, counts):
    assert scale_load.workers_up_to(cores) == counts
