"""Completion of values: where a shell gets them, by the name of the value in the syntax of a command."""

from enum import StrEnum
from typing import Final

from msgspec import Struct

from sluice.router.cli.syntax import ArgumentSyntax, CommandSyntax, OptionSyntax


class ValueSource(StrEnum):
    """Source of completions. Those after WORDS are kinds of names that `sluice complete` gets from a router."""

    NONE = "none"
    FILES = "files"
    DIRECTORIES = "directories"
    WORDS = "words"
    ADDRESSES = "addresses"
    CONNECTIONS = "connections"
    ROUTERS = "routers"
    EDGE_ROUTERS = "edge-routers"
    TYPES = "types"


FROM_ROUTER: Final = tuple(ValueSource)[tuple(ValueSource).index(ValueSource.WORDS) + 1 :]
_SOURCES: Final = {
    "FILE": ValueSource.FILES,
    "PATH": ValueSource.FILES,
    "CERT": ValueSource.FILES,
    "KEY": ValueSource.FILES,
    "TRUSTED-CA-DB": ValueSource.FILES,
    "SSL-PASSWORD-FILE": ValueSource.FILES,
    "SASL-PASSWORD-FILE": ValueSource.FILES,
    "DIR": ValueSource.DIRECTORIES,
    "ADDRESS": ValueSource.ADDRESSES,
    "CONNECTION": ValueSource.CONNECTIONS,
    "ROUTER-ID": ValueSource.ROUTERS,
    "EDGE-ROUTER-ID": ValueSource.EDGE_ROUTERS,
    "TYPE": ValueSource.TYPES,
}
_ROUTER_OPTIONS: Final = frozenset(("--bus", "--url"))  # a command with one of them connects to a router


class ValueCompletion(Struct, frozen=True):
    """Completion of a value, with the words for ValueSource.WORDS."""

    source: ValueSource
    words: tuple[str, ...] = ()


def complete_option(command: CommandSyntax, option: OptionSyntax) -> ValueCompletion:
    """Return the completion of an option's value."""
    return _completion(command, option.value, option.choices)


def complete_argument(command: CommandSyntax, argument: ArgumentSyntax) -> ValueCompletion:
    """Return the completion of an argument."""
    return _completion(command, argument.name, argument.choices)


def _completion(command: CommandSyntax, value: str, choices: tuple[str, ...]) -> ValueCompletion:
    if choices:
        return ValueCompletion(ValueSource.WORDS, choices)
    source = _SOURCES.get(value, ValueSource.NONE)
    if source in FROM_ROUTER and not any(_ROUTER_OPTIONS.intersection(each.names) for each in command.options):
        source = ValueSource.NONE
    return ValueCompletion(source)
