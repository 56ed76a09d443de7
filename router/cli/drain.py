"""`sluice drain`: make a router close its connections without loss, and exit."""

import argparse
import sys
from collections.abc import Sequence

from sluice.router.cli.client import BadRequestStatus, ManagementClient
from sluice.router.cli.failure import REFUSED
from sluice.router.cli.options import Parser, add_connection_options, add_target_options, target
from sluice.router.cli.output import to_json
from sluice.router.cli.tool import run_tool

DESCRIPTION = (
    "Make the router accept no more connections, wait until deliveries in flight are settled, close its connections "
    "with amqp:connection:forced, and exit. The command returns when the drain has begun. The exit code is 0, 1 if the "
    "router refused it, 4 if no router answers."
)


def main(words: Sequence[str] | None = None, program: str = "sluice drain") -> int:
    """Run the command; return the exit code."""
    options = parser(program).parse_args(words)
    return run_tool(lambda: _run(options), program, options)


def parser(program: str) -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = Parser(program, DESCRIPTION)
    made.add_argument(
        "--seconds",
        type=int,
        metavar="N",
        help="most seconds until the router exits; default: shutdownGraceSeconds, or 60 if that is 0",
    )
    made.add_argument(
        "--per-second",
        type=int,
        metavar="N",
        help="connections to close in a second; default: shutdownConnectionsPerSecond",
    )
    made.add_argument("--json", action="store_true", help="print the answer as JSON")
    add_target_options(made)
    add_connection_options(made)
    return made


def _run(options: argparse.Namespace) -> int:
    given = {"seconds": options.seconds, "perSecond": options.per_second}
    with ManagementClient(target(options)) as client:
        try:
            begun = client.node_call("DRAIN", {name: value for name, value in given.items() if value is not None})
        except BadRequestStatus as error:
            print(error, file=sys.stderr)
            return REFUSED
    if options.json:
        print(to_json(begun, 2))
        return 0
    print(
        f"Router {begun['router']} drains: {begun['connections']} connections, {begun['perSecond']} a second, "
        f"for at most {begun['seconds']} seconds"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
