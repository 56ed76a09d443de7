"""`sluice completion`: print the script that completes the commands in a shell."""

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import Final

from sluice.router.cli.completion.bash import bash_script
from sluice.router.cli.completion.fish import fish_script
from sluice.router.cli.completion.zsh import zsh_script
from sluice.router.cli.programs import programs
from sluice.router.cli.syntax import CommandSyntax

DESCRIPTION: Final = (
    "Print the script that completes sluice, qdrouterd, qdstat and qdmanage in a shell. The script completes options "
    "and words and, if the router of the command line answers within a second, names of addresses, connections, "
    "routers and entity types."
)
SHELLS: Final[dict[str, Callable[[tuple[CommandSyntax, ...]], str]]] = {
    "bash": bash_script,
    "zsh": zsh_script,
    "fish": fish_script,
}


def main(words: Sequence[str] | None = None, program: str = "sluice completion") -> int:
    """Run the command; return the exit code."""
    options = parser(program).parse_args(words)
    sys.stdout.write(SHELLS[options.shell](programs()))
    return 0


def parser(program: str) -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(prog=program, description=DESCRIPTION)
    made.add_argument("shell", metavar="SHELL", choices=SHELLS, help="bash, zsh or fish")
    return made


if __name__ == "__main__":
    sys.exit(main())
