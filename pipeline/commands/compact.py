"""`sluice pipeline compact`: merge small files into large ones."""

import argparse

from sluice.pipeline.compaction import archive, merge_telemetry
from sluice.pipeline.errors import PipelineError
from sluice.pipeline.prerequisites import require
from sluice.pipeline.segments import Landing
from sluice.pipeline.stores import open_store
from sluice.pipeline.units import minutes
from sluice.router import json_codec
from sluice.router.telemetry.schema import VERSION

HELP = "move segments that all groups have read to an archive; merge telemetry files of past hours"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--path", metavar="DIR", help="landing folder, or its URL")
    parser.add_argument(
        "--into", metavar="DIR", help="archive folder or URL for --path; one file for each log and hour"
    )
    parser.add_argument(
        "--retention",
        type=minutes,
        default=3600.0,
        metavar="MINUTES",
        help="keep segments that landed within this time (60; also 2h, 7d)",
    )
    parser.add_argument(
        "--telemetry", metavar="DIR", help="path of the telemetry section; its files of an hour become one"
    )
    parser.add_argument("--json", action="store_true", help="print the results as JSON, one object in a line for each")


def run(options: argparse.Namespace) -> int:
    require("pyarrow")
    if (options.path is None) != (options.into is None) or not (options.path or options.telemetry):
        raise PipelineError("give --path and --into, or --telemetry, or all three")
    if options.path:
        segments, files = archive(Landing.open(options.path), options.into, options.retention)
        counts = {"path": options.path, "into": options.into, "segments": segments, "files": files}
        text = f"{options.path}: {segments} segments moved to {files} files in {options.into}"
        print(json_codec.encode(counts).decode() if options.json else text)
    if options.telemetry:
        if f"v{VERSION}" not in open_store(options.telemetry).folders(""):
            raise PipelineError(f"{options.telemetry}: there is no telemetry (no folder v{VERSION})")
        gone, made = merge_telemetry(options.telemetry)
        merged = {"telemetry": options.telemetry, "merged": gone, "files": made}
        text = f"{options.telemetry}: {gone} files merged into {made}"
        print(json_codec.encode(merged).decode() if options.json else text)
    return 0
