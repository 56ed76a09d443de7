"""Timeline of events: network, workers, configuration changes, policy denials."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from pipeline.jobs.rollup import Rollups
from pipeline.telemetry.reader import collected_to_utc

_INTER_ROUTER: Final = "inter-router"


@dataclass(frozen=True)
class TimelineEvent:
    """Event, or equal events of an hour."""

    when: datetime
    router: str
    kind: str
    text: str
    count: int = 1


def topology(rollups: Rollups, most: int = 200) -> list[TimelineEvent]:
    """Return inter-router connections opened and closed, workers lost, and configuration changes."""
    from pyspark.sql import functions as f

    between = f.col("kind").isin("connection open", "connection close") & (f.col("detail")["role"] == _INTER_ROUTER)
    other = f.col("kind").isin("worker lost", "reload", "configuration", "router")
    rows = rollups.telemetry.table("event").where(between | other).orderBy("ts").limit(most)
    found = []
    for row in rows.select("ts", "router", "kind", "subject", "detail").collect():
        detail = row["detail"] or {}
        text = f"{detail.get('container', '?')} at {detail.get('peer', '?')}" if "peer" in detail else row["subject"]
        found.append(TimelineEvent(collected_to_utc(row["ts"]), row["router"], row["kind"], text))
    return found


def refusals(rollups: Rollups, most: int = 100) -> list[TimelineEvent]:
    """Return policy denials by hour, vhost, group and reason."""
    from pyspark.sql import functions as f

    rows = rollups.telemetry.table("event").where("kind = 'policy denial'")
    sums = (
        rows.groupBy(
            f.date_trunc("hour", "ts").alias("hour"),
            "router",
            "subject",
            f.col("detail")["group"].alias("group"),
            f.col("detail")["reason"].alias("reason"),
        )
        .agg(f.sum(f.col("detail")["count"].cast("long")).alias("count"))
        .orderBy("hour", "router", f.desc("count"))
        .limit(most)
    )
    return [
        TimelineEvent(
            collected_to_utc(hour), router, reason or "?", f"vhost {vhost or '-'}, group {group or '-'}", count
        )
        for hour, router, vhost, group, reason, count in sums.collect()
    ]


def churn(rollups: Rollups) -> dict[str, tuple[int, int]]:
    """Return connections opened and closed, by router."""
    rows = rollups.telemetry.table("event").where("kind in ('connection open', 'connection close')")
    found: dict[str, tuple[int, int]] = {}
    for router, kind, count in rows.groupBy("router", "kind").count().collect():
        opened, closed = found.get(router, (0, 0))
        found[router] = (opened + count, closed) if kind == "connection open" else (opened, closed + count)
    return found
