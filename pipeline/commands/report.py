"""`sluice pipeline report`: write an HTML page about a period."""

import argparse
from datetime import datetime
from pathlib import Path

from sluice.pipeline import report
from sluice.pipeline.env import convert_spark_errors
from sluice.pipeline.errors import PipelineError
from sluice.pipeline.jobs.period import add_period, open_telemetry
from sluice.pipeline.jobs.rollup import HOUR, MINUTE, SHORT, Rollups

HELP = "make a self-contained HTML page about a period, from telemetry"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_period(parser)
    parser.add_argument("--out", default="report.html", metavar="FILE", help="HTML file (%(default)s)")


def run(options: argparse.Namespace) -> int:
    telemetry = open_telemetry(options, "report")
    step = MINUTE if telemetry.covered().total_seconds() < SHORT else HOUR
    with convert_spark_errors():
        findings = collect(Rollups.of(telemetry, step))
    try:
        Path(options.out).write_text(report.page(findings), "utf-8")
    except OSError as error:
        raise PipelineError(f"{options.out}: {error.strerror}") from error
    print(f"{options.out}: {len(findings.addresses)} addresses, {len(findings.capacities)} routers")
    return 0


def collect(rollups: Rollups) -> report.Findings:
    """Run all jobs."""
    from sluice.pipeline.jobs import addresses, capacity, diagnoses, links

    covered: dict[datetime, float] = {}
    for (_, hour), seconds in rollups.covered().items():
        covered[hour] = max(covered.get(hour, 0.0), seconds)
    return report.Findings(
        start=rollups.start,
        end=rollups.end,
        seconds=sum(covered.values()),
        capacities=capacity.by_router(rollups),
        addresses=addresses.by_address(rollups),
        busiest=links.busiest_links(rollups),
        stalled=links.stalled_links(rollups),
        diagnoses=diagnoses.by_address(rollups),
        minutes=rollups.step == MINUTE,
    )
