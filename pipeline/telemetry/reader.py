"""The tables of telemetry in a folder, from a time to another."""

from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pipeline.errors import PipelineError
from router.telemetry.schema import HISTOGRAM, TABLES, VERSION, time_column

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

# Files bear the hour in which their first row begins; one may hold what began up to this much earlier or later.
_SLACK: Final = timedelta(hours=1)
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
        from pyspark.sql import functions as f

        columns = TABLES[name]
        schema = ", ".join(f"{column} {kind}" for column, kind in columns.items())
        partitions = ", router string, date date, hour int"
        folder = self._root / name
        frames = []
        for suffix, form in (("parquet", "parquet"), ("jsonl", "json")):
            if next(folder.glob(f"router=*/date=*/hour=*/*.{suffix}"), None) is not None:
                # In JSON the keys of a map are strings, and Spark reads them as nothing else.
                written = schema.replace("map<int,", "map<string,") if form == "json" else schema
                reader = self.spark.read.schema(written + partitions).option("pathGlobFilter", f"*.{suffix}")
                frame = reader.format(form).load(str(folder))
                casts = {column: f.col(column).cast(kind) for column, kind in columns.items() if kind == HISTOGRAM}
                frames.append(frame.withColumns(casts) if casts and form == "json" else frame)
        if not frames:
            return self.spark.createDataFrame([], schema + ", router string")
        found = frames[0] if len(frames) == 1 else frames[0].unionByName(frames[1])
        time, start, end = f.col(time_column(name)), f.lit(self.start), f.lit(self.end)
        # By folders first: to open files costs more than to read them.
        first, last = ((self.start - _SLACK).astimezone(UTC), (self.end + _SLACK).astimezone(UTC))
        date, hour = f.col("date"), f.col("hour")
        until = (date < f.lit(last.date())) | ((date == f.lit(last.date())) & (hour <= last.hour))
        found = found.where(until).where(time < end)
        if not (earlier or name.startswith("dim_")):
            since = (date > f.lit(first.date())) | ((date == f.lit(first.date())) & (hour >= first.hour))
            found = found.where(since).where(time >= start)
        return found.drop("date", "hour")

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


def client_name(user: "Column", pattern: "Column") -> "Column":
    """How a client is called in tables: its container id without numbers, and its user unless that is anonymous."""
    from pyspark.sql import functions as f

    named = user.isNotNull() & (user != "anonymous")
    return f.when(named, f.concat(user, f.lit("@"), pattern)).otherwise(pattern)
