"""`sluice reload`: make the router read its configuration file again, and show the changes."""

import argparse
import sys
from collections.abc import Sequence

from sluice.router.cli.client import BadRequestStatus, ManagementClient
from sluice.router.cli.failure import REFUSED
from sluice.router.cli.options import Parser, add_connection_options, add_target_options, target
from sluice.router.cli.output import to_json
from sluice.router.cli.tool import run_tool

DESCRIPTION = (
    "Make the router read its configuration file again and apply all changes, or none if one is refused. "
    "The exit code is 0 if the file is in force, 1 if the router refused it, 4 if no router answers."
)


def main(words: Sequence[str] | None = None, program: str = "sluice reload") -> int:
    """Run the command; return the exit code."""
    options = parser(program).parse_args(words)
    return run_tool(lambda: _run(options), program, options)


def parser(program: str) -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = Parser(program, DESCRIPTION)
    what = made.add_mutually_exclusive_group(required=False)
    what.add_argument("--plan", action="store_true", help="only show what would change")
    what.add_argument("--undo", action="store_true", help="restore the configuration before the last reload")
    made.add_argument("--json", action="store_true", help="print the changes as JSON")
    add_target_options(made)
    add_connection_options(made)
    return made


def _run(options: argparse.Namespace) -> int:
    asked = {name: True for name in ("plan", "undo") if getattr(options, name)}
    with ManagementClient(target(options)) as client:
        try:
            answer = client.node_call("RELOAD", asked)
        except BadRequestStatus as error:  # its lines are the errors of the file
            print(error, file=sys.stderr)
            return REFUSED
    print(to_json(answer, 2) if options.json else answer["text"].rstrip("\n"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
