"""Completion script for fish."""

from collections.abc import Iterator

from sluice.router.cli.completion.values import (
    FROM_ROUTER,
    ValueCompletion,
    ValueSource,
    complete_argument,
    complete_option,
)
from sluice.router.cli.syntax import CommandSyntax

# Fish quotes the lines that a command prints as completions.
_LIBRARY = """
# Succeed if the words after the program begin with the commands $argv.
function __sluice_at
    set -l words (commandline -opc)
    test (count $words) -gt (count $argv); or return 1
    test (count $argv) -eq 0; and return 0
    set -l last (math 1 + (count $argv))
    set -l begin $words[2..$last]
    test "$begin" = "$argv"
end

# Succeed if the words after the program are the commands $argv and nothing else.
function __sluice_ends
    __sluice_at $argv; and test (count (commandline -opc)) -eq (math 1 + (count $argv))
end

# Print names of kind $argv[1] that a router knows.
function __sluice_names
    command sluice complete $argv[1] (commandline -opc) </dev/null 2>/dev/null
end
"""


def fish_script(programs: tuple[CommandSyntax, ...]) -> str:
    """Return the script for some programs."""
    names = ", ".join(program.name for program in programs)
    parts = [f"# Completion of {names} for fish. Made by `sluice completion fish`.", _LIBRARY.rstrip("\n")]
    for program in programs:
        parts += ["", f"complete -c {program.name} -f"]
        parts += [line for command in program.walk() for line in _lines(program.name, command)]
    return "\n".join(parts) + "\n"


def _lines(program: str, command: CommandSyntax) -> Iterator[str]:
    words = command.name.split(" ")[1:]
    # Options of a command with subcommands precede the subcommand.
    at = " ".join(["__sluice_ends" if command.commands else "__sluice_at", *words])
    begin = f"complete -c {program} -n {_quote(at)}"
    for each in command.commands:
        yield f"{begin} -a {each.name.rpartition(' ')[2]} -d {_quote(each.summary)}"
    for option in command.options:
        names = (f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names)
        value = ""
        if option.value and not option.optional_value:
            value = _action(complete_option(command, option)) or " -x"
        yield f"{begin} {' '.join(names)}{value} -d {_quote(option.help)}"
    # Fish does not count arguments: the completions of the first one are offered for all.
    for argument in command.arguments[:1]:
        action = _action(complete_argument(command, argument))
        if action:
            yield f"{begin}{action.replace(' -x', '').replace(' -r', '')}"


def _action(completion: ValueCompletion) -> str:
    if completion.source is ValueSource.FILES:
        return " -r -F"
    if completion.source is ValueSource.DIRECTORIES:
        return " -x -a '(__fish_complete_directories)'"
    if completion.source is ValueSource.WORDS:
        return f" -x -a {_quote(' '.join(completion.words))}"
    if completion.source in FROM_ROUTER:
        return f" -x -a '(__sluice_names {completion.source})'"
    return ""


def _quote(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
