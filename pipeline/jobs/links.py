"""Links of clients: traffic, and time without credit."""

from dataclasses import dataclass

from sluice.pipeline.jobs.rollup import Rollups


@dataclass(frozen=True)
class LinkFigures:
    """Links of one client to one address, in one direction."""

    router: str
    client: str
    address: str
    direction: str  # as in fact_link: "in" if the client sends, "out" if it receives
    deliveries: int
    octets: int
    without_seconds: float  # time without credit, summed over its links; gaps between two samples are not seen
    share: float  # fraction of the time in which the links were attached
    undelivered: int  # most deliveries of one link that waited
    stuck: int


def busiest_links(rollups: Rollups, most: int = 20) -> list[LinkFigures]:
    """Return the links with the most deliveries."""
    return _figures(rollups, "deliveries > 0", "deliveries", most)


def stalled_links(rollups: Rollups, most: int = 20, least: float = 1.0) -> list[LinkFigures]:
    """Return the links that were without credit longest, at least `least` seconds: consumers, then producers."""
    return [
        link
        for direction in ("out", "in")
        for link in _figures(rollups, f"dir = '{direction}' and without_ms >= {least * 1000}", "without_ms", most)
    ]


def _figures(rollups: Rollups, condition: str, order: str, most: int) -> list[LinkFigures]:
    """Return the links that meet a condition, the largest first. condition, order: in terms of the sums below."""
    from pyspark.sql import functions as f

    key = ("router", "client", "address", "dir")
    rows = (
        rollups.links.groupBy(*key)
        .agg(
            f.sum("deliveries").alias("deliveries"),
            f.sum("octets"),
            f.sum("zero_credit_ms").alias("without_ms"),
            f.sum("link_ms"),
            f.max("undelivered_peak"),
            f.max("stuck_peak"),
        )
        .where(condition)
        .orderBy(f.desc(order), *key)
        .limit(most)
    )
    return [
        LinkFigures(
            router, client or "?", address or "?", direction, deliveries or 0, octets or 0,
            (without or 0) / 1000, min(1.0, (without or 0) / max(seen or 0, 1)), undelivered or 0, stuck or 0,
        )
        for router, client, address, direction, deliveries, octets, without, seen, undelivered, stuck in rows.collect()
    ]  # fmt: skip
