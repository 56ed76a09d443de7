"""Parser for command-line options like C's getopt_long: it yields one option at a time, from left to right.

The standard library's getopt module parses the whole line first. With it, `-v --nonsense` would be an error, while
Dispatch prints its version.
"""

from collections.abc import Iterator, Sequence

from msgspec import Struct


class OptionError(Exception):
    """Error for an unknown option, or one without its argument. The text is getopt's."""


class Option(Struct, frozen=True):
    """Option: letter, long name, and the name of its argument if it takes one."""

    letter: str
    name: str
    argument: str | None = None


def parse(options: Sequence[Option], words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield `(letter, argument)` for each option in `words`, and `("", word)` for each other word.

    Options may follow other words; `--` ends the options. Long names may be abbreviated unambiguously. Raises
    OptionError at the first invalid option, after all options before it have been yielded.
    """
    rest = iter(words)
    for word in rest:
        if word == "--":
            yield from (("", other) for other in rest)
        elif word.startswith("--"):
            yield _long(options, word[2:], rest)
        elif word.startswith("-") and len(word) > 1:
            yield from _short(options, word[1:], rest)
        else:
            yield "", word


def _long(options: Sequence[Option], word: str, rest: Iterator[str]) -> tuple[str, str]:
    name, equals, argument = word.partition("=")
    exact = [option for option in options if option.name == name]
    found = exact or [option for option in options if option.name.startswith(name)]
    if not found:
        raise OptionError(f"unrecognized option '--{name}'")
    if len(found) > 1:
        names = " ".join(f"'--{option.name}'" for option in found)
        raise OptionError(f"option '--{name}' is ambiguous; possibilities: {names}")
    option = found[0]
    if option.argument is None:
        if equals:
            raise OptionError(f"option '--{option.name}' doesn't allow an argument")
        return option.letter, ""
    if equals:
        return option.letter, argument
    following = next(rest, None)
    if following is None:
        raise OptionError(f"option '--{option.name}' requires an argument")
    return option.letter, following


def _short(options: Sequence[Option], letters: str, rest: Iterator[str]) -> Iterator[tuple[str, str]]:
    while letters:
        letter, letters = letters[0], letters[1:]
        option = next((each for each in options if each.letter == letter), None)
        if option is None:
            raise OptionError(f"invalid option -- '{letter}'")
        if option.argument is None:
            yield letter, ""
            continue
        argument = letters or next(rest, None)
        if argument is None:
            raise OptionError(f"option requires an argument -- '{letter}'")
        yield letter, argument
        return
