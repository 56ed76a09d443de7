"""`sluice pipeline rollup`: write hourly roll-ups of telemetry."""

import argparse
from datetime import timedelta

from sluice.pipeline.env import convert_spark_errors
from sluice.pipeline.jobs.period import add_period, open_telemetry
from sluice.pipeline.telemetry.reader import TelemetryTables

HELP = "make hourly tables of the telemetry of routers, for whole days"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_period(parser)
    parser.add_argument("--out", metavar="DIR", help="folder for the tables (default: beside the telemetry)")


def run(options: argparse.Namespace) -> int:
    from sluice.pipeline.jobs import rollup

    found = open_telemetry(options, "rollup")
    midnight = {"hour": 0, "minute": 0, "second": 0, "microsecond": 0}
    # Written tables replace those of the same date, so each date must be complete.
    last = (found.end - timedelta(microseconds=1)).replace(**midnight) + timedelta(days=1)  # type: ignore[arg-type]
    whole = TelemetryTables(found.spark, options.telemetry, found.start.replace(**midnight), last)  # type: ignore[arg-type]
    out = options.out or options.telemetry
    with convert_spark_errors():
        counts = rollup.write(whole, out)
    for name, rows in counts.items():
        print(f"{out}/rollup/v1/{name}: {rows:,} rows")
    return 0
