"""Latency and outcomes of deliveries, by address."""

from dataclasses import dataclass, field
from datetime import datetime

from sluice.pipeline.jobs.percentiles import PERCENTS, merge_histograms, percentile, rate_percentile
from sluice.pipeline.jobs.rollup import Rollups
from sluice.pipeline.telemetry.names import OUTCOMES


@dataclass(frozen=True)
class AddressFigures:
    """Figures of one address over the period."""

    address: str
    deliveries: int
    outcomes: dict[str, int]  # outcomes of producers' deliveries
    settle_us: dict[int, float | None]  # by percent: time from the first octet at the router to the settlement
    hourly: list[float] = field(default_factory=list)  # deliveries a second, by hour or minute

    def rate(self, percent: float) -> float:
        """Return a percentile of the rates."""
        return rate_percentile(self.hourly, percent)


def by_address(rollups: Rollups, most: int = 50) -> list[AddressFigures]:
    """Return the addresses with the most deliveries from producers."""
    from pyspark.sql import functions as f

    sums = [f.sum(name) for name in OUTCOMES]
    rows = (
        rollups.links.where("dir = 'in' and address is not null")
        .groupBy("address")
        .agg(f.sum("deliveries").alias("deliveries"), *sums)
        .orderBy(f.desc("deliveries"), "address")
        .limit(most)
        .collect()
    )
    wanted = [row[0] for row in rows]
    histograms: dict[str, list[tuple[int, int]]] = {}
    chosen = f.col("address").isin(wanted)
    for address, bucket, count in rollups.settles.where(chosen).groupBy("address", "bucket").sum("count").collect():
        histograms.setdefault(address, []).append((bucket, count))
    hours: dict[str, dict[datetime, float]] = {}
    covered = rollups.covered()
    sent = rollups.links.where("dir = 'in'").where(chosen).groupBy("router", "address", "hour").sum("deliveries")
    for router, address, hour, count in sent.orderBy("hour").collect():
        rates = hours.setdefault(address, {})
        rates[hour] = rates.get(hour, 0.0) + count / covered.get((router, hour), rollups.step)
    found = []
    for address, deliveries, *outcomes in rows:
        histogram = merge_histograms(histograms.get(address, []))
        found.append(
            AddressFigures(
                address,
                deliveries,
                dict(zip(OUTCOMES, outcomes, strict=True)),
                {percent: percentile(histogram, percent) for percent in PERCENTS},
                list(hours.get(address, {}).values()),
            )
        )
    return found
