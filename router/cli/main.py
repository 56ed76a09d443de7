"""`sluice`: run the router, check configuration files, manage files of users, query running routers."""

import argparse
import importlib
import platform
import sys
from collections.abc import Sequence
from typing import Final

from sluice.router.cli.default_config import DEFAULT_CONFIGS, config_or_example
from sluice.router.cli.output import escape_output, to_json
from sluice.router.cli.streams import run_command
from sluice.router.version import VERSION

# Commands with their own parser: module with `main(words, program)`, and help text. A module is imported when its
# command is called, because other commands do not need its imports.
TOOLS: Final = {
    "hello": ("sluice.router.cli.hello", "a first message through a router"),
    "stat": ("sluice.router.cli.stat.main", "statistics and state of a router; the same as qdstat"),
    "manage": ("sluice.router.cli.manage", "any management operation; the same as qdmanage"),
    "top": ("sluice.router.cli.top", "a live view of a router"),
    "console": ("sluice.router.cli.console", "open the web console of a router, or print its URL"),
    "explain": ("sluice.router.cli.explain", "what happens to messages to an address, and why"),
    "trace": ("sluice.router.cli.trace", "the frames of a connection, live"),
    "capture": ("sluice.router.cli.capture", "messages of addresses with their timing, in a file"),
    "replay": ("sluice.router.cli.replay", "send the messages of a capture again, with their timing"),
    "policy": ("sluice.router.cli.policy", "what the policy in a configuration file allows, and why"),
    "reload": ("sluice.router.cli.reload", "read the configuration file again"),
    "drain": ("sluice.router.cli.drain", "close all connections without loss, and exit"),
    "pipeline": ("sluice.pipeline.cli", "messages to Spark tables and back; telemetry, reports"),
    "config": ("sluice.router.cli.config", "the configuration of a running router: show, save, compare with a file"),
    "context": ("sluice.router.cli.context", "names for routers with the options of their connection"),
    "passwd": ("sluice.router.cli.passwd", "passwords of users in a saslUsers file"),
    "completion": ("sluice.router.cli.completion.command", "a script that completes commands in bash, zsh or fish"),
}
# Commands for scripts, not shown in help texts.
HIDDEN: Final = {"complete": "sluice.router.cli.completion.complete"}


def main(words: Sequence[str] | None = None) -> int:
    """Run the command `sluice` with the words of the command line; return the exit code."""
    given = sys.argv[1:] if words is None else words
    return run_command(lambda: _run(given))


def _run(words: Sequence[str]) -> int:
    name = words[0] if words else ""
    module = TOOLS[name][0] if name in TOOLS else HIDDEN.get(name)
    if module is not None:
        tool = importlib.import_module(module)
        with escape_output():
            return int(tool.main(words[1:], f"sluice {name}"))
    arguments = parser().parse_args(words)
    match arguments.command:
        case "run":
            from sluice.router.cli.start import StartOptions, start  # 80 ms that the tools do not need

            return start(
                StartOptions(
                    program=sys.argv[0],
                    config=config_or_example() if arguments.config is None else arguments.config,
                    daemon=arguments.daemon,
                    pidfile=arguments.pidfile,
                    become_user=arguments.user,
                    become_group=arguments.group,
                    test_hooks=arguments.test_hooks,
                    take_over=arguments.take_over,
                )
            )
        case "check":
            from sluice.router.cli.check import check

            with escape_output():
                return check(
                    arguments.files, strict=arguments.strict, files=not arguments.no_files, json=arguments.json
                )
    with escape_output():
        found = {"version": VERSION, "python": platform.python_version()}
        print(to_json(found, 2) if arguments.json else VERSION)
    return 0


def process_id(text: str) -> int:
    """Return a process id of the command line. Raises ArgumentTypeError."""
    if not text.isascii() or not text.isdecimal() or not 0 < int(text[:10]) < 1 << 31:
        raise argparse.ArgumentTypeError(f"'{text}' is not a process id")
    return int(text)


def parser() -> argparse.ArgumentParser:
    """Return the parser of `sluice` and its commands; commands of TOOLS have parsers in their modules."""
    made = argparse.ArgumentParser(prog="sluice", description="A many-core AMQP 1.0 message router.")
    made.add_argument("--version", action="version", version=VERSION)
    commands = made.add_subparsers(dest="command", required=True, metavar="COMMAND")

    text = (
        f"Run the router. Without -c, the configuration is the first of {', '.join(DEFAULT_CONFIGS)} that exists, "
        "otherwise an example for clients on this machine."
    )
    run = commands.add_parser("run", help="run the router", description=text)
    run.add_argument("-c", "--config", metavar="FILE", help="configuration file")
    run.add_argument("-d", "--daemon", action="store_true", help="run detached, as a daemon")
    run.add_argument("-P", "--pidfile", metavar="FILE", help="with -d: write the process id to FILE")
    run.add_argument("-U", "--user", metavar="USER", help="become USER once the ports are open")
    run.add_argument("-G", "--group", metavar="GROUP", help="also become GROUP; default: the groups of USER")
    run.add_argument(
        "--take-over",
        metavar="PID",
        type=process_id,
        nargs="?",
        const=0,
        help="take the listening sockets of the running router with the same id, which then drains and exits; PID: its "
        "process id, if several routers have that id",
    )
    run.add_argument("-T", "--test-hooks", action="store_true", help="enable test features")

    text = (
        "Check configuration files without starting a router. Warnings name settings that cannot work, or have no "
        "effect. The exit code is 1 if a file is invalid."
    )
    check = commands.add_parser("check", help="check configuration files", description=text)
    check.add_argument("--strict", action="store_true", help="report all insecure settings, and treat them as errors")
    check.add_argument(
        "--no-files",
        action="store_true",
        help="do not check files, passwords and host names that the configuration refers to, for machines without them",
    )
    check.add_argument("--json", action="store_true", help="print the results as JSON")
    check.add_argument("files", metavar="FILE", nargs="+", help="configuration file")

    for name, (_, help_text) in TOOLS.items():
        commands.add_parser(name, help=help_text, add_help=False)
    version = commands.add_parser("version", help="print the version", description="Print the version.")
    version.add_argument("--json", action="store_true", help="print it, and that of Python, as JSON")
    return made


if __name__ == "__main__":
    sys.exit(main())
