"""Consumers that withhold credit, and the deliveries stuck at them."""

from dataclasses import dataclass

from pipeline.jobs.rollup import Rollups


@dataclass(frozen=True)
class StarvedConsumer:
    """Links of one client to one address that withheld credit."""

    router: str
    client: str
    address: str
    without_seconds: float  # time without credit, summed over its links; gaps between two samples are not seen
    share: float  # fraction of the time in which the links were attached
    undelivered: int  # most deliveries that waited
    stuck: int
    capacity: int


def starved_consumers(rollups: Rollups, most: int = 20, least: float = 1.0) -> list[StarvedConsumer]:
    """Return the links that withheld credit longest, at least `least` seconds."""
    from pyspark.sql import functions as f

    rows = (
        rollups.links.where("dir = 'out'")
        .groupBy("router", "client", "address")
        .agg(
            f.sum("zero_credit_ms").alias("without"),
            f.sum("link_ms").alias("seen"),
            f.max("undelivered_peak"),
            f.max("stuck_peak"),
            f.max("capacity"),
        )
        .where(f.col("without") >= least * 1000)
        .orderBy(f.desc("without"), "router", "client", "address")
        .limit(most)
    )
    return [
        StarvedConsumer(router, client or "?", address or "?", without / 1000, min(1.0, without / max(seen, 1)), *rest)
        for router, client, address, without, seen, *rest in rows.collect()
    ]
