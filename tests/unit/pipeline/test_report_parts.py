"""Parts of the report as text."""

import re
from datetime import UTC, datetime, timedelta

from sluice.pipeline.report_parts import lines

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
