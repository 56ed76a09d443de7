"""`sluice trace`: show the frames of a connection live, in the format of the router's log, or the ways of deliveries to
an address."""

import argparse
import re
import sys
from collections.abc import Sequence
from typing import Any, Final

from sluice.router.cli import trace_address
from sluice.router.cli.client import ManagementClient
from sluice.router.cli.options import Parser, add_connection_options, add_target_options, target
from sluice.router.cli.output import one_line, to_json
from sluice.router.cli.times import time_text
from sluice.router.cli.tool import run_tool

_CREDIT: Final = 100  # messages with frames in flight
_CONNECTION: Final = re.compile(r"\[?C?[0-9]+\]?")  # identity of a connection; all else is an address


def main(words: Sequence[str] | None = None, program: str = "sluice trace") -> int:
    """Run the command; return the exit code."""
    options = parser(program).parse_args(words)
    return run_tool(lambda: _run(options), program, options)


def parser(program: str) -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = Parser(
        program,
        "Show the frames of a connection live, until it closes or Ctrl-C is pressed; or the ways of deliveries to an "
        "address through the routers of the network, with their times and outcomes.",
    )
    made.add_argument(
        "what",
        metavar="CONNECTION|ADDRESS",
        help="identity of a connection (7, or C7 as in the log), or an address or pattern; orders/# are all addresses "
        "below orders",
    )
    made.add_argument("--address", action="store_true", help="take a number for an address")
    made.add_argument("--count", metavar="N", type=int, default=0, help="exit after N lines, or N spans of deliveries")
    made.add_argument("--json", action="store_true", help="print each line, or each span, as a JSON object")
    made.add_argument(
        "--for",
        dest="seconds",
        metavar="TIME",
        type=trace_address.duration,
        default=60,
        help="time for which deliveries are traced, at most 1h; default 60s",
    )
    made.add_argument(
        "--ratio", metavar="R", type=float, default=1.0, help="ratio of deliveries that are traced; default 1, all"
    )
    made.add_argument("--alone", action="store_true", help="trace deliveries at this router only")
    add_target_options(made)
    add_connection_options(made)
    return made


def _run(options: argparse.Namespace) -> int:
    if options.address or not _CONNECTION.fullmatch(options.what):
        return trace_address.run(options)
    identity = options.what.strip("[]").removeprefix("C")
    printed = 0
    properties: dict[str, Any] = {"connection": identity}
    if options.count > 0:
        properties["lines"] = options.count
    with ManagementClient(target(options)) as client:
        try:
            for lines in client.stream("TRACE", properties, _CREDIT):
                for seconds, text in lines:
                    line = to_json({"time": time_text(seconds), "text": text}) if options.json else _line(seconds, text)
                    print(line, flush=True)
                    printed += 1
                    if printed == options.count:
                        return 0
        except KeyboardInterrupt:
            print()
    return 0


def _line(seconds: float, text: str) -> str:
    return one_line(f"{time_text(seconds)} {text}")


if __name__ == "__main__":
    sys.exit(main())
