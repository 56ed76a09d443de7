"""`sluice pipeline recommend`: make a plan of changes from telemetry."""

import argparse
import json
from datetime import UTC, datetime
from pathlib import Path

from pipeline import recommend
from pipeline.env import convert_spark_errors
from pipeline.errors import PipelineError
from pipeline.jobs.period import add_period, open_telemetry

HELP = "recommend changes to routers from their telemetry, as a plan for `apply`"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_period(parser)
    parser.add_argument("--out", default="plan.json", metavar="FILE", help="plan file (%(default)s)")


def run(options: argparse.Namespace) -> int:
    from pipeline.jobs import advice, rollup

    telemetry = open_telemetry(options, "recommend")
    with convert_spark_errors():
        rollups = rollup.Rollups.of(telemetry)
        rules, advised = advice.placement_rules(rollups), advice.advice(rollups)
    made = recommend.make_plan(rules, advised, telemetry.start, telemetry.end, datetime.now(UTC))
    try:
        Path(options.out).write_text(json.dumps(made, indent=2) + "\n", "utf-8")
    except OSError as error:
        raise PipelineError(f"{options.out}: {error.strerror}") from error
    for each in made["advice"]:
        print(f"{each['kind']}: {each['subject']}: {each['text']}")
    if made["rules"]:
        gain = made["rules"][0]["gain"]
        before, after = gain["cross_worker_before"], gain["cross_worker_after"]
        print(f"{len(made['rules'])} placements; deliveries that cross workers fall from {before:.0%} to {after:.0%}")
        print(f"sluice pipeline apply {options.out} --dry-run")
    else:
        print("no placements: they would gain little")
    return 0
