"""Reader of the telemetry tables in a folder, for one period."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import cached_property
from heapq import heappop, heappush
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import unquote

from sluice.pipeline.errors import PipelineError
from sluice.router.telemetry.schema import HISTOGRAM, TABLES, VERSION, time_column

if TYPE_CHECKING:
    from pyarrow import RecordBatch, Table
    from pyspark.sql import DataFrame, SparkSession

    from sluice.pipeline.telemetry.hourly import HourlySums, MicrosecondPeriod, RouterFiles

# A file's folder is the hour of its first row. A file may have rows that begin up to this much earlier or later.
_SLACK: Final = timedelta(hours=1)
_HOUR: Final = timedelta(hours=1)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TASKS_A_CORE: Final = 4  # several, so that all cores end at about the same time
_FILE_TIME: Final = timedelta(minutes=1)  # time that a file covers
_FILE: Final = 1 << 16  # octets that take as long to read as opening a file


def collected_to_utc(collected: datetime) -> datetime:
    """Convert a time that Spark has collected. It is in the local zone of this process, without zone information."""
    return collected.astimezone(UTC)


class TelemetryError(PipelineError):
    """Raised if a folder of telemetry cannot be read."""


def root_of(path: str) -> Path:
    """Return the folder of the tables. Raises TelemetryError if there is none."""
    root = Path(path) / f"v{VERSION}"
    if not (root / "fact_worker").is_dir():
        raise TelemetryError(
            f"{path}: there is no telemetry (no folder v{VERSION}/fact_worker). The router writes files once a minute"
        )
    return root


class TelemetryTables:
    """Tables of all routers in a folder, for one period."""

    def __init__(self, spark: "SparkSession", path: str, start: datetime, end: datetime) -> None:
        """Open the telemetry. path: as in the telemetry section. start, end: with a time zone; the end is exclusive.

        Raises TelemetryError if there is no telemetry.
        """
        self.spark: Final = spark
        self.start: Final = start
        self.end: Final = end
        self._root: Final = root_of(path)

    @property
    def seconds(self) -> float:
        """Length of the period."""
        return (self.end - self.start).total_seconds()

    def _lines(self, name: str, earlier: bool = False) -> "DataFrame | None":
        """Return the rows of a table's JSON files in the period, with their `router`. None: there are no such files.

        earlier: include rows from before the period.
        """
        from pyspark.sql import functions as f

        folder = self._root / name
        if next(folder.glob("router=*/date=*/hour=*/*.jsonl"), None) is None:
            return None
        columns = TABLES[name]
        # JSON has string keys only, and Spark reads them as nothing else.
        schema = ddl({**columns, "router": "string", "date": "date", "hour": "int"}).replace("map<int,", "map<string,")
        found = self.spark.read.schema(schema).option("pathGlobFilter", "*.jsonl").json(str(folder))
        casts = {column: f.col(column).cast(kind) for column, kind in columns.items() if kind == HISTOGRAM}
        if casts:
            found = found.withColumns(casts)
        time, start, end = f.col(time_column(name)), f.lit(self.start), f.lit(self.end)
        # Folders are filtered first: opening files costs more than reading them.
        first, last = self._slack()
        date, hour = f.col("date"), f.col("hour")
        until = (date < f.lit(last.date())) | ((date == f.lit(last.date())) & (hour <= last.hour))
        found = found.where(until).where(time < end)
        if not earlier:
            since = (date > f.lit(first.date())) | ((date == f.lit(first.date())) & (hour >= first.hour))
            found = found.where(since).where(time >= start)
        return found.drop("date", "hour")

    def _slack(self) -> tuple[datetime, datetime]:
        """Return the first and the last hour whose folders may have rows of the period."""
        return (self.start - _SLACK).astimezone(UTC), (self.end + _SLACK).astimezone(UTC)

    def covered(self) -> timedelta:
        """Return about how long a time of the period has telemetry, by the names of files.

        A file's name begins with the time of its first row. A file of a merged hour counts as a minute.
        """
        first, last = self._slack()
        starts = []
        for path in (self._root / "fact_worker").glob("router=*/date=*/hour=*/[0-9]*"):
            date, name = path.parent.parent.name.partition("=")[2], path.name[:6]
            with suppress(ValueError):  # no telemetry file
                starts.append(datetime.fromisoformat(f"{date}T{name[:2]}:{name[2:4]}:{name[4:]}").replace(tzinfo=UTC))
        near = [start for start in starts if first <= start <= last]
        if not near:
            return timedelta()
        return max(timedelta(), min(self.end, max(near) + _FILE_TIME) - max(self.start, min(near)))

    def sums(self, wanted: "Mapping[str, HourlySums]", step: int) -> "DataFrame":
        """Return sums of the tables by `step` (HOUR or MINUTE of hourly.py), by their names in `wanted`.

        Columns PACKED: name, date of the hours, Arrow table. A key may occur in several of them.
        """
        from sluice.pipeline.telemetry.hourly import PACKED, columns_read, pack_by_date, sums_of_files, sums_of_rows

        tables: dict[str, dict[str, HourlySums]] = {}
        for name, each in wanted.items():
            tables.setdefault(each.table, {})[name] = each
        period = self._microseconds()
        columns = ddl(PACKED)

        def of_parts(table: str, parts: "list[RouterFiles]") -> "Iterator[RecordBatch]":
            for name, found in sums_of_files(tables[table], parts, period, step):
                yield from pack_by_date(name, found)

        first, last = self._slack()
        frame = self._of_files({table: self._files(table, first, last) for table in tables}, of_parts, columns)
        for table, of_table in tables.items():
            lines = self._lines(table)
            if lines is not None:

                def of_rows(
                    batches: "Iterator[RecordBatch]", of_table: "dict[str, HourlySums]" = of_table
                ) -> "Iterator[RecordBatch]":
                    for name, found in sums_of_rows(of_table, batches, step):
                        yield from pack_by_date(name, found)

                rows = lines.select("router", time_column(table), *columns_read(of_table.values()))
                frame = frame.unionByName(rows.mapInArrow(of_rows, columns))
        return frame

    @cached_property
    def clients(self) -> "Table":
        """Connections that were known before the end of the period, as clients.COLUMNS."""
        from sluice.pipeline.telemetry import clients
        from sluice.pipeline.telemetry.hourly import MicrosecondPeriod, read_files, rows_in_period

        period = MicrosecondPeriod(-(1 << 62), self._microseconds().end)
        time = time_column(clients.TABLE)
        columns = ddl(clients.COLUMNS)

        def of_parts(table: str, parts: "list[RouterFiles]") -> "Iterator[RecordBatch]":
            for part in parts:
                for rows in read_files(table, clients.READS, part):
                    yield from clients.to_client_rows(rows_in_period(rows, time, period)).to_batches()

        frame = self._of_files({clients.TABLE: self._files(clients.TABLE, None, self._slack()[1])}, of_parts, columns)
        lines = self._lines(clients.TABLE, earlier=True)
        if lines is not None:
            frame = frame.unionByName(
                lines.select("router", *clients.READS).mapInArrow(clients.client_batches, columns)
            )
        return clients.one_row_per_connection(frame.toArrow())

    def _microseconds(self) -> "MicrosecondPeriod":
        from sluice.pipeline.telemetry.hourly import MicrosecondPeriod

        return MicrosecondPeriod(*((when - _EPOCH) // timedelta(microseconds=1) for when in (self.start, self.end)))

    def _of_files(
        self,
        files: "dict[str, list[HourFiles]]",
        of_parts: "Callable[[str, list[RouterFiles]], Iterator[RecordBatch]]",
        columns: str,
    ) -> "DataFrame":
        """Apply `of_parts` to the files of tables, in tasks of about equal length."""
        if not any(files.values()):
            return self.spark.createDataFrame([], columns)
        tasks = divide_into_tasks(files, _TASKS_A_CORE * self.spark.sparkContext.defaultParallelism)

        def of_numbers(numbers: "Iterator[RecordBatch]") -> "Iterator[RecordBatch]":
            for batch in numbers:
                for number in batch.column(0).to_pylist():
                    for table, parts in tasks[number].items():
                        yield from of_parts(table, parts)

        return self.spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(of_numbers, columns)

    def _files(self, table: str, first: datetime | None, last: datetime) -> "list[HourFiles]":
        """Return the Parquet files from one hour to another, by hour. first: None for the earliest that exists."""
        from sluice.pipeline.telemetry.hourly import RouterFiles

        found = []
        for path in sorted((self._root / table).glob("router=*/date=*/hour=*")):
            router, date, hour = (part.partition("=")[2] for part in path.parts[-3:])
            try:
                began = datetime.fromisoformat(date).replace(hour=int(hour), tzinfo=UTC)
            except ValueError:
                continue  # not a telemetry folder
            if began <= last and (first is None or began > first - _HOUR):
                files = sorted(each for each in path.glob("*.parquet") if each.name[0] not in "._")
                weight = sum(each.stat().st_size + _FILE for each in files)
                if files:
                    found.append(HourFiles(weight, RouterFiles(unquote(router), [str(each) for each in files])))
        return found


class HourFiles(NamedTuple):
    """Files of one table and hour."""

    weight: int  # octets, plus the cost of opening the files
    part: "RouterFiles"


def divide_into_tasks(files: "dict[str, list[HourFiles]]", most: int) -> "list[dict[str, list[RouterFiles]]]":
    """Divide parts of tables into at most `most` tasks of about equal weight. Return the parts of each, by table."""
    every = sorted(((each.weight, table, each.part) for table, of in files.items() for each in of), reverse=True)
    tasks: list[dict[str, list[RouterFiles]]] = [{} for _ in range(min(len(every), most))]
    loads = [(0, index) for index in range(len(tasks))]
    for weight, table, part in every:
        load, index = heappop(loads)
        tasks[index].setdefault(table, []).append(part)
        heappush(loads, (load + weight, index))
    return tasks


def ddl(columns: Mapping[str, str]) -> str:
    """Return a schema in Spark's DDL."""
    return ", ".join(f"{column} {kind}" for column, kind in columns.items())
