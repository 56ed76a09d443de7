"""Forecast of the date at which the busiest worker of a router is full."""

from datetime import UTC, datetime, timedelta

import pytest

from sluice.pipeline.jobs.capacity import FULL, LEAST_HOURS, full_on

START = datetime(2026, 3, 1, tzinfo=UTC)


def load(hours: int, growth: float, least: float = 0.1, noon: float = 0.0) -> list[tuple[datetime, float]]:
    """Return hourly loads that grow by `growth` a day; at noon they are higher by `noon`."""
    return [
        (START + timedelta(hours=hour), least + growth * hour / 24 + (noon if hour % 24 == 12 else 0.0))
        for hour in range(hours)
    ]


def test_growing_load_is_full_at_extrapolated_date():
    found = full_on(load(10 * 24, growth=0.01))
    assert found is not None
    assert abs(found - (START + timedelta(days=(FULL - 0.1) / 0.01))) < timedelta(minutes=1)


def test_busiest_hour_of_the_day_decides():
    found = full_on(load(10 * 24, growth=0.01, noon=0.2))
    assert found is not None
    assert abs(found - (START + timedelta(days=(FULL - 0.3) / 0.01))) < timedelta(minutes=1)


@pytest.mark.parametrize(
    ("hourly", "reason"),
    [
        (load(LEAST_HOURS - 1, growth=0.01), "too few hours"),
        (load(10 * 24, growth=0.0), "no growth"),
        (load(10 * 24, growth=-0.001), "shrinking"),
        (load(10 * 24, growth=1e-4), "over ten years away"),
        (load(0, growth=0.0), "no telemetry"),
    ],
)
def test_forecast_without_near_growth_has_no_date(hourly, reason):
    assert full_on(hourly) is None, reason


def test_full_router_is_full_since_start_at_the_earliest():
    assert full_on(load(10 * 24, growth=0.01, least=FULL + 0.1)) == START
