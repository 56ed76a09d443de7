"""Hourly roll-ups: what a day has left of its rows, for questions about months."""

from typing import TYPE_CHECKING, Final, NamedTuple

from pipeline.telemetry.reader import Telemetry

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

OUTCOMES: Final = ("accepted", "rejected", "released", "modified", "presettled", "dropped_presettled")
_LINK_SUMS: Final = ("deliveries", "octets", *OUTCOMES, "zero_credit_ms", "delayed_1s", "delayed_10s")
_LINK_PEAKS: Final = {
    "capacity": "capacity",
    "undelivered": "undelivered_peak",
    "unsettled": "unsettled_peak",
    "stuck": "stuck_peak",
}


def flows(telemetry: Telemetry) -> "DataFrame":
    """Deliveries by hour, router, pair of workers, pair of clients, address."""
    from pyspark.sql import functions as f

    # First by connection: few rows are left to find the clients of.
    keys = ("router", "boot_id", "worker_in", "worker_out", "connection_in", "connection_out", "address")
    hour = f.date_trunc("hour", "interval_start").alias("hour")
    rows = telemetry.table("fact_flow").groupBy(hour, *keys).agg(f.sum("deliveries").alias("deliveries"))
    rows = telemetry.with_client(rows, "connection_in", "_in")
    rows = telemetry.with_client(rows, "connection_out", "_out")
    return rows.groupBy(
        *("hour", "router", "worker_in", "worker_out", "client_in", "client_out", "address"),
        *("host_in", "listener_in", "host_out", "listener_out"),
    ).agg(f.sum("deliveries").alias("deliveries"))


def links(telemetry: Telemetry) -> "DataFrame":
    """Deliveries, octets, outcomes and credit by hour, router, address, direction, client.

    `link_ms`: the time that its links were there. `full_ms`, `full_deliveries`: of intervals in which a link had no
    credit at some time, so that it got as much as it takes. `rate_peak`: deliveries a second of one link.
    """
    from pyspark.sql import functions as f

    hour = f.date_trunc("hour", "interval_start").alias("hour")
    full = f.col("zero_credit_ms") > 0
    rate = f.col("deliveries") * 1000 / f.greatest("interval_ms", f.lit(1))
    sums = [f.sum(name).alias(name) for name in _LINK_SUMS]
    rows = (
        telemetry.table("fact_link")
        .groupBy(hour, "router", "boot_id", "connection_id", "address", "dir")
        .agg(
            *sums,
            *(f.max(name).alias(peak) for name, peak in _LINK_PEAKS.items()),
            f.sum("interval_ms").alias("link_ms"),
            f.sum(f.when(full, f.col("interval_ms")).otherwise(0)).alias("full_ms"),
            f.sum(f.when(full, f.col("deliveries")).otherwise(0)).alias("full_deliveries"),
            f.max(rate).alias("rate_peak"),
        )
    )
    rows = telemetry.with_client(rows, "connection_id")
    return rows.groupBy("hour", "router", "client", "host", "listener", "address", "dir").agg(
        *sums,
        *(f.max(name).alias(name) for name in (*_LINK_PEAKS.values(), "rate_peak")),
        *(f.sum(name).alias(name) for name in ("link_ms", "full_ms", "full_deliveries")),
    )


def settles(telemetry: Telemetry) -> "DataFrame":
    """Settled deliveries by hour, router, address and bucket of their time in the router."""
    from pyspark.sql import functions as f

    hour = f.date_trunc("hour", "interval_start").alias("hour")
    rows = telemetry.table("fact_link").where("dir = 'in' and settle_hist is not null")
    rows = rows.select(hour, "router", "address", f.explode("settle_hist").alias("bucket", "count"))
    return rows.groupBy("hour", "router", "address", "bucket").agg(f.sum("count").alias("count"))


def workers(telemetry: Telemetry) -> "DataFrame":
    """CPU time and deliveries by hour, router, worker."""
    from pyspark.sql import functions as f

    hour = f.date_trunc("hour", "interval_start").alias("hour")
    rows = telemetry.table("fact_worker").withColumn("cpu_us", f.col("cpu_user_us") + f.col("cpu_sys_us"))
    busiest = f.max(f.col("cpu_us") / f.greatest(f.col("interval_ms") * 1000, f.lit(1)))
    return rows.groupBy(hour, "router", "worker").agg(
        *(f.sum(name).alias(name) for name in ("cpu_us", "ingress", "egress", *OUTCOMES, "interval_ms", "loop_turns")),
        *(f.max(name).alias(name) for name in ("connections", "links", "rss", "buffered")),
        busiest.alias("busiest"),
    )


TABLES: Final = {"flows": flows, "links": links, "settles": settles, "workers": workers}


def write(telemetry: Telemetry, path: str) -> dict[str, int]:
    """Write all roll-ups of the period, which replace those of the same dates; gives the rows of each."""
    from pyspark.sql import functions as f

    counts = {}
    for name, make in TABLES.items():
        folder = f"{path}/rollup/v1/{name}"
        frame = make(telemetry).withColumn("date", f.to_date("hour"))
        # Few rows: one file for each day.
        frame.repartition(1, "date").write.mode("overwrite").partitionBy("date").parquet(folder)
        counts[name] = telemetry.spark.read.parquet(folder).where(f.col("hour") >= f.lit(telemetry.start)).count()
    return counts


class Rollups(NamedTuple):
    """The roll-ups of a period, each computed once."""

    telemetry: Telemetry
    flows: "DataFrame"
    links: "DataFrame"
    settles: "DataFrame"
    workers: "DataFrame"

    @classmethod
    def of(cls, telemetry: Telemetry) -> "Rollups":
        """Those of the telemetry, kept in memory as far as they fit; few rows, so one partition for what follows."""
        return cls(telemetry, *(make(telemetry).repartition(1).persist() for make in TABLES.values()))
