"""`sluice trace CONNECTION`: show the frames of a connection live, in the format of the router's log."""

import argparse
import sys
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sluice.router.cli.client import ManagementClient
from sluice.router.cli.options import Parser, add_connection_options, add_target_options, target
from sluice.router.cli.output import one_line, to_json
from sluice.router.cli.tool import run_tool

_CREDIT = 100  # messages with frames in flight


def main(words: Sequence[str] | None = None, program: str = "sluice trace") -> int:
    """Run the command; return the exit code."""
    options = parser(program).parse_args(words)
    return run_tool(lambda: _run(options), program, options)


def parser(program: str) -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = Parser(program, "Show the frames of a connection live, until it closes or Ctrl-C is pressed.")
    made.add_argument("connection", metavar="CONNECTION", help="identity of the connection: 7, or C7 as in the log")
    made.add_argument("--count", metavar="N", type=int, default=0, help="exit after N lines")
    made.add_argument("--json", action="store_true", help="print each line as a JSON object with time and text")
    add_target_options(made)
    add_connection_options(made)
    return made


def _run(options: argparse.Namespace) -> int:
    identity = options.connection.strip("[]").removeprefix("C")
    printed = 0
    properties: dict[str, Any] = {"connection": identity}
    if options.count > 0:
        properties["lines"] = options.count
    with ManagementClient(target(options)) as client:
        try:
            for lines in client.stream("TRACE", properties, _CREDIT):
                for seconds, text in lines:
                    line = to_json({"time": _time(seconds), "text": text}) if options.json else _line(seconds, text)
                    print(line, flush=True)
                    printed += 1
                    if printed == options.count:
                        return 0
        except KeyboardInterrupt:
            print()
    return 0


def _line(seconds: float, text: str) -> str:
    return one_line(f"{_time(seconds)} {text}")


def _time(seconds: float) -> str:
    """Format a time as in the router's log."""
    return datetime.fromtimestamp(seconds).astimezone().strftime("%Y-%m-%d %H:%M:%S.%f %z")


if __name__ == "__main__":
    sys.exit(main())
