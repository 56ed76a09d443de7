"""Days of roll-ups: each date is whole, because its file replaces an earlier one."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from sluice.pipeline.commands.rollup import whole_days

DAY = datetime(2026, 3, 1, tzinfo=UTC)
EAST = timezone(timedelta(hours=2))
WEST = timezone(-timedelta(hours=5))


@pytest.mark.parametrize(
    ("start", "end", "days"),
    [
        (DAY, DAY + timedelta(days=1), 1),
        (DAY + timedelta(hours=5), DAY + timedelta(hours=6), 1),
        (DAY + timedelta(hours=23), DAY + timedelta(hours=25), 2),
        (DAY, DAY + timedelta(days=1, microseconds=1), 2),
    ],
)
def test_period_is_extended_to_whole_days(start, end, days):
    assert whole_days(start, end) == (DAY, DAY + timedelta(days=days))


@pytest.mark.parametrize("zone", [EAST, WEST])
def test_period_in_another_zone_is_extended_to_days_of_utc(zone):
    start = datetime(2026, 3, 1, 12, tzinfo=zone)
    assert whole_days(start, start + timedelta(hours=1)) == (DAY, DAY + timedelta(days=1))
    midnight = datetime(2026, 3, 2, tzinfo=EAST)
    assert whole_days(midnight, midnight + timedelta(days=1)) == (DAY, DAY + timedelta(days=2))
