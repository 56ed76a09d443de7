"""`sluice pipeline gc`: delete segments that all groups have read, or that exceed a limit of time or size."""

import argparse

from sluice.pipeline.retention import delete_beyond, delete_consumed_segments
from sluice.pipeline.segments import Landing, Segment
from sluice.pipeline.units import minutes, octets_text
from sluice.router import json_codec
from sluice.router.cli.quantities import size_or_zero

HELP = "delete segments that all groups of readers have read, or that exceed a limit"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--path", required=True, metavar="DIR", help="landing folder, or its URL")
    parser.add_argument(
        "--retention",
        type=minutes,
        default=3600.0,
        metavar="MINUTES",
        help="keep segments that landed within this time (60; also 90s, 2h, 7d)",
    )
    parser.add_argument(
        "--forget-group", action="append", default=[], metavar="GROUP", help="forget this group of readers"
    )
    parser.add_argument(
        "--retain-time", type=minutes, metavar="MINUTES", help="delete older segments, read or not (also 90s, 2h, 7d)"
    )
    parser.add_argument(
        "--retain-bytes",
        type=size_or_zero,
        metavar="SIZE",
        help="delete the oldest segments beyond this size, read or not",
    )
    parser.add_argument("--dry-run", action="store_true", help="only show what would be deleted")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def run(options: argparse.Namespace) -> int:
    landing = Landing.open(options.path)
    for name in options.forget_group:
        if not options.dry_run:
            landing.forget_group(name)
    if options.retain_time is not None or options.retain_bytes is not None:
        beyond = delete_beyond(landing, options.retain_time, options.retain_bytes, dry=options.dry_run)
        return report(options, beyond)
    # A dry run has not forgotten the groups, so they are left out here, too.
    if all(group.name in options.forget_group for group in landing.groups()):
        text = f"{options.path}: no group has read anything, so nothing is deleted"
        print(_as_json(options, 0, 0, 0) if options.json else text)
        return 0
    deleted = delete_consumed_segments(landing, options.retention, dry=options.dry_run, forgotten=options.forget_group)
    return report(options, deleted)


def report(options: argparse.Namespace, deleted: list[Segment]) -> int:
    """Print what was deleted; return the exit code."""
    octets, messages = sum(each.octets for each in deleted), sum(each.rows for each in deleted)
    verb = "would delete" if options.dry_run else "deleted"
    text = f"{verb} {len(deleted)} segments, {octets_text(octets)}, {messages} messages"
    print(_as_json(options, len(deleted), octets, messages) if options.json else text)
    return 0


def _as_json(options: argparse.Namespace, segments: int, octets: int, messages: int) -> str:
    found = {"path": options.path, "dry_run": options.dry_run, "segments": segments, "octets": octets}
    return json_codec.encode({**found, "messages": messages}).decode()
