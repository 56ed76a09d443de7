"""`sluice pipeline gc`: delete segments that all groups of readers have read."""

import argparse

from sluice.pipeline.segments import Landing, delete_consumed_segments
from sluice.pipeline.units import minutes, octets_text

HELP = "delete segments that all groups of readers have read"


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
    parser.add_argument("--dry-run", action="store_true", help="only show what would be deleted")


def run(options: argparse.Namespace) -> int:
    landing = Landing.open(options.path)
    for name in options.forget_group:
        if not options.dry_run:
            landing.forget_group(name)
    # A dry run has not forgotten the groups, so they are left out here, too.
    if all(group.name in options.forget_group for group in landing.groups()):
        print(f"{options.path}: no group has read anything, so nothing is deleted")
        return 0
    deleted = delete_consumed_segments(landing, options.retention, dry=options.dry_run, forgotten=options.forget_group)
    octets = sum(segment.octets for segment in deleted)
    verb = "would delete" if options.dry_run else "deleted"
    print(f"{verb} {len(deleted)} segments, {octets_text(octets)}, {sum(each.rows for each in deleted)} messages")
    return 0
