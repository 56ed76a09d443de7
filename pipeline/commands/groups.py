"""`sluice pipeline groups`: list the groups of readers with their lag, reset or delete one."""

import argparse
import sys
from typing import Any

from sluice.pipeline.errors import LandingError, PipelineError
from sluice.pipeline.lag import ReaderLag, lag_of
from sluice.pipeline.options import EARLIEST, LATEST, check_offsets, parse_time
from sluice.pipeline.resets import write_reset
from sluice.pipeline.segments import Group, Landing, LandingLog, Offsets, first_since, group_wants_log, now
from sluice.pipeline.units import octets_text
from sluice.router import json_codec

HELP = "list groups of readers and how far they are behind; reset or delete one"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--path", required=True, metavar="DIR", help="landing folder, or its URL")
    goal = parser.add_mutually_exclusive_group()
    goal.add_argument("--reset", metavar="GROUP", help="let the query of this group go on at --to")
    goal.add_argument("--delete", metavar="GROUP", help="delete this group, whose query will not return")
    parser.add_argument(
        "--to", metavar="POSITION",
        help='earliest, latest, a landing time (ms, or 2026-01-31T08:00:00Z), or JSON {"LANDER/ADDRESS": segment}',
    )  # fmt: skip
    parser.add_argument("--logs", action="store_true", help="show each log of a group")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(options: argparse.Namespace) -> int:
    if (options.reset is None) != (options.to is None):
        raise PipelineError("give --reset GROUP and --to POSITION together")
    landing = Landing.open(options.path)
    if options.delete:
        find_group(landing, options.delete)
        landing.forget_group(options.delete)
        print(f"group {options.delete} is deleted")
        return 0
    if options.reset:
        group = find_group(landing, options.reset)
        write_reset(landing.store, group.name, position(landing, group, options.to))
        print(f"group {group.name} will go on at {options.to}, with the next batch of its query")
        return 0
    found = [describe(landing, group) for group in landing.groups()]
    if options.json:
        print(json_codec.encode(found).decode())
        return 0
    if not found:
        print("there are no groups", file=sys.stderr)
    for each in found:
        print(f"{each['group']}: {_text(each)}, last commit {each['committedSecondsAgo']:.0f} s ago")
        for log in each["logs"] if options.logs else ():
            print(f"  {log['log']}: at segment {log['next']}, {_text(log)}")
    return 0


def find_group(landing: Landing, name: str) -> Group:
    """Return a group. Raises LandingError if it does not exist."""
    groups = {each.name: each for each in landing.groups()}
    if name not in groups:
        raise LandingError(f"{landing.url} has no group {name!r} (it has: {', '.join(groups) or 'none'})")
    return groups[name]


def group_logs(landing: Landing, group: Group) -> list[LandingLog]:
    return [log for log in landing.logs() if group_wants_log(group, log)]


def describe(landing: Landing, group: Group) -> dict[str, Any]:
    """Return a group with its lag, in all and for each log."""
    total = ReaderLag()
    logs = []
    for log in group_logs(landing, group):
        first = group.offsets.get(log.key, 0)
        lag = lag_of(landing.listing(log.key, first).segments, first)
        total |= lag
        logs.append({"log": log.key, "next": first, **_figures(lag)})
    ago = max(now() - group.committed, 0) / 1000
    return {"group": group.name, **_figures(total), "committedSecondsAgo": ago, "logs": logs}


def _figures(lag: ReaderLag) -> dict[str, Any]:
    return {"segments": lag.segments, "rows": lag.rows, "bytes": lag.octets, "seconds": lag.seconds}


def _text(found: dict[str, Any]) -> str:
    rows, octets, seconds = found["rows"], octets_text(found["bytes"]), found["seconds"]
    return f"{rows:,} rows behind, {octets}, {seconds:.0f} s" if rows else "nothing to read"


def position(landing: Landing, group: Group, to: str) -> Offsets:
    """Return the offsets of a position for each log of a group. Raises PipelineError."""
    keys = [log.key for log in group_logs(landing, group)]
    if to.lower() == LATEST:
        return {key: landing.end(key) for key in keys}
    if to.lower() == EARLIEST:
        return {key: first_since(landing, key, 0) for key in keys}
    try:
        if to.startswith("{"):
            return named_offsets(to, keys)
        at = parse_time(to)
    except ValueError as error:
        raise PipelineError(f"--to: {error}") from None
    return {key: first_since(landing, key, at) for key in keys}


def named_offsets(text: str, keys: list[str]) -> Offsets:
    """Parse the offsets of some logs. Raises ValueError, LandingError."""
    found = check_offsets(json_codec.decode(text))
    unknown = [key for key in found if key not in keys]
    if unknown:
        raise ValueError(f"the group has no log {unknown[0]} (it has {', '.join(keys)})")
    return found
