"""Demand: rates that producers would send and consumers take, and the credit of both."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pipeline.jobs.percentiles import merge_histograms, percentile
from pipeline.jobs.rollup import HOUR, Rollups
from pipeline.recommend import AddressDemand

if TYPE_CHECKING:
    from pyspark.sql import Column


@dataclass(frozen=True)
class HeldBackProducer:
    """Links of one client to one address that lacked credit at times."""

    router: str
    client: str
    address: str
    rate: float  # peak rate of one link, in deliveries a second
    settle_us: float  # p99 of the address
    capacity: int
    without_seconds: float  # time without credit, summed over its links


def by_address(rollups: Rollups) -> dict[tuple[str, str], AddressDemand]:
    """Return the demand by router and address, where consumers lacked credit at times.

    Each figure is from the hour in which producers were held back most; of equal hours, the one with most deliveries.
    """
    from pyspark.sql import functions as f

    def of(direction: str, value: str) -> "Column":
        return f.sum(f.when(f.col("dir") == direction, f.col(value)).otherwise(0)).alias(f"{direction}_{value}")

    sums = [of("in", name) for name in ("deliveries", "zero_credit_ms", "link_ms")]
    sums += [of("out", name) for name in ("link_ms", "full_ms", "full_deliveries")]
    rows = rollups.links.where("address is not null").groupBy("router", "address", "hour").agg(*sums)
    found: dict[tuple[str, str], tuple[float, float, AddressDemand]] = {}
    covered = rollups.covered()
    for router, address, hour, count, without, sent_ms, taken_ms, full_ms, full in rows.collect():
        if not full or not count:
            continue
        held_back = without / max(sent_ms, 1)
        seconds = covered.get((router, hour), HOUR)
        rate = count / seconds
        each = full * 1000 / full_ms
        demand = AddressDemand(rate, held_back, max(1, round(taken_ms / 1000 / seconds)), each)
        if (router, address) not in found or (held_back, rate) > found[router, address][:2]:
            found[router, address] = held_back, rate, demand
    return {place: demand for place, (_, _, demand) in found.items()}


def held_back_producers(rollups: Rollups, least: float, most: int = 100) -> list[HeldBackProducer]:
    """Return producers without credit for at least `least` seconds, the longest first."""
    from pyspark.sql import functions as f

    rows = (
        rollups.links.where("dir = 'in' and address is not null and capacity > 0")
        .groupBy("router", "client", "address")
        .agg(f.max("rate_peak"), f.max("capacity"), f.sum("zero_credit_ms").alias("without"))
        .where(f.col("without") >= least * 1000)
        .orderBy(f.desc("without"), "router", "client", "address")
        .limit(most)
        .collect()
    )
    histograms: dict[tuple[str, str], list[tuple[int, int]]] = {}
    chosen = f.col("address").isin(sorted({row[2] for row in rows}))
    settles = rollups.settles.where(chosen).groupBy("router", "address", "bucket").sum("count")
    for router, address, bucket, count in settles.collect() if rows else ():
        histograms.setdefault((router, address), []).append((bucket, count))
    found = []
    for router, client, address, rate, capacity, without in rows:
        settle = percentile(merge_histograms(histograms.get((router, address), [])), 99)
        if settle is not None:
            found.append(HeldBackProducer(router, client or "?", address, rate, settle, capacity, without / 1000))
    return found
