"""`sluice pipeline apply`: create the placements of a plan in a router, or remove them."""

import argparse
import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pipeline import recommend
from pipeline.errors import PipelineError
from router.cli.client import CREATED, NO_CONTENT, PREFIX, ManagementClient, ManagementError, run_tool
from router.cli.options import add_connection_options, add_target_options, target

HELP = "create the placements of a plan in a router, or delete them"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("plan", metavar="PLAN", help="plan file written by `recommend`")
    how = parser.add_mutually_exclusive_group(required=True)
    how.add_argument("--dry-run", action="store_true", help="only show what would change")
    how.add_argument("--yes", action="store_true", help="make the changes")
    parser.add_argument("--undo", action="store_true", help="delete the plan's placements instead")
    add_target_options(parser)
    add_connection_options(parser)


def read_plan(path: str, now: datetime) -> dict[str, Any]:
    """Read a plan. Raises PipelineError if it is no plan, has another version, was edited, or has expired."""
    try:
        plan = json.loads(Path(path).read_text("utf-8"))
        version, expires = plan["version"], datetime.fromisoformat(plan["expires_at"])
        body = {"rules": plan["rules"], "advice": plan["advice"]}
    except OSError as error:
        raise PipelineError(f"{path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise PipelineError(f"{path} is not a plan of `sluice pipeline recommend`: {error!r}") from error
    if version != recommend.VERSION:
        raise PipelineError(f"{path}: plan version {version} is not supported, only {recommend.VERSION}")
    if recommend.digest(body) != plan.get("digest"):
        raise PipelineError(f"{path} was edited after it was made: run `sluice pipeline recommend` again")
    if expires < now:
        raise PipelineError(f"{path} expired on {expires:%Y-%m-%d}: make a new one from current telemetry")
    return dict(plan)


def run(options: argparse.Namespace) -> int:
    plan = read_plan(options.plan, datetime.now(UTC))
    return run_tool(lambda: _apply(plan, options))


def _apply(plan: dict[str, Any], options: argparse.Namespace) -> int:
    with ManagementClient(target(options)) as client:
        (router,) = client.rows("router", ["id"])
        rules = [rule for rule in plan["rules"] if rule["router"] == router["id"]]
        if not rules:
            print(f"the plan has no placements for router {router['id']}")
            return 0
        present = {row["name"]: row for row in client.rows("placement", ["name", *_NAMES])}
        wanted = {} if options.undo else {rule["name"]: rule["attributes"] for rule in rules}
        gone = [
            name
            for name, row in present.items()
            if name.startswith(recommend.PREFIX) and not _same(row, wanted.get(name))
        ]
        made = {name: each for name, each in wanted.items() if not _same(present.get(name), each)}
        for name in gone:
            print(f"- placement {name}: {_text(present[name])}")
        for name, each in made.items():
            print(f"+ placement {name}: {_text(each)}")
        if not gone and not made:
            print("nothing to change")
        if options.dry_run:
            return 0
        return _change(client, gone, made, present)


def _change(client: ManagementClient, gone: list[str], made: dict[str, Any], present: dict[str, Any]) -> int:
    """Apply all changes, or undo those made before an error. Return the exit code."""
    undo: list[tuple[str, dict[str, Any] | None]] = []  # name, and the attributes before the change
    try:
        for name in gone:
            _delete(client, name)
            undo.append((name, present[name]))
        for name, each in made.items():
            _create(client, name, each)
            undo.append((name, None))
    except ManagementError as error:
        print(f"the router refused the plan, so nothing is changed: {error}", file=sys.stderr)
        for name, before in reversed(undo):
            if before is None:
                _delete(client, name)
            else:
                _create(client, name, before)
        return 1
    if gone or made:
        print("in effect for new connections")
    return 0


def _create(client: ManagementClient, name: str, attributes: dict[str, Any]) -> None:
    body = {key: attributes[key] for key in _NAMES if attributes.get(key) is not None}
    client.call("CREATE", {"type": _TYPE, "name": name}, body, expect=CREATED)


def _delete(client: ManagementClient, name: str) -> None:
    client.call("DELETE", {"type": _TYPE, "name": name}, expect=NO_CONTENT)


_TYPE = PREFIX + "placement"
_NAMES = ("listener", "host", "worker")


def _same(one: dict[str, Any] | None, other: dict[str, Any] | None) -> bool:
    return one is not None and other is not None and all(one.get(name) == other.get(name) for name in _NAMES)


def _text(row: dict[str, Any]) -> str:
    return ", ".join(f"{name} {row[name]}" for name in _NAMES if row.get(name) is not None)
