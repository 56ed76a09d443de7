"""`sluice console`: open the web console of a running router in a browser, or print its URL."""

import argparse
import sys
import webbrowser
from collections.abc import Iterable, Sequence
from urllib.parse import urlsplit

from sluice.router.cli.client import ManagementClient, Row
from sluice.router.cli.options import Parser, add_connection_options, add_target_options, target
from sluice.router.cli.output import one_line, to_json
from sluice.router.cli.tool import run_tool
from sluice.router.config.entities import console_url

DESCRIPTION = (
    "Open the web console of a router in a browser. If no browser can be opened, print the URL of the console. "
    "The exit code is 1 if the router has no listener for it."
)
NONE = (
    "This router has no console: it needs a listener with `http: yes` and without `httpRootDir` (docs/user/console.md)"
)
_EVERYWHERE = ("", "0.0.0.0", "::")
_COLUMNS = ["name", "host", "port", "http", "websockets", "httpRootDir", "sslProfile"]


def main(words: Sequence[str] | None = None, program: str = "sluice console") -> int:
    """Run the command; return the exit code."""
    options = parser(program).parse_args(words)
    return run_tool(lambda: _run(options), program, options)


def parser(program: str) -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = Parser(program, DESCRIPTION)
    made.add_argument("--print", action="store_true", dest="only_print", help="print the URL, and open no browser")
    made.add_argument("--json", action="store_true", help="print the URLs as JSON, and open no browser")
    add_target_options(made)
    add_connection_options(made)
    return made


def _run(options: argparse.Namespace) -> int:
    where = target(options)
    with ManagementClient(where) as client:
        found = consoles(client.rows("listener", _COLUMNS), urlsplit(where.url.text).hostname or "")
    if options.json:
        print(to_json({"urls": found}, 2))
    if not found:
        print(NONE, file=sys.stderr)
        return 1
    if options.json:
        return 0
    if options.only_print or not webbrowser.open(found[0]):
        print("\n".join(map(one_line, found)))
    return 0


def consoles(listeners: Iterable[Row], asked: str) -> list[str]:
    """Return the URLs of consoles. `asked` is the host at which the router answered.

    Listeners with port 0 are left out: their port was chosen by the system and is only in the log.
    """
    near = "localhost" if asked in _EVERYWHERE else asked
    return [
        console_url(near if row["host"] in _EVERYWHERE else row["host"], row["port"], encrypted=bool(row["sslProfile"]))
        for row in listeners
        if row["http"] and row["websockets"] and not row["httpRootDir"] and str(row["port"]) != "0"
    ]
