"""Syntax of commands, read from their parsers: the source of man pages, the reference page and shell completion."""

import argparse
from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import Struct

from sluice.router.cli.getopt_long import Option

_COUNTS: Final = {"+": "...", "*": "..."}  # argparse's counts of values that allow several


class OptionSyntax(Struct, frozen=True):
    """Option of a command: its names, the name of its value (empty for a flag), and its help text."""

    names: tuple[str, ...]
    value: str
    help: str
    choices: tuple[str, ...] = ()
    required: bool = False
    optional_value: bool = False
    repeated: bool = False  # several values after one name
    multiple: bool = False  # may be given several times

    @property
    def text(self) -> str:
        """Names and value, as a user types them: `-b, --bus URL`."""
        return " ".join([", ".join(self.names), *([self.value_text] if self.value else [])])

    @property
    def value_text(self) -> str:
        """Value as a synopsis shows it: `URL`, `FILE...`, `[N]`."""
        value = f"{self.value}..." if self.repeated else self.value
        return f"[{value}]" if self.optional_value else value


class ArgumentSyntax(Struct, frozen=True):
    """Argument of a command that is no option."""

    name: str
    help: str
    choices: tuple[str, ...] = ()
    optional: bool = False
    repeated: bool = False

    @property
    def text(self) -> str:
        """Argument as a synopsis shows it: `FILE...`, `[NAME]`."""
        name = f"{self.name}..." if self.repeated else self.name
        return f"[{name}]" if self.optional else name


class OptionGroup(Struct, frozen=True):
    """Options that a help text shows under one title; the title is empty for the options of the command itself."""

    title: str
    options: tuple[OptionSyntax, ...]


class Exclusion(Struct, frozen=True):
    """Options of which at most one may be given, or exactly one if `required`."""

    options: tuple[OptionSyntax, ...]
    required: bool


class CommandSyntax(Struct, frozen=True):
    """Command with its options, arguments and subcommands. `name` has all words, as in `sluice pipeline land`."""

    name: str
    summary: str
    description: str
    groups: tuple[OptionGroup, ...] = ()
    arguments: tuple[ArgumentSyntax, ...] = ()
    exclusions: tuple[Exclusion, ...] = ()
    commands: tuple["CommandSyntax", ...] = ()

    @property
    def options(self) -> Iterator[OptionSyntax]:
        """All options, of all groups."""
        for group in self.groups:
            yield from group.options

    @property
    def synopsis(self) -> str:
        """Command line in one line, with `[OPTIONS]` for those that may be left out."""
        words = [self.name, "[OPTIONS]"]
        words += [f"{option.names[-1]} {option.value_text}" for option in self.options if option.required]
        for exclusion in self.exclusions:
            if exclusion.required:
                texts = (f"{option.names[-1]} {option.value_text}".strip() for option in exclusion.options)
                words.append(f"({' | '.join(texts)})")
        if self.commands:
            words.append("COMMAND ...")
        return " ".join([*words, *(argument.text for argument in self.arguments)])

    def walk(self) -> Iterator["CommandSyntax"]:
        """Yield this command and all commands below it."""
        yield self
        for command in self.commands:
            yield from command.walk()


def read_parser(parser: argparse.ArgumentParser, summary: str = "") -> CommandSyntax:
    """Return the syntax of a command with an argparse parser; `summary` is its line in the list of commands."""
    options = {id(action): _option(parser, action) for action in parser._actions if action.option_strings}
    groups = [
        OptionGroup(
            "" if group.title in ("options", "positional arguments") else str(group.title),
            tuple(options[id(action)] for action in group._group_actions if action.option_strings),
        )
        for group in parser._action_groups
    ]
    exclusions = (
        Exclusion(tuple(options[id(action)] for action in group._group_actions), group.required)
        for group in parser._mutually_exclusive_groups
    )
    return CommandSyntax(
        parser.prog,
        summary,
        parser.description or "",
        tuple(group for group in groups if group.options),
        tuple(_arguments(parser)),
        tuple(exclusions),
        tuple(_commands(parser)),
    )


def read_getopt(name: str, description: str, options: Sequence[Option], meanings: dict[str, str]) -> CommandSyntax:
    """Return the syntax of a command with options for `getopt_long`; `meanings` are help texts by letter."""
    made = (
        OptionSyntax((f"-{option.letter}", f"--{option.name}"), option.argument or "", meanings[option.letter])
        for option in options
    )
    return CommandSyntax(name, "", description, (OptionGroup("", tuple(made)),))


def _option(parser: argparse.ArgumentParser, action: argparse.Action) -> OptionSyntax:
    takes_value = action.nargs != 0
    return OptionSyntax(
        tuple(action.option_strings),
        _value(action, action.dest.upper().replace("_", "-")) if takes_value else "",
        _help(parser, action),
        _choices(action),
        action.required,
        optional_value=action.nargs == "?",
        repeated=action.nargs in _COUNTS,
        multiple=isinstance(action, argparse._AppendAction),
    )


def _arguments(parser: argparse.ArgumentParser) -> Iterator[ArgumentSyntax]:
    for action in parser._actions:
        if not action.option_strings and not isinstance(action, argparse._SubParsersAction):
            yield ArgumentSyntax(
                _value(action, action.dest),
                _help(parser, action),
                _choices(action),
                optional=action.nargs in ("?", "*"),
                repeated=action.nargs in _COUNTS,
            )


def _commands(parser: argparse.ArgumentParser) -> Iterator[CommandSyntax]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            summaries = {choice.dest: choice.help or "" for choice in action._get_subactions()}
            for name, command in action.choices.items():
                if name in summaries:  # a hidden command has none
                    yield read_parser(command, summaries[name])


def _value(action: argparse.Action, default: str) -> str:
    if action.metavar is not None:
        return str(action.metavar)
    return "|".join(_choices(action)) or default


def _choices(action: argparse.Action) -> tuple[str, ...]:
    return tuple(str(choice) for choice in action.choices or ())


def _help(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    """Return the help text with its default filled in, as argparse prints it."""
    return parser._get_formatter()._expand_help(action) if action.help else ""
