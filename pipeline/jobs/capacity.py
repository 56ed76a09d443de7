"""Remaining capacity of a router: cost of a delivery, load of workers, and a forecast of overload."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from sluice.pipeline.jobs.rollup import HOUR, Rollups
from sluice.pipeline.telemetry.reader import collected_to_utc

FULL: Final = 0.7  # share of a core; beyond it, latency grows
LEAST_HOURS: Final = 48  # needed for a forecast
_FAR: Final = 3650.0  # days; a later date counts as never


@dataclass(frozen=True)
class RouterCapacity:
    """Capacity figures of one router."""

    router: str
    cpu_us_a_delivery: float
    hourly: list[tuple[datetime, float, float]]  # hour or minute, deliveries a second, busiest worker's share of a core
    busiest: float  # share of a core that a worker used in its busiest interval
    full_on: datetime | None  # date at which the busiest worker uses FULL of a core, by extrapolation


def by_router(rollups: Rollups) -> list[RouterCapacity]:
    """Return the figures of all routers, by name."""
    from pyspark.sql import functions as f

    rows = (
        rollups.workers.groupBy("router", "hour")
        .agg(
            f.sum("cpu_us"),
            f.sum("ingress"),
            f.max(f.col("cpu_us") / f.greatest(f.col("interval_ms") * 1000, f.lit(1))),
            f.max("busiest"),
            f.max("interval_ms"),
        )
        .orderBy("router", "hour")
        .collect()
    )
    found = []
    for router in sorted({row[0] for row in rows}):
        own = [row for row in rows if row[0] == router]
        deliveries = sum(row[3] for row in own)
        hourly = [(collected_to_utc(row[1]), row[3] / max(row[6] / 1000, 1e-3), row[4]) for row in own]
        found.append(
            RouterCapacity(
                router,
                sum(row[2] for row in own) / deliveries if deliveries else 0.0,
                hourly,
                max(row[5] for row in own),
                full_on([(hour, share) for hour, _, share in hourly]) if rollups.step == HOUR else None,
            )
        )
    return found


def full_on(hourly: list[tuple[datetime, float]]) -> datetime | None:
    """Return the date at which the busiest hour of the day reaches FULL, if load keeps growing as from day to day.

    An hour is compared with the same hour of other days, so that the daily course is not mistaken for growth. None:
    not within ten years, or too few hours.
    """
    if len(hourly) < LEAST_HOURS:
        return None
    first = hourly[0][0]
    same: dict[int, list[tuple[float, float]]] = {}
    for hour, share in hourly:
        same.setdefault(hour.hour, []).append(((hour - first).total_seconds() / 86400, share))
    means = [
        (sum(day for day, _ in own) / len(own), sum(share for _, share in own) / len(own)) for own in same.values()
    ]
    around = [
        (day - mean[0], share - mean[1]) for own, mean in zip(same.values(), means, strict=True) for day, share in own
    ]
    spread = sum(day * day for day, _ in around)
    slope = sum(day * share for day, share in around) / spread if spread else 0.0
    if slope <= 0:
        return None
    day, share = max(means, key=lambda mean: mean[1])
    left = day + (FULL - share) / slope
    return None if left > _FAR else first + timedelta(days=max(left, 0.0))
