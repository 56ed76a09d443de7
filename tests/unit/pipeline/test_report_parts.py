"""Parts of the report as text."""

import re
from datetime import UTC, datetime, timedelta

import pytest

from sluice.pipeline.report_parts import duration, lines, number

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def times(chart: str) -> list[str]:
    return re.findall(r">(\d\d:\d\d)<", chart)


def test_chart_of_one_hour_labels_it_once():
    chart = lines("load", [("a", [(NOON, 1.0)]), ("b", [(NOON, 2.0)])])
    assert times(chart) == ["12:00"]
    assert len(set(re.findall(r'cx="([\d.]+)"', chart))) == 1


def test_chart_labels_five_times():
    hours = [(NOON + timedelta(hours=each), float(each)) for each in range(5)]
    assert times(lines("load", [("a", hours)])) == ["12:00", "13:00", "14:00", "15:00", "16:00"]


def test_numbers_and_durations_are_readable():
    assert [number(value) for value in (0, 950, 12_345, 4_560_000, 0.25)] == ["0", "950", "12.3 k", "4.56 M", "0.25"]
    assert [duration(value) for value in (None, 0.5, 378, 1940, 2.5e6)] == ["–", "0.5 µs", "378 µs", "1.94 ms", "2.5 s"]


@pytest.mark.parametrize("minutes", [1, 2, 3, 4, 60, 2 * 1440, 3 * 1440, 4 * 1440, 400 * 1440])
def test_labels_of_times_differ(minutes: int):
    chart = lines("load", [("a", [(NOON, 1.0), (NOON + timedelta(minutes=minutes), 2.0)])])
    labels = re.findall(r'class="axis (?:start|middle|end)" x="[\d.]+" y="\d+">([^<]+)<', chart)
    assert len(set(labels)) == 5


def test_chart_of_one_point_or_none_is_drawn():
    assert "<circle" in lines("t", [("a", [(NOON, 0.0)])])
    assert "No figures" in lines("t", [("a", [])])
