"""Execution of the commands that talk to a router: escaped output, errors, exit codes."""

import argparse
import os
import sys
from collections.abc import Callable
from typing import Final

from sluice.router.cli.failure import describe, report
from sluice.router.cli.options import DEFAULT_URL, ManagementUrl
from sluice.router.cli.output import escape_output, one_line
from sluice.router.cli.streams import can_write, run_command

DEBUG_VARIABLE: Final = "_QPID_DISPATCH_TOOLS_DEBUG_"
_FAILED: Final = 1  # exit code of 1.19's tools for every error
_OLD_TOOLS: Final = ("qdstat", "qdmanage")


def run_tool(command: Callable[[], int], program: str, options: argparse.Namespace) -> int:
    """Run a tool and return its exit code. options: of its command line, with the router's URL as `bus`.

    Commands of `sluice` report errors on stderr; `qdstat` and `qdmanage` report them on stdout, as in 1.19
    (management.md 8.3).
    """
    with escape_output():
        if os.environ.get(DEBUG_VARIABLE):
            return command()
        return run_command(lambda: _reported(command, program, options))


def _reported(command: Callable[[], int], program: str, options: argparse.Namespace) -> int:
    try:
        code = command()
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        print()
    except BrokenPipeError:
        raise
    except Exception as error:  # users expect only this line; DEBUG_VARIABLE shows the traceback
        if isinstance(error, OSError) and not can_write():
            raise  # `run_command` reports lost output
        if program not in _OLD_TOOLS:
            failure = describe(error, _place(options))
            report(failure, program)
            return failure.code
        print(one_line(f"{type(error).__name__}: {error}"))
    return _FAILED


def _place(options: argparse.Namespace) -> str:
    """Return the URL of the router without user and password."""
    try:
        return ManagementUrl.parse(options.bus or DEFAULT_URL).text
    except ValueError:
        return "the router"
