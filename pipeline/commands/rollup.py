"""`sluice pipeline rollup`: write hourly roll-ups of telemetry."""

import argparse
from datetime import UTC, datetime, time, timedelta
from typing import Final

from sluice.pipeline.env import convert_spark_errors
from sluice.pipeline.jobs.period import add_period, open_telemetry
from sluice.pipeline.telemetry.reader import TelemetryTables

MIDNIGHT: Final = time(tzinfo=UTC)
HELP = "make hourly tables of the telemetry of routers, for whole days"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_period(parser)
    parser.add_argument("--out", metavar="DIR", help="folder for the tables (default: beside the telemetry)")


def whole_days(start: datetime, end: datetime) -> tuple[datetime, datetime]:
    """Return the start and the end of the days of a period, in UTC as the dates of the tables.

    A written table replaces that of the same date, so each date must be complete.
    """
    last = (end - timedelta(microseconds=1)).astimezone(UTC).date()
    first, after = start.astimezone(UTC).date(), last + timedelta(days=1)
    return datetime.combine(first, MIDNIGHT), datetime.combine(after, MIDNIGHT)


def run(options: argparse.Namespace) -> int:
    from sluice.pipeline.jobs import rollup

    found = open_telemetry(options, "rollup")
    whole = TelemetryTables(found.spark, options.telemetry, *whole_days(found.start, found.end))
    out = options.out or options.telemetry
    with convert_spark_errors():
        counts = rollup.write(whole, out)
    for name, rows in counts.items():
        print(f"{out}/rollup/v1/{name}: {rows:,} rows")
    return 0
