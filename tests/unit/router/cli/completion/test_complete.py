"""`sluice complete`: names that a router knows, for completion scripts."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from sluice.router.cli.client import ManagementClient
from sluice.router.cli.completion.complete import LIMIT, lines, named_target, names
from sluice.router.cli.manage import long_type, short_type
from sluice.router.config.schema import SCHEMA
from tests.unit.router.cli.commands import ROOT
from tests.unit.router.cli.node import PREFIX, ScriptedManagementNode, rows_node

#: Time in s that a busy machine may need to start the command.
START = 30.0
TABLES: dict[str, list[dict[str, Any]]] = {
    "router.address": [
        {"name": "M0orders eu", "distribution": "balanced"},
        {"name": "M0$(touch ran)", "distribution": "closest"},
        {"name": "M0\x1b[31mred", "distribution": "closest"},
        {"name": "M0two\nlines", "distribution": "closest"},
        {"name": "M0-rf", "distribution": "closest"},
        {"name": "M0", "distribution": "closest"},
        {"name": "Lqdhello", "distribution": "flood"},
        {"name": None, "distribution": "closest"},
    ],
    "connection": [
        {"identity": "7", "container": "bill\x1b[2J\ting", "host": "h:1", "role": "normal"},
        {"identity": "8", "container": "E1", "host": "h:2", "role": "edge"},
    ],
    "router.node": [{"id": "A"}, {"id": "B"}],
}
CALLS: dict[str, Any] = {"GET-TYPES": {f"{PREFIX}listener": [], f"{PREFIX}router.link": [], "org.amqp.management": []}}
EXPECTED = {
    "addresses": ["$(touch ran)\tclosest", "orders eu\tbalanced"],
    "connections": ["7\tbill\\x1b[2J\\ting h:1", "8\tE1 h:2"],
    "routers": ["A\trouter", "B\trouter"],
    "edge-routers": ["E1\th:2"],
    "types": ["link\trouter.link", "listener\tlistener", "org.amqp.management\torg.amqp.management"],
}


def complete(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "sluice.router.cli.main", "complete", *words],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=START,
    )


@pytest.fixture
def node() -> Iterator[ScriptedManagementNode]:
    made = rows_node(TABLES, CALLS)
    yield made
    made.stop()


@pytest.mark.parametrize("kind", EXPECTED)
def test_names_of_each_kind_are_those_of_the_router(node: ScriptedManagementNode, kind: str) -> None:
    with ManagementClient(named_target(["-b", node.url])) as client:
        assert sorted(lines(names(kind, client))) == EXPECTED[kind]


@pytest.mark.starts
def test_complete_prints_names_of_router_of_command_line(node: ScriptedManagementNode) -> None:
    words = ["sluice", "explain", "--limit", "5", "--sasl-mechanisms='ANONYMOUS'", "-b", f'"{node.url}"', "-x", "--"]
    done = complete("--quoted", "addresses", *words)
    assert (done.returncode, done.stdout.splitlines(), done.stderr) == (0, EXPECTED["addresses"], "")


@pytest.mark.starts
@pytest.mark.parametrize(
    "words",
    [
        ["addresses", "qdstat", "-b", "127.0.0.1:1"],
        ["--quoted", "addresses", "qdstat", "-b", "'open"],
        ["nonsense"],
    ],
)
def test_unusable_command_line_prints_nothing(words: list[str]) -> None:
    done = complete(*words)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("words", [["-b", "http://x"], ["-b", "$URL:x"], ["-b"], ["--sasl-password-file", "/missing"]])
def test_unusable_target_is_refused(words: list[str]) -> None:
    with pytest.raises((SystemExit, ValueError, OSError)):
        named_target(words)


@pytest.mark.starts
def test_silent_router_ends_complete_after_its_limit() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        began = time.monotonic()
        done = complete("addresses", "qdstat", "-t", "60", "-b", f"127.0.0.1:{silent.getsockname()[1]}")
        took = time.monotonic() - began
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert LIMIT <= took < START / 2


def test_lines_with_control_characters_or_dash_are_left_out() -> None:
    found = ["ok", "a b", "\x1b]0;x\x07", "a\tb", "a\nb", "a\u202eb", "a\u2028b", "\x85", "--help", ""]
    assert lines((name, "d") for name in found) == {"ok\td", "a b\td"}


def test_short_types_stand_for_the_types_of_the_schema() -> None:
    for each in SCHEMA.types.values():
        assert long_type(short_type(each.long_name)) == each.long_name
    assert short_type(f"{PREFIX}router.link") == "link"
    assert short_type(f"{PREFIX}router.config.address") == "address"
    assert short_type(f"{PREFIX}listener") == "listener"
