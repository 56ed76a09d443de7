"""Syntax of all installed programs, from their parsers."""

import importlib
from collections.abc import Iterator

from msgspec.structs import replace

from sluice.router.cli import main, manage, qdrouterd
from sluice.router.cli.stat import main as stat
from sluice.router.cli.syntax import ArgumentSyntax, CommandSyntax, read_getopt, read_parser

_OPERATION = (
    ArgumentSyntax("OPERATION", "Operation to call.", tuple(each.lower() for each in manage.STANDARD)),
    ArgumentSyntax("ARGUMENT", "ATTRIBUTE=VALUE, or the name of an attribute or type.", optional=True, repeated=True),
)


def programs() -> tuple[CommandSyntax, ...]:
    """Return the syntax of `sluice`, `qdrouterd`, `qdstat` and `qdmanage`. Imports the modules of all commands."""
    return (
        replace(read_parser(main.parser()), commands=tuple(_commands())),
        read_getopt("qdrouterd", "Run the router.", qdrouterd.OPTIONS, qdrouterd.MEANINGS),
        read_parser(stat.parser("qdstat")),
        replace(read_parser(manage.parser("qdmanage")), arguments=_OPERATION),
    )


def _commands() -> Iterator[CommandSyntax]:
    """Yield the commands of `sluice`: from its own parser, or from the module of the command."""
    for command in read_parser(main.parser()).commands:
        name = command.name.removeprefix("sluice ")
        if name not in main.TOOLS:
            yield command
            continue
        module, summary = main.TOOLS[name]
        made = read_parser(importlib.import_module(module).parser(command.name), summary)
        yield replace(made, arguments=_OPERATION) if name == "manage" else made
