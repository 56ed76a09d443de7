"""Number of tasks in a batch, and the segments that each task reads."""

import pytest

pytest.importorskip("pyspark")
from sluice.pipeline.segments import Segment
from sluice.pipeline.source import BIN_OCTETS, BIN_ROWS, divide_into_bins


def segments(count: int, rows: int, octets: int) -> list[Segment]:
    return [Segment("l/a", number, 1, rows, octets) for number in range(count)]


@pytest.mark.parametrize(
    ("given", "tasks"),
    [
        (segments(20, 1, 1000), 1),
        (segments(5, BIN_ROWS, 1000), 5),
        (segments(5, BIN_ROWS // 2, 1000), 3),
        (segments(4, 1, BIN_OCTETS), 4),
        (segments(100, BIN_ROWS, 1000), 100),
        ([], 0),
    ],
)
def test_bins_grow_with_rows_and_octets(given: list[Segment], tasks: int):
    made = divide_into_bins(given, None, 5)
    assert len(made) == tasks
    assert all(each.batch_time == 5 for each in made)
    assert sorted(segment for each in made for segment in each.segments) == given


def test_bins_with_option_have_requested_number():
    assert len(divide_into_bins(segments(20, 1, 1000), 8, 5)) == 8
    assert len(divide_into_bins(segments(3, 1, 1000), 8, 5)) == 3
