"""Hourly roll-ups: sums of a day's telemetry, for questions about months."""

import math
from collections.abc import Callable, Iterable, Iterator
from datetime import date, datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from sluice.pipeline.stores import open_store
from sluice.pipeline.telemetry.reader import TelemetryTables, ddl

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

VERSION: Final = 1  # version of the layout, in the path below rollup/
_FILE: Final = "rollup.parquet"  # a file for each day, because rows are few
HOUR: Final = 3600.0  # seconds
MINUTE: Final = 60.0  # seconds
SHORT: Final = 3 * HOUR  # a report of less telemetry than this shows minutes
_MOST_TASKS: Final = 64


def _by_date(
    telemetry: TelemetryTables,
    names: Iterable[str],
    make: "Callable[[str, date, pa.Table], pa.RecordBatch]",
    columns: str,
    step: int,
) -> "DataFrame":
    """Apply `make` to the name, date and rows of each roll-up, with the roll-ups of a date in one task."""
    import pyarrow as pa

    from sluice.pipeline.jobs.sums import TABLES
    from sluice.pipeline.telemetry.hourly import unpacked

    clients = telemetry.clients
    days = max(1, min(_MOST_TASKS, math.ceil(telemetry.seconds / 86400)))

    def made(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        sums: dict[tuple[date, str], list[bytes]] = {}
        for batch in batches:
            for name, day, octets in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                sums.setdefault((day, name), []).append(octets)
        for day, name in sorted(sums):
            yield make(name, day, TABLES[name].of(pa.concat_tables(map(unpacked, sums.pop((day, name)))), clients))

    found = telemetry.sums({name: TABLES[name].sums for name in names}, step)
    return found.repartition(days, "date").mapInArrow(made, columns)


def write(telemetry: TelemetryTables, path: str) -> dict[str, int]:
    """Write all roll-ups of the period over those of the same dates. Return the number of rows of each."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from sluice.pipeline.jobs.sums import TABLES

    store = open_store(path)

    def written(name: str, day: date, rows: "pa.Table") -> "pa.RecordBatch":
        folder = f"rollup/v{VERSION}/{name}/date={day}"
        sink = pa.BufferOutputStream()
        pq.write_table(rows, sink, write_page_checksum=True)
        store.make_folder(folder)
        store.publish(f"{folder}/{_FILE}", sink.getvalue())
        for other, _ in list(store.files(folder)):
            if other.endswith(".parquet") and other != _FILE:  # file of an earlier version
                store.delete(f"{folder}/{other}")
        return pa.record_batch([pa.array([name]), pa.array([rows.num_rows])], names=["name", "rows"])

    counts = dict.fromkeys(TABLES, 0)
    for name, rows in _by_date(telemetry, TABLES, written, "name string, rows long", round(HOUR * 1_000_000)).collect():
        counts[name] += rows
    return counts


class Rollups(NamedTuple):
    """Roll-ups of a period that the report reads, each computed once."""

    start: datetime
    end: datetime
    step: float  # seconds of the time that a row sums up: an hour or a minute, which the column `hour` starts
    links: "DataFrame"
    settles: "DataFrame"
    workers: "DataFrame"

    @classmethod
    def of(cls, telemetry: TelemetryTables, step: float = HOUR) -> "Rollups":
        """Return the roll-ups of the telemetry, kept in memory as far as they fit. One partition: rows are few."""
        from sluice.pipeline.jobs.sums import TABLES
        from sluice.pipeline.telemetry.hourly import PACKED

        names = ("links", "settles", "workers")
        tables = _by_date(telemetry, names, _packed, ddl(PACKED), round(step * 1_000_000)).persist()

        def table(name: str) -> "DataFrame":
            octets = tables.where(tables["name"] == name).select("data")
            return octets.mapInArrow(_rows, ddl(TABLES[name].columns)).repartition(1).persist()

        return cls(telemetry.start, telemetry.end, step, *map(table, names))

    def covered(self) -> dict[tuple[str, datetime], float]:
        """Return the seconds with telemetry by router and hour or minute: fewer if a router was started or stopped."""
        from pyspark.sql import functions as f

        most = self.workers.groupBy("router", "hour").agg(f.max("interval_ms"))
        return {(router, hour): max(ms or 0, 1) / 1000 for router, hour, ms in most.collect()}


def _packed(name: str, day: date, rows: "pa.Table") -> "pa.RecordBatch":
    import pyarrow as pa

    from sluice.pipeline.telemetry.hourly import PACKED, serialized

    octets = pa.array([serialized(rows)], pa.binary())
    return pa.record_batch([pa.array([name]), pa.array([day]), octets], names=list(PACKED))


def _rows(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
    from sluice.pipeline.telemetry.hourly import unpacked

    for batch in batches:
        for octets in batch.column(0).to_pylist():
            yield from unpacked(octets).to_batches()
