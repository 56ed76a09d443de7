"""`sluice pipeline rollup`: write hourly roll-ups of telemetry."""

import argparse
from datetime import timedelta

from pipeline.env import failures
from pipeline.jobs.period import add_period, opened
from pipeline.telemetry.reader import Telemetry

HELP = "make hourly tables of the telemetry of routers, for whole days"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_period(parser)
    parser.add_argument("--out", metavar="DIR", help="folder for the tables (default: beside the telemetry)")


def run(options: argparse.Namespace) -> int:
    from pipeline.jobs import rollup

    found = opened(options, "rollup")
    midnight = {"hour": 0, "minute": 0, "second": 0, "microsecond": 0}
    # Written tables replace those of the same date, so each date must be complete.
    last = (found.end - timedelta(microseconds=1)).replace(**midnight) + timedelta(days=1)  # type: ignore[arg-type]
    whole = Telemetry(found.spark, options.telemetry, found.start.replace(**midnight), last)  # type: ignore[arg-type]
    out = options.out or options.telemetry
    with failures():
        counts = rollup.write(whole, out)
    for name, rows in counts.items():
        print(f"{out}/rollup/v1/{name}: {rows:,} rows")
    return 0
