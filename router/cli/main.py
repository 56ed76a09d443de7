"""`sluice`: runs the router, checks configuration files, and talks to routers that run."""

import argparse
import importlib
import sys
from collections.abc import Sequence
from typing import Final

from router.cli.check import check
from router.cli.start import StartOptions, default_config, start
from router.cli.version import version

# Commands that talk to a running router: the module that has `main(words, program)`, and what the list of commands
# says. They are imported when they are called, because their client is of no use to the others.
TOOLS: Final = {
    "stat": ("router.cli.stat.main", "statistics and state of a router; the same as qdstat"),
    "manage": ("router.cli.manage", "any management operation; the same as qdmanage"),
    "top": ("router.cli.top", "a live view of a router"),
    "explain": ("router.cli.explain", "what becomes of messages to an address, and why"),
    "trace": ("router.cli.trace", "the frames of a connection, live"),
    "reload": ("router.cli.reload", "read the configuration file again"),
}


def main(words: Sequence[str] | None = None) -> int:
    """Run the command `sluice` with the words of its command line; return the exit code."""
    words = sys.argv[1:] if words is None else words
    if words and words[0] in TOOLS:
        tool = importlib.import_module(TOOLS[words[0]][0])
        return int(tool.main(words[1:], f"sluice {words[0]}"))
    arguments = _parser().parse_args(words)
    match arguments.command:
        case "run":
            return start(
                StartOptions(
                    program=sys.argv[0],
                    config=arguments.config,
                    daemon=arguments.daemon,
                    pidfile=arguments.pidfile,
                    user=arguments.user,
                    test_hooks=arguments.test_hooks,
                )
            )
        case "check":
            return check(arguments.files)
    print(version())
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="sluice", description="A many-core AMQP 1.0 message router.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    run = commands.add_parser("run", help="run the router", description="Run the router.")
    run.add_argument("-c", "--config", metavar="FILE", default=default_config(), help="configuration (%(default)s)")
    run.add_argument("-d", "--daemon", action="store_true", help="run detached, as a daemon")
    run.add_argument("-P", "--pidfile", metavar="FILE", help="with -d: write the process id to FILE")
    run.add_argument("-U", "--user", metavar="USER", help="with -d: run as USER")
    run.add_argument("-T", "--test-hooks", action="store_true", help="enable test features")

    text = "Check configuration files without running anything; the exit code is 1 if one of them cannot be used."
    check = commands.add_parser("check", help="check configuration files", description=text)
    check.add_argument("files", metavar="FILE", nargs="+", help="configuration file")

    for name, (_, help_text) in TOOLS.items():
        commands.add_parser(name, help=help_text, add_help=False)
    commands.add_parser("version", help="print the version", description="Print the version.")
    return parser


if __name__ == "__main__":
    sys.exit(main())
