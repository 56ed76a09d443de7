"""Command-line arguments for a telemetry folder and a period."""

import argparse
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from sluice.pipeline.env import MEMORY, spark_session
from sluice.pipeline.errors import PipelineError
from sluice.pipeline.telemetry.reader import TelemetryTables, root_of
from sluice.router.telemetry.schema import VERSION

#: Few rows remain after the first step of each job.
CONF: Final = {"spark.sql.shuffle.partitions": "4"}
#: Arrow sums up Parquet files, so Java sees few rows and plans that run once each. Optimising their machine code costs
#: more than it saves: half of Java's CPU time. Java itself reads JSON lines.
FEW_ROWS: Final = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"}
FEW: Final = 64 << 20  # octets of JSON files; from this size on, full optimisation pays


def moment(text: str) -> datetime:
    """Parse a date, or a date and a time, in UTC unless the text names another zone."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time such as 2026-03-01 or 2026-03-01T08:30") from None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def add_period(parser: argparse.ArgumentParser) -> None:
    """Add --telemetry, --from, --to, --memory and --master."""
    parser.add_argument("--telemetry", required=True, metavar="DIR", help="path of the telemetry section")
    parser.add_argument(
        "--from", dest="start", type=moment, metavar="TIME", help="start of the period (default: a day before the end)"
    )
    parser.add_argument("--to", dest="end", type=moment, metavar="TIME", help="end of the period (default: now)")
    parser.add_argument("--memory", default=MEMORY, metavar="SIZE", help="memory of Spark's driver (%(default)s)")
    parser.add_argument("--master", metavar="URL", help="Spark master (default: this machine)")


def open_telemetry(options: argparse.Namespace, name: str) -> TelemetryTables:
    """Return the telemetry that the arguments name, with a new Spark session. Raises PipelineError."""
    end = options.end or datetime.now(UTC)
    start = options.start or end - timedelta(days=1)
    if start >= end:
        raise PipelineError(f"--from {start.isoformat()} is not before --to {end.isoformat()}")
    root_of(options.telemetry)  # checked before Spark starts, which takes seconds
    conf = {**CONF, **FEW_ROWS} if has_few_octets(Path(options.telemetry), start, end) else CONF
    spark = spark_session(f"sluice pipeline {name}", master=options.master, memory=options.memory, conf=conf)
    return TelemetryTables(spark, options.telemetry, start, end)


def has_few_octets(path: Path, start: datetime, end: datetime) -> bool:
    """Return True if the facts of a period's dates have fewer than FEW octets of JSON."""
    octets = 0
    date, last = start.astimezone(UTC).date(), end.astimezone(UTC).date()
    while date <= last:
        for file in path.glob(f"v{VERSION}/fact_*/router=*/date={date}/hour=*/*.jsonl"):
            with suppress(FileNotFoundError):  # deleted meanwhile
                octets += file.stat().st_size
            if octets >= FEW:
                return False
        date += timedelta(days=1)
    return True
