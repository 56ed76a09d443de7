"""Commands and programs of docs/user/gateway.md, with conf/gateway.conf and the RabbitMQ of the tests."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.brokers import BrokerProcess
from tests.interop.conftest import ClientLauncher
from tests.system.router import ROOT, RouterProcess, command

#: Starting the brokers takes half a minute of processor time.
pytestmark = pytest.mark.long

PAGE = ROOT / "docs" / "user" / "gateway.md"
CLIENTS_PORT = "5772"  # the router's port for clients in conf/gateway.conf and on the page


@pytest.fixture
def gateway(rabbitmq: BrokerProcess, proton: ClientLauncher, tmp_path: Path) -> Iterator[RouterProcess]:
    """Router with conf/gateway.conf, in which only the ports of router and broker are replaced."""
    assert proton("durable_queue", rabbitmq.port, "orders").result() is True
    text = (ROOT / "conf" / "gateway.conf").read_text()
    assert text.count("port: 5672") == text.count(f"port: {CLIENTS_PORT}") == 1
    text = text.replace("port: 5672", f"port: {rabbitmq.port}").replace(f"port: {CLIENTS_PORT}", "port: 0")
    router = RouterProcess(tmp_path, [], text=text)
    router.start()
    yield router
    router.stop()


def page_blocks(start: str) -> list[str]:
    """Return the indented blocks of the page that start with `start`. A block may contain blank lines."""
    parts = re.findall(r"(?:^ {4}.*\n|^\n(?= {4}))+", PAGE.read_text(), re.MULTILINE)
    return [block for part in parts if (block := textwrap.dedent(part).lstrip("\n")).startswith(start)]


def run_command(words: list[str], code: str | None = None) -> str:
    """Run a command and return its output. Raises AssertionError if the command fails."""
    done = subprocess.run(words, input=code, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_gateway_page_commands_work(gateway: RouterProcess) -> None:
    port = str(gateway.ports["clients"])
    gateway.wait(lambda: gateway.log.count("Auto Link Activated 'autoLink/") == 2, "both auto links are active")
    gateway.wait(lambda: gateway.log.count("Link Route Activated 'linkRoute/") == 2, "both link routes are active")
    (looks,) = page_blocks("sluice stat")
    shown = [run_command([*command(), *line.replace(CLIENTS_PORT, port).split()[1:]]) for line in looks.splitlines()]
    assert [text.count("active") for text in shown[:2]] == [2, 2]
    programs = [block.replace(CLIENTS_PORT, port) for block in page_blocks("from proton")]
    assert [run_command([sys.executable, "-"], program) for program in programs] == ["", "one\n", "two\n"]
