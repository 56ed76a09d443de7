"""`sluice config`: show, save and compare the configuration of a running router."""

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from typing import Any, Final

from sluice.router.cli.client import BadRequestStatus, ManagementClient
from sluice.router.cli.failure import REFUSED
from sluice.router.cli.options import Parser, add_connection_options, add_target_options, target
from sluice.router.cli.output import to_json
from sluice.router.cli.tool import run_tool

DIFFERENT: Final = 3  # exit code
_SHOW: Final = (
    "Print the configuration that a router runs with, as a file that starts the same router. Passwords are left out, "
    "unless they are references such as file:PATH."
)
_SAVE: Final = (
    "Write the configuration that a router runs with to a file on this machine, in JSON syntax if its name ends in "
    ".json. Comments of a replaced file are lost; it is kept as FILE.bak."
)
_DIFF: Final = (
    "Show how the configuration that a router runs with differs from its configuration file, or from FILE on this "
    "machine: what management has changed, and what a reload or restart would undo. The exit code is 0 without "
    "difference, 3 with one."
)


def main(words: Sequence[str] | None = None, program: str = "sluice config") -> int:
    """Run the command; return the exit code."""
    options = parser(program).parse_args(words)
    command = {"show": _show, "save": _save, "diff": _diff}[options.command]
    return run_tool(lambda: command(options), f"{program} {options.command}", options)


def parser(program: str) -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(prog=program, description="The configuration of a running router.")
    commands = made.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=_Verb)
    show = commands.add_parser("show", help="print it as a file", description=_SHOW)
    show.add_argument("--json", action="store_true", help="print it in JSON syntax")
    save = commands.add_parser("save", help="write it to a file", description=_SAVE)
    save.add_argument("file", metavar="FILE", help="file to write")
    save.add_argument("--force", action="store_true", help="replace an existing file")
    different = commands.add_parser("diff", help="compare it with a file", description=_DIFF)
    different.add_argument("file", metavar="FILE", nargs="?", help="file on this machine; default: the router's own")
    different.add_argument("--json", action="store_true", help="print the differences as JSON")
    for verb in (show, save, different):
        add_target_options(verb)
        add_connection_options(verb)
    return made


class _Verb(Parser):
    """Parser of one verb."""

    def __init__(self, prog: str, description: str, **_: Any) -> None:
        super().__init__(prog, description)


def _configuration(options: argparse.Namespace, **properties: bool) -> dict[str, Any]:
    """Return the answer of the router."""
    with ManagementClient(target(options)) as client:
        answer: dict[str, Any] = client.node_call("GET-CONFIGURATION", properties)
    return answer


def _show(options: argparse.Namespace) -> int:
    print(_configuration(options, json=options.json)["text"], end="")
    return 0


def _save(options: argparse.Namespace) -> int:
    path = options.file
    if os.path.exists(path) and not options.force:
        raise ValueError(f"{path} exists: replace it with --force")
    text = _configuration(options, json=path.endswith(".json"))["text"]
    _write(path, text)
    print(f"{path}: written; check it with: sluice check {path}")
    return 0


def _write(path: str, text: str) -> None:
    """Write a file completely or not at all, with the mode of the file that it replaces. Raises OSError."""
    folder = os.path.dirname(os.path.abspath(path))
    descriptor, made = tempfile.mkstemp(dir=folder, prefix=f".{os.path.basename(path)}.")
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            if os.path.exists(path):
                os.fchmod(file.fileno(), os.stat(path).st_mode & 0o777)
        if os.path.exists(path):
            os.replace(path, f"{path}.bak")
        os.replace(made, path)
    except OSError:
        os.unlink(made)
        raise


def _diff(options: argparse.Namespace) -> int:
    answer: dict[str, Any] | None
    if options.file is None:
        try:
            answer = _configuration(options, differences=True)
        except BadRequestStatus as error:  # its lines are the errors of the file
            print(error, file=sys.stderr)
            return REFUSED
    else:
        answer = _compare(options.file, _configuration(options, json=True)["text"])
        if answer is None:
            return REFUSED
    print(to_json(answer, 2) if options.json else answer["text"])
    return DIFFERENT if answer["changes"] else 0


def _compare(path: str, running: str) -> dict[str, Any] | None:
    """Return the changes from a file to the text of the running configuration. None: the file has errors, now printed.

    Both are read in the form of `render`, which has no passwords.
    """
    from sluice.router.config.diff import diff  # 60 ms that other commands do not need
    from sluice.router.config.errors import ConfigError
    from sluice.router.config.load import load, load_text
    from sluice.router.config.render import render

    try:
        configuration = load(path, files=False)
    except ConfigError as error:
        for each in error.errors:
            print(each, file=sys.stderr)
        return None
    wanted = load_text("file.json", render(configuration, json=True), files=False)
    found = diff(wanted, load_text("running.json", running, files=False))
    return {"path": path, "changes": found.as_maps(), "text": found.render_differences()}


if __name__ == "__main__":
    sys.exit(main())
