"""Write docs/user/options.md from the parsers of the commands; with --check, verify it."""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from sluice.router.cli.programs import programs
from sluice.router.cli.syntax import CommandSyntax, OptionSyntax

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "user" / "options.md"
COMMANDS = ROOT / "docs" / "user" / "command.md"
HEAD = """# Options of each command

On this page you find each command of `sluice` with all its arguments and options, as `--help` prints them.
[Commands](command.md) and [tools](tools.md) explain them.

Every command also has `-h` (`--help`), and those for running routers `--version`. `qdstat` and `qdmanage` have the
options of `sluice stat` and `sluice manage`, without `--json`. The options of `sluice pipeline VERB` are on the pages
[reference of the pipeline](pipeline-reference.md) and [telemetry](telemetry.md).

<!-- Made by scripts/make_commands.py from the parsers of the commands; edit those. -->
"""
CONNECTION = "Connection"
COMMON = frozenset(("--help", "--version"))
OF_TOOLS = frozenset(("--verbose", "--router", "--edge-router"))  # of all commands that connect to a router
CONNECTION_HEAD = """
## Connection

These options say which router a command asks, and how it logs in there. Details: [tools](tools.md#which-router).
"""


def page() -> str:
    """Return the page."""
    return "".join(f"{line}\n" for line in _lines())


def undescribed(text: str) -> list[str]:
    """Return the options of qdrouterd that the text of command.md lacks: its table is written by hand."""
    daemon = next(program for program in programs() if program.name == "qdrouterd")
    return [name for option in daemon.options for name in option.names if f"`{name}" not in text]


def _lines() -> Iterator[str]:
    yield from HEAD.rstrip("\n").split("\n")
    sluice = programs()[0]
    connection: list[OptionSyntax] = []
    for command in sluice.walk():
        if command.name.startswith("sluice pipeline ") or command.commands:
            continue
        if not connection and _connects(command):
            own = [group.options for group in command.groups if group.title == CONNECTION]
            connection = [each for each in command.options if OF_TOOLS.intersection(each.names)]
            connection += [option for options in own for option in options]
        rows = list(_rows(command))
        if rows:
            yield ""
            yield f"## {command.name}"
            yield ""
            yield f"    {command.synopsis}"
            yield from _table(rows)
    yield from CONNECTION_HEAD.rstrip("\n").split("\n")
    yield from _table([_row(option) for option in connection])


def _rows(command: CommandSyntax) -> Iterator[str]:
    for argument in command.arguments:
        choices = f" Values: {', '.join(argument.choices)}." if argument.choices else ""
        yield f"| `{argument.text}` | {_cell(argument.help)}{choices} |"
    common = COMMON | OF_TOOLS if _connects(command) else COMMON
    for group in command.groups:
        if group.title == CONNECTION:
            yield "| … | the options of a [connection](#connection) |"
        else:
            yield from (_row(option) for option in group.options if not common.intersection(option.names))


def _connects(command: CommandSyntax) -> bool:
    return any("--bus" in option.names for option in command.options)


def _table(rows: Sequence[str]) -> Iterator[str]:
    yield from ("", "| argument or option | meaning |", "| --- | --- |", *rows)


def _row(option: OptionSyntax) -> str:
    return f"| `{_cell(option.text)}` | {_cell(option.help)} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def main(words: Sequence[str]) -> int:
    """Write or check the page; return the exit status."""
    if missing := undescribed(COMMANDS.read_text("utf-8")):
        print(f"{COMMANDS.relative_to(ROOT)} lacks options of qdrouterd: {' '.join(missing)}", file=sys.stderr)
        return 1
    new = page()
    if "--check" not in words:
        PAGE.write_text(new, "utf-8")
        return 0
    if PAGE.exists() and new == PAGE.read_text("utf-8"):
        return 0
    print(f"{PAGE.relative_to(ROOT)} is not what the parsers say: run scripts/make_commands.py", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
