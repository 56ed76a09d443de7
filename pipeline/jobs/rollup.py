"""Hourly roll-ups: what a day has left of its rows, for questions about months."""

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, NamedTuple

from pipeline.telemetry.reader import Telemetry

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from pipeline.telemetry.hourly import Hourly


def flows(telemetry: Telemetry) -> "DataFrame":
    """Deliveries by hour, router, pair of workers, pair of clients, address."""
    from pyspark.sql import functions as f

    from pipeline.jobs.sums import FLOWS

    # First by connection: few rows are left to find the clients of.
    rows = telemetry.hourly(FLOWS)
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
    from pipeline.jobs.sums import LINKS

    rows = telemetry.with_client(telemetry.hourly(LINKS), "connection_id")
    return _summed(rows, LINKS, "hour", "router", "client", "host", "listener", "address", "dir")


def settles(telemetry: Telemetry) -> "DataFrame":
    """Settled deliveries by hour, router, address and bucket of their time in the router."""
    from pipeline.jobs.sums import SETTLES

    return _summed(telemetry.hourly(SETTLES), SETTLES, "hour", "router", "address", "bucket")


def workers(telemetry: Telemetry) -> "DataFrame":
    """CPU time and deliveries by hour, router, worker."""
    from pipeline.jobs.sums import WORKERS

    return _summed(telemetry.hourly(WORKERS), WORKERS, "hour", "router", "worker")


def _summed(rows: "DataFrame", of: "Hourly", *keys: str) -> "DataFrame":
    from pyspark.sql import functions as f

    sums = [f.sum(name).alias(name) for name in of.sums]
    return rows.groupBy(*keys).agg(*sums, *(f.max(name).alias(name) for name in of.peaks))


TABLES: Final = {"flows": flows, "links": links, "settles": settles, "workers": workers}


def write(telemetry: Telemetry, path: str) -> dict[str, int]:
    """Write all roll-ups of the period, which replace those of the same dates; gives the rows of each.

    At the same time: while Spark plans one on one core, Arrow sums up for another.
    """
    with ThreadPoolExecutor(len(TABLES)) as pool:
        return dict(pool.map(lambda name: (name, _write(telemetry, path, name)), TABLES))


def _write(telemetry: Telemetry, path: str, name: str) -> int:
    from pyspark.sql import Observation
    from pyspark.sql import functions as f

    seen = Observation()
    # Few rows: one file for each day.
    frame = TABLES[name](telemetry).withColumn("date", f.to_date("hour")).repartition(1, "date")
    frame = frame.observe(seen, f.count(f.lit(1)).alias("rows"))
    frame.write.mode("overwrite").partitionBy("date").parquet(f"{path}/rollup/v1/{name}")
    return int(seen.get["rows"])


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
