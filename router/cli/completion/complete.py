"""`sluice complete`: print names of a running router for the completion scripts of shells.

Names come from clients, so only printable names without a leading `-` are printed, one on a line, with a description
after a tab. If no router answers within a second, the command prints nothing. It never writes to standard error.
"""

import argparse
import os
import shlex
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from sluice.router.cli.client import PREFIX, ManagementClient, ManagementError
from sluice.router.cli.completion.values import FROM_ROUTER, ValueSource
from sluice.router.cli.errors import ToolError
from sluice.router.cli.manage import short_type
from sluice.router.cli.options import QueryTarget, add_connection_options, add_target_options, target
from sluice.router.cli.output import one_line
from sluice.router.cli.stat.addresses import class_of, text_of

LIMIT: Final = 1.0  # seconds for the connection and all answers
MOST: Final = 2000  # rows requested

Names = Iterator[tuple[str, str]]  # names with descriptions


def main(words: Sequence[str], program: str) -> int:
    """Print the names of one kind; return 0."""
    _discard_errors()
    try:
        options = parser(program).parse_args(words)
        given = shlex.split(" ".join(options.words)) if options.quoted else options.words
        where = replace(named_target(given), timeout=LIMIT)
    except (SystemExit, ValueError, OSError):  # an unfinished command line
        return 0
    deadline = threading.Timer(LIMIT, os._exit, (0,))  # also ends a look-up of a host name
    deadline.daemon = True
    deadline.start()
    try:
        with ManagementClient(where) as client:
            print(*sorted(lines(names(options.kind, client))), sep="\n", flush=True)
    except (ToolError, ManagementError, OSError, ValueError, LookupError, TypeError):
        return 0  # no router, or none that answers such a request
    deadline.cancel()
    return 0


def parser(program: str) -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(prog=program, add_help=False, allow_abbrev=False)
    made.add_argument("--quoted", action="store_true")  # the words have the quotes that a shell would remove
    made.add_argument("kind", choices=FROM_ROUTER)
    made.add_argument("words", nargs=argparse.REMAINDER)  # of the command line, up to the cursor
    return made


def names(kind: str, client: ManagementClient) -> Names:
    """Return the names of one kind that a router knows."""
    return _KINDS[kind](client)


def lines(found: Iterable[tuple[str, str]]) -> set[str]:
    """Return a line for each name that a shell may offer."""
    return {f"{name}\t{one_line(text)}" for name, text in found if name and name.isprintable() and name[0] != "-"}


def _discard_errors() -> None:
    """Discard standard error, also that of libraries: a message would appear within the command line."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)
    os.close(null)


def named_target(words: Sequence[str]) -> QueryTarget:
    """Return the router that a command line names. Raises SystemExit, ValueError, OSError."""
    # Contexts are for commands of `sluice`; the first word is the program.
    program = os.path.basename(words[0]) if words else ""
    made = argparse.ArgumentParser(prog=f"{program} {words[1]}" if len(words) > 1 else program, add_help=False)
    add_target_options(made, all_routers=True)
    add_connection_options(made)
    made.add_argument("--url", dest="bus")
    known, _ = made.parse_known_args([word for word in words if word != "--"])
    return target(known)


def _addresses(client: ManagementClient) -> Names:
    for row in client.rows("router.address", ["name", "distribution"], MOST):
        if class_of(row["name"]) == "mobile":
            yield text_of(row["name"]), str(row["distribution"])


def _connections(client: ManagementClient) -> Names:
    for row in client.rows("connection", ["identity", "container", "host"], MOST):
        yield str(row["identity"]), f"{row['container']} {row['host']}"


def _routers(client: ManagementClient) -> Names:
    for row in client.rows("router.node", ["id"], MOST):
        yield str(row["id"]), "router"


def _edge_routers(client: ManagementClient) -> Names:
    for row in client.rows("connection", ["container", "role", "host"], MOST):
        if row["role"] == "edge":
            yield str(row["container"]), str(row["host"])


def _types(client: ManagementClient) -> Names:
    for name in client.node_call("GET-TYPES"):
        yield short_type(name), name.removeprefix(PREFIX)


_KINDS: Final[dict[str, Callable[[ManagementClient], Names]]] = {
    ValueSource.ADDRESSES: _addresses,
    ValueSource.CONNECTIONS: _connections,
    ValueSource.ROUTERS: _routers,
    ValueSource.EDGE_ROUTERS: _edge_routers,
    ValueSource.TYPES: _types,
}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], "sluice complete"))
