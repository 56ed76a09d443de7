"""`sluice context`: names for routers with the options of their connection."""

import argparse
import sys
from collections.abc import Sequence
from typing import Any, Final

from sluice.router.cli.contexts import (
    OPTIONS,
    SECRETS,
    ContextError,
    Contexts,
    check_reference,
    contexts_file,
    read_contexts,
    write_contexts,
)
from sluice.router.cli.failure import REFUSED, ToolFailure, report
from sluice.router.cli.options import ManagementUrl
from sluice.router.cli.output import escape_output, one_line, to_json
from sluice.router.cli.streams import run_command

DESCRIPTION: Final = (
    "Keep URLs and connection options of routers under names, in a file of yours. Commands of sluice without -b use "
    "the router of --context, SLUICE_URL, SLUICE_CONTEXT, or the context in use, in this order."
)
_ADD: Final = "Add a context; the first one is in use from then on. Passwords are references: file:PATH or env:NAME."


def main(words: Sequence[str] | None = None, program: str = "sluice context") -> int:
    """Run the command; return the exit code."""
    options = parser(program).parse_args(words)
    command = {"add": _add, "list": _list, "use": _use, "remove": _remove}[options.command]

    def reported() -> int:
        try:
            command(options, read_contexts())
        except ContextError as error:
            report(ToolFailure(str(error)), f"{program} {options.command}")
            return REFUSED
        except OSError as error:
            report(ToolFailure(f"{error.filename or contexts_file()}: {error.strerror}"), program)
            return REFUSED
        return 0

    with escape_output():
        return run_command(reported)


def parser(program: str) -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(prog=program, description=DESCRIPTION)
    commands = made.add_subparsers(dest="command", required=True, metavar="COMMAND")
    add = commands.add_parser("add", help="add a context", description=_ADD)
    add.add_argument("name", metavar="NAME", help="name of the context")
    add.add_argument("--url", metavar="URL", required=True, help="[amqp[s]://][user@]host[:port]")
    add.add_argument("--timeout", metavar="SECS", type=float, help="seconds to wait for the connection and each answer")
    add.add_argument("--ssl-certificate", metavar="CERT", help="certificate of the client (PEM)")
    add.add_argument("--ssl-key", metavar="KEY", help="its private key (PEM)")
    add.add_argument("--ssl-trustfile", metavar="TRUSTED-CA-DB", help="authorities of the router's certificate (PEM)")
    add.add_argument("--ssl-password", metavar="REFERENCE", help="password of the key: file:PATH or env:NAME")
    add.add_argument("--sasl-mechanisms", metavar="NAMES", help="SASL mechanisms that may be used")
    add.add_argument("--sasl-username", metavar="USER", help="user name")
    add.add_argument("--sasl-password", metavar="REFERENCE", help="its password: file:PATH or env:NAME")
    add.add_argument(
        "--ssl-disable-peer-name-verify",
        action="store_true",
        default=None,
        help="do not compare the host name with the certificate; insecure",
    )
    add.add_argument("--force", action="store_true", help="replace an existing context")
    shown = commands.add_parser("list", help="list all contexts", description="List all contexts; * is the one in use.")
    shown.add_argument("--json", action="store_true", help="print them as JSON")
    use = commands.add_parser("use", help="choose the context in use", description="Choose the context in use.")
    use.add_argument("name", metavar="NAME", nargs="?", default="", help="its name; without it, none is in use")
    remove = commands.add_parser("remove", help="remove a context", description="Remove a context.")
    remove.add_argument("name", metavar="NAME", help="its name")
    return made


def _add(options: argparse.Namespace, contexts: Contexts) -> None:
    if options.name in contexts.named and not options.force:
        raise ContextError(f"context '{options.name}' exists: replace it with --force")
    try:
        url = ManagementUrl.parse(options.url)
    except ValueError as error:
        raise ContextError(str(error)) from error
    if url.password is not None:
        raise ContextError("the URL has a password: write --sasl-password file:PATH or env:NAME instead")
    given: dict[str, Any] = {name: getattr(options, name.replace("-", "_")) for name in OPTIONS}
    kept = {name: value for name, value in given.items() if value is not None}
    for name in SECRETS:
        if name in kept:
            check_reference(name, kept[name])
    contexts.named[options.name] = kept
    contexts.current = contexts.current or options.name
    write_contexts(contexts)


def _list(options: argparse.Namespace, contexts: Contexts) -> None:
    if options.json:
        rows = [{"name": name, "current": name == contexts.current, **each} for name, each in contexts.named.items()]
        print(to_json(rows, 2))
        return
    width = max(map(len, contexts.named), default=0)
    for name, each in sorted(contexts.named.items()):
        mark = "*" if name == contexts.current else " "
        print(one_line(f"{mark} {name:{width}}  {each.get('url', '')}"))


def _use(options: argparse.Namespace, contexts: Contexts) -> None:
    if options.name:
        contexts.find(options.name)
    contexts.current = options.name
    write_contexts(contexts)


def _remove(options: argparse.Namespace, contexts: Contexts) -> None:
    contexts.find(options.name)
    del contexts.named[options.name]
    if contexts.current == options.name:
        contexts.current = ""
    write_contexts(contexts)


if __name__ == "__main__":
    sys.exit(main())
