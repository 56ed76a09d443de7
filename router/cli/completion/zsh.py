"""Completion script for zsh."""

import re
import shlex
from collections.abc import Iterator

from sluice.router.cli.completion.values import (
    FROM_ROUTER,
    ValueCompletion,
    ValueSource,
    complete_argument,
    complete_option,
)
from sluice.router.cli.syntax import CommandSyntax, OptionSyntax

# Names of a router are elements of an array, which compadd quotes for the command line.
_LIBRARY = r"""
# Offer names of kind $1 that a router knows.
__sluice_names() {
    local -a names texts
    local name text
    while IFS=$'\t' read -r name text; do
        names+=("$name")
        texts+=("$name  $text")
    done < <(command sluice complete $1 "${(@Q)words[1,CURRENT-1]}" </dev/null 2>/dev/null)
    (( $#names )) && compadd -l -d texts -a names
}
"""


def zsh_script(programs: tuple[CommandSyntax, ...]) -> str:
    """Return the script for some programs. It can be a file `_sluice` in fpath, or be read by `source`."""
    names = " ".join(program.name for program in programs)
    functions = "\n".join(line for program in programs for command in program.walk() for line in _function(command))
    return f"""\
#compdef {names}
# Completion of {names.replace(" ", ", ")} for zsh. Made by `sluice completion zsh`.
{_LIBRARY}
{functions}
# Loaded from fpath, the file is the body of a function that completes $service.
if [[ $funcstack[1] == _sluice ]]; then
    __sluice_at_$service
else
{chr(10).join(f"    compdef __sluice_at_{program.name} {program.name}" for program in programs)}
fi
"""


def _function(command: CommandSyntax) -> Iterator[str]:
    name = command.name.replace(" ", "_")
    yield f"__sluice_at_{name}() {{"
    specs = [spec for option in command.options for spec in _option(command, option)]
    if not command.commands:
        for argument in command.arguments:
            place = "*:" if argument.repeated else ":"
            specs.append(f"{place}{_text(argument.name)}:{_action(complete_argument(command, argument))}")
        yield from _arguments("-s -S", specs)
        yield "}"
        return
    specs += ["1: :->command", "*:: :->rest"]
    yield "    local curcontext=$curcontext state line"
    yield "    typeset -A opt_args"
    yield from _arguments("-C", specs)
    yield "    case $state in"
    yield "        command)"
    yield "            local -a commands=("
    for each in command.commands:
        yield f"                {shlex.quote(each.name.rpartition(' ')[2] + ':' + each.summary)}"
    yield "            )"
    yield "            _describe command commands"
    yield "            ;;"
    yield "        rest)"
    yield f"            (( $+functions[__sluice_at_{name}_$line[1]] )) && __sluice_at_{name}_$line[1]"
    yield "            ;;"
    yield "    esac"
    yield "}"


def _arguments(flags: str, specs: list[str]) -> Iterator[str]:
    yield " \\\n        ".join([f"    _arguments {flags}", *(shlex.quote(spec) for spec in specs)])


def _option(command: CommandSyntax, option: OptionSyntax) -> Iterator[str]:
    """Yield the specification of each name of an option. Options that exclude each other are in parentheses."""
    excluded = list(option.names)
    for exclusion in command.exclusions:
        if option in exclusion.options:
            excluded += [name for other in exclusion.options for name in other.names if name not in excluded]
    for name in option.names:
        repeat = "*" if option.multiple else f"({' '.join(excluded)})"
        value = ""
        if option.value:
            colon = "::" if option.optional_value else ":"
            value = f"{colon}{_text(option.value)}:{_action(complete_option(command, option))}"
        joint = ("=" if name.startswith("--") else "+") if option.value and not option.optional_value else ""
        yield f"{repeat}{name}{joint}[{_text(option.help)}]{value}"


def _text(text: str) -> str:
    return re.sub(r"([\[\]:\\])", r"\\\1", text)


def _action(completion: ValueCompletion) -> str:
    if completion.source is ValueSource.FILES:
        return "_files"
    if completion.source is ValueSource.DIRECTORIES:
        return "_files -/"
    if completion.source is ValueSource.WORDS:
        return f"({' '.join(completion.words)})"
    if completion.source in FROM_ROUTER:
        return f" __sluice_names {completion.source}"  # the space omits arguments of compadd
    return " "
