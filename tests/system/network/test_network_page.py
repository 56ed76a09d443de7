"""Walk through docs/user/network.md with the files of conf/network; only the ports differ."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.networks import CONVERGENCE, ports
from tests.system.router import ROOT, RouterProcess, poll
from tests.system.tools import ToolResult, environment

PAGE = ROOT / "docs" / "user" / "network.md"
SLUICE = ROOT / ".venv" / "bin" / "sluice"
#: Ports that the page and the files use.
PAGE_PORTS = ("5701", "5702", "5703", "5711", "5712")


class NetworkPageReader:
    """Reader of the page who runs its commands and programs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ports = dict(zip(PAGE_PORTS, map(str, ports(len(PAGE_PORTS))), strict=True))
        self.routers: dict[str, RouterProcess] = {}
        self.scripts: list[subprocess.Popen[str]] = []
        self.commands: list[str] = []
        self.blocks: list[str] = []
        for block in re.findall(r"(?:(?:^    .*)?\n)+", PAGE.read_text(), re.MULTILINE):
            text = "\n".join(line[4:] for line in block.strip("\n").splitlines())
            if text.startswith("sluice "):
                self.commands += text.split("\n\n")[0].splitlines()
            elif "import" in text:
                self.blocks.append(text)

    def with_ports(self, text: str) -> str:
        return re.sub("|".join(PAGE_PORTS), lambda match: self.ports[match.group()], text)

    def start(self, command: str) -> None:
        """Start the router of a command `sluice run -c conf/network/X.conf`."""
        path = ROOT / command.split()[-1]
        name = path.stem
        folder = self.folder / name
        folder.mkdir()
        self.routers[name] = router = RouterProcess(folder, (), text=self.with_ports(path.read_text()))
        router.start()

    def run(self, command: str) -> ToolResult:
        """Run any other command of the page."""
        words = self.with_ports(command).split()[1:]
        done = subprocess.run(
            [str(SLUICE), *words], env=environment(), capture_output=True, text=True, timeout=CONVERGENCE, check=False
        )
        return ToolResult(done.returncode, done.stdout, done.stderr)

    def script(self, text: str) -> Path:
        """Start a program of the page; return the file that it writes to."""
        output = self.folder / f"script{len(self.scripts)}"
        with output.open("w") as file:
            command = [sys.executable, "-c", self.with_ports(text)]
            self.scripts.append(subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, text=True))
        return output

    def nodes(self, command: str) -> dict[str, str]:
        """Return the next hop of each router from the output of `-n`."""
        lines = self.run(command).out.splitlines()
        rows = [line.split() for line in lines if re.match(r"  [ABC] ", line)]
        return {row[0]: row[1] for row in rows}

    def stop(self) -> None:
        for script in self.scripts:
            script.kill()
            script.wait()
        for router in self.routers.values():
            router.stop()


@pytest.fixture
def reader(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[NetworkPageReader]:
    new_reader = NetworkPageReader(tmp_path)
    yield new_reader
    request.node.routers = list(new_reader.routers.values())
    new_reader.stop()


def count(output: Path) -> int:
    """Return the number of messages printed so far."""
    return sum(line.isdigit() for line in output.read_text().splitlines())


@pytest.mark.long
def test_network_page_commands_work_as_written(reader: NetworkPageReader) -> None:
    runs, others = reader.commands[:3], reader.commands[3:]
    show_nodes, explain, delete, show_nodes_again, create, ask_c, ask_all = others
    for command in runs:
        reader.start(command)
    direct = {"A": "(self)", "B": "-", "C": "-"}
    poll(lambda: reader.nodes(show_nodes) == direct, "the three have found each other", CONVERGENCE)

    receiving, sending = reader.blocks
    output = reader.script(receiving)
    reader.script(sending)
    poll(lambda: count(output) > 3, "messages arrive", CONVERGENCE)
    assert "Path: A -> B\n" in reader.run(explain).out

    assert reader.run(delete).code == 0
    poll(lambda: reader.nodes(show_nodes_again) == {**direct, "B": "C"}, "A reaches B by way of C", CONVERGENCE)
    before = count(output)
    poll(lambda: count(output) > before + 3, "messages arrive by way of C", CONVERGENCE)
    assert "Path: A -> C -> B\n" in reader.run(explain).out

    assert reader.run(create).code == 0
    poll(lambda: reader.nodes(show_nodes) == direct, "the direct way is taken again", CONVERGENCE)
    done = reader.run(ask_c)
    assert done.code == 0
    assert "inter-router" in done.out
    every = reader.run(ask_all)
    assert every.code == 0
    answered = re.findall(r"^Router  (\w)$", every.out, re.MULTILINE)
    # The other routers are in the order in which A met them.
    assert (answered[0], sorted(answered)) == ("A", ["A", "B", "C"])

    numbers = [int(line) for line in output.read_text().splitlines() if line.isdigit()]
    assert numbers == sorted(set(numbers))
