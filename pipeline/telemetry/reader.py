"""The tables of telemetry in a folder, from a time to another."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from pipeline.errors import PipelineError
from router.telemetry.schema import HISTOGRAM, TABLES, VERSION, time_column

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyspark.sql import Column, DataFrame, SparkSession

    from pipeline.telemetry.hourly import Hourly, Part

# Files bear the hour in which their first row begins; one may hold what began up to this much earlier or later.
_SLACK: Final = timedelta(hours=1)
_FORMS: Final = {"parquet": "parquet", "json": "jsonl"}  # of files, by their suffixes
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TASKS_A_CORE: Final = 4  # so that all end at about the same time
# Digits and hexadecimal numbers in a container id differ with each start of a client; one of 8 to 11 digits is a word
# of its own, and has a decimal digit.
_VOLATILE: Final = (
    r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}|[0-9a-fA-F]{12,}"
    r"|(?<![0-9a-zA-Z])(?=[a-fA-F]*[0-9])[0-9a-fA-F]{8,11}(?![0-9a-zA-Z])|[0-9]+"
)


def utc(collected: datetime) -> datetime:
    """A time that Spark has collected: it comes in the zone of this process, without saying so."""
    return collected.astimezone(UTC)


class TelemetryError(PipelineError):
    """A folder of telemetry cannot be read."""


class Telemetry:
    """The tables of all routers in a folder, of one period. Frames are made when they are asked for."""

    def __init__(self, spark: "SparkSession", path: str, start: datetime, end: datetime) -> None:
        """path: of the telemetry section. start, end: with a time zone; `end` is not in it.

        Raises TelemetryError when there is no telemetry.
        """
        self.spark: Final = spark
        self.start: Final = start
        self.end: Final = end
        self._root: Final = Path(path) / f"v{VERSION}"
        if not (self._root / "fact_worker").is_dir():
            raise TelemetryError(f"{path}: there is no telemetry (no folder v{VERSION}/fact_worker)")

    @property
    def seconds(self) -> float:
        """Length of the period."""
        return (self.end - self.start).total_seconds()

    def table(self, name: str, earlier: bool = False) -> "DataFrame":
        """The rows of a table that hold in the period, with their `router`. Dimensions: those known before its end.

        earlier: also rows from before it.
        """
        earlier = earlier or name.startswith("dim_")
        frames = [frame for form in _FORMS if (frame := self._rows(name, form, earlier)) is not None]
        if not frames:
            return self._nothing({**TABLES[name], "router": "string"})
        return frames[0] if len(frames) == 1 else frames[0].unionByName(frames[1])

    def _rows(self, name: str, form: str, earlier: bool = False) -> "DataFrame | None":
        """Of a table's files of one form; None: there are none."""
        from pyspark.sql import functions as f

        folder = self._root / name
        suffix = _FORMS[form]
        if next(folder.glob(f"router=*/date=*/hour=*/*.{suffix}"), None) is None:
            return None
        columns = TABLES[name]
        schema = _ddl({**columns, "router": "string", "date": "date", "hour": "int"})
        # In JSON the keys of a map are strings, and Spark reads them as nothing else.
        written = schema.replace("map<int,", "map<string,") if form == "json" else schema
        reader = self.spark.read.schema(written).option("pathGlobFilter", f"*.{suffix}")
        found = reader.format(form).load(str(folder))
        casts = {column: f.col(column).cast(kind) for column, kind in columns.items() if kind == HISTOGRAM}
        if casts and form == "json":
            found = found.withColumns(casts)
        time, start, end = f.col(time_column(name)), f.lit(self.start), f.lit(self.end)
        # By folders first: to open files costs more than to read them.
        first, last = self._slack()
        date, hour = f.col("date"), f.col("hour")
        until = (date < f.lit(last.date())) | ((date == f.lit(last.date())) & (hour <= last.hour))
        found = found.where(until).where(time < end)
        if not earlier:
            since = (date > f.lit(first.date())) | ((date == f.lit(first.date())) & (hour >= first.hour))
            found = found.where(since).where(time >= start)
        return found.drop("date", "hour")

    def _slack(self) -> tuple[datetime, datetime]:
        """The first and the last hour whose folders may have rows of the period."""
        return (self.start - _SLACK).astimezone(UTC), (self.end + _SLACK).astimezone(UTC)

    def _nothing(self, columns: Mapping[str, str]) -> "DataFrame":
        return self.spark.createDataFrame([], _ddl(columns))

    def hourly(self, wanted: "Hourly") -> "DataFrame":
        """Sums of a table by hour, of the files of each hour."""
        from pipeline.telemetry.hourly import Period

        schema = _ddl(wanted.columns)
        frames = []
        period = Period(_microseconds(self.start), _microseconds(self.end))
        tasks = self._tasks(wanted.table)
        if tasks:

            def of_files(numbers: "Iterator[RecordBatch]") -> "Iterator[RecordBatch]":
                for batch in numbers:
                    for number in batch.column(0).to_pylist():
                        yield from wanted.of_files(tasks[number], period)

            frames.append(self.spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(of_files, schema))
        lines = self._rows(wanted.table, "json")
        if lines is not None:
            read = lines.select("router", time_column(wanted.table), *wanted.reads)
            frames.append(read.mapInArrow(wanted.of_rows, schema))
        if not frames:
            return self._nothing(wanted.columns)
        return frames[0] if len(frames) == 1 else frames[0].unionByName(frames[1])

    def _tasks(self, table: str) -> "list[list[Part]]":
        """The Parquet files of the period, by task: those of an hour together, about equal octets for each."""
        from pipeline.telemetry.hourly import Part

        found = []
        first, last = self._slack()
        folder = self._root / table
        for days in range((last.date() - first.date()).days + 1):
            date = first.date() + timedelta(days=days)
            for path in sorted(folder.glob(f"router=*/date={date}/hour=*")):
                hour = path.name.removeprefix("hour=")
                if hour.isdecimal() and (first.date(), first.hour) <= (date, int(hour)) <= (last.date(), last.hour):
                    files = sorted(each for each in path.glob("*.parquet") if each.name[0] not in "._")
                    octets = sum(each.stat().st_size for each in files)
                    router = unquote(path.parts[-3].removeprefix("router="))
                    if files:
                        found.append((octets, Part(router, [str(each) for each in files])))
        count = min(len(found), _TASKS_A_CORE * self.spark.sparkContext.defaultParallelism)
        tasks: list[list[Part]] = [[] for _ in range(count)]
        loads = [(0, index) for index in range(count)]
        for octets, part in sorted(found, key=lambda each: -each[0]):
            load, index = min(loads)
            tasks[index].append(part)
            loads[index] = (load + octets, index)
        return tasks

    @cached_property
    def clients(self) -> "DataFrame":
        """Connections by what is the same when they come again: router, boot_id, connection_id, client, user, vhost,
        host, listener, role."""
        from pyspark.sql import functions as f

        pattern = f.regexp_replace(f.coalesce("container", f.lit("")), _VOLATILE, "*")
        found = self.table("dim_connection").dropDuplicates(["router", "boot_id", "connection_id"])
        return found.select(
            "router",
            "boot_id",
            "connection_id",
            client_name(f.col("user"), pattern).alias("client"),
            "user",
            "vhost",
            f.regexp_replace("peer", r":[0-9]+$", "").alias("host"),
            "listener",
            "role",
        )

    def with_client(self, rows: "DataFrame", column: str, suffix: str = "") -> "DataFrame":
        """Rows with the client of the connection in `column`: `client`, `host`, `listener`, each with the suffix."""
        from pyspark.sql import functions as f

        clients = self.clients.select(
            "router",
            "boot_id",
            f.col("connection_id").alias(column),
            *(f.col(name).alias(name + suffix) for name in ("client", "host", "listener")),
        )
        return rows.join(f.broadcast(clients), ["router", "boot_id", column], "left")


def _ddl(columns: Mapping[str, str]) -> str:
    return ", ".join(f"{column} {kind}" for column, kind in columns.items())


def _microseconds(when: datetime) -> int:
    return (when - _EPOCH) // timedelta(microseconds=1)


def client_name(user: "Column", pattern: "Column") -> "Column":
    """How a client is called in tables: its container id without numbers, and its user unless that is anonymous."""
    from pyspark.sql import functions as f

    named = user.isNotNull() & (user != "anonymous")
    return f.when(named, f.concat(user, f.lit("@"), pattern)).otherwise(pattern)
