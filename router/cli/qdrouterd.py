"""`qdrouterd`: run the router by the name and with the options of Dispatch. management.md 3.1."""

import sys
from collections.abc import Sequence

from msgspec.structs import replace

from sluice.router.cli.default_config import DEFAULT_CONFIGS, default_config
from sluice.router.cli.getopt_long import Option, OptionError, parse
from sluice.router.cli.start import StartOptions, start
from sluice.router.cli.streams import run_command
from sluice.router.version import VERSION

DEFAULT_LIBRARY = "/usr/lib/qpid-dispatch/python"  # shown in the usage only; the router needs no library directory

OPTIONS = (
    Option("c", "config", "PATH"),
    Option("I", "include", "PATH"),
    Option("d", "daemon"),
    Option("P", "pidfile", "PATH"),
    Option("U", "user", "USER"),
    Option("T", "test-hooks"),
    Option("v", "version"),
    Option("h", "help"),
)
MEANINGS = {
    "c": f"Load configuration from file at PATH ({' or '.join(DEFAULT_CONFIGS)})",
    "I": f"Location of the router's library ({DEFAULT_LIBRARY}); must exist if given, else unused",
    "d": "Run detached, as a daemon",
    "P": "With -d: write the process id to PATH",
    "U": "With -d: run as USER",
    "T": "Enable test features",
    "v": "Print the version and exit",
    "h": "Print this help and exit",
}


def usage(program: str) -> str:
    """Return the usage text."""
    lines = [f"Usage: {program} [OPTIONS]", ""]
    for option in OPTIONS:
        name = f"-{option.letter}, --{option.name}" + (f"={option.argument}" if option.argument else "")
        lines.append(f"  {name:<22} {MEANINGS[option.letter]}")
    return "\n".join(lines)


def main(words: Sequence[str] | None = None) -> int:
    """Run the command `qdrouterd` with the words of the command line; return the exit code."""
    given = sys.argv[1:] if words is None else words
    return run_command(lambda: _run(given))


def _run(words: Sequence[str]) -> int:
    program = sys.argv[0]
    options = StartOptions(program=program, config=default_config())
    extra: list[str] = []
    try:
        for letter, argument in parse(OPTIONS, words):
            match letter:
                case "v":
                    print(VERSION)
                    return 0
                case "h":
                    print(usage(program))
                    return 0
                case "":
                    extra.append(argument)
                case _:
                    options = _with(options, letter, argument)
    except OptionError as error:
        print(f"{program}: {error}", file=sys.stderr)
        print(usage(program))
        return 1
    if extra:
        print(f"Unexpected arguments: {' '.join(extra)}\n", file=sys.stderr)
        print(usage(program))
        return 1
    return start(options)


def _with(options: StartOptions, letter: str, argument: str) -> StartOptions:
    """Return `options` with one more option of the command line."""
    match letter:
        case "c":
            return replace(options, config=argument)
        case "I":
            return replace(options, include=argument)
        case "d":
            return replace(options, daemon=True)
        case "P":
            return replace(options, pidfile=argument)
        case "U":
            return replace(options, user=argument)
        case _:
            return replace(options, test_hooks=True)
