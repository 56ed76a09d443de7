"""Walk through docs/user/network.md with the files of conf/network; only the ports differ."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.network import CONVERGENCE, ports
from tests.system.router import ROOT, Router, poll
from tests.system.tools import Done, environment

PAGE = ROOT / "docs" / "user" / "network.md"
SLUICE = ROOT / ".venv" / "bin" / "sluice"
#: Ports that the page and the files use.
NAMED = ("5701", "5702", "5703", "5711", "5712")


class Walk:
    """Reader of the page who runs its commands and programs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ports = dict(zip(NAMED, map(str, ports(len(NAMED))), strict=True))
        self.routers: dict[str, Router] = {}
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
        return re.sub("|".join(NAMED), lambda match: self.ports[match.group()], text)

    def start(self, command: str) -> None:
        """Start the router of a command `sluice run -c conf/network/X.conf`."""
        path = ROOT / command.split()[-1]
        name = path.stem
        folder = self.folder / name
        folder.mkdir()
        self.routers[name] = router = Router(folder, (), text=self.with_ports(path.read_text()))
        router.start()

    def run(self, command: str) -> Done:
        """Run any other command of the page."""
        words = self.with_ports(command).split()[1:]
        done = subprocess.run(
            [str(SLUICE), *words], env=environment(), capture_output=True, text=True, timeout=CONVERGENCE, check=False
        )
        return Done(done.returncode, done.stdout, done.stderr)

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

    def end(self) -> None:
        for script in self.scripts:
            script.kill()
            script.wait()
        for router in self.routers.values():
            router.stop()


@pytest.fixture
def walk(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Walk]:
    made = Walk(tmp_path)
    yield made
    request.node.routers = list(made.routers.values())
    made.end()


def count(output: Path) -> int:
    """Return the number of messages printed so far."""
    return sum(line.isdigit() for line in output.read_text().splitlines())


@pytest.mark.long
def test_the_page(walk: Walk) -> None:
    runs, others = walk.commands[:3], walk.commands[3:]
    look, explain, delete, look_again, create, ask_c, ask_all = others
    for command in runs:
        walk.start(command)
    direct = {"A": "(self)", "B": "-", "C": "-"}
    poll(lambda: walk.nodes(look) == direct, "the three have found each other", CONVERGENCE)

    receiving, sending = walk.blocks
    output = walk.script(receiving)
    walk.script(sending)
    poll(lambda: count(output) > 3, "messages arrive", CONVERGENCE)
    assert "Path: A -> B\n" in walk.run(explain).out

    assert walk.run(delete).code == 0
    poll(lambda: walk.nodes(look_again) == {**direct, "B": "C"}, "A reaches B by way of C", CONVERGENCE)
    before = count(output)
    poll(lambda: count(output) > before + 3, "messages arrive by way of C", CONVERGENCE)
    assert "Path: A -> C -> B\n" in walk.run(explain).out

    assert walk.run(create).code == 0
    poll(lambda: walk.nodes(look) == direct, "the direct way is taken again", CONVERGENCE)
    done = walk.run(ask_c)
    assert done.code == 0
    assert "inter-router" in done.out
    every = walk.run(ask_all)
    assert every.code == 0
    answered = re.findall(r"^Router  (\w)$", every.out, re.MULTILINE)
    # The other routers are in the order in which A met them.
    assert (answered[0], sorted(answered)) == ("A", ["A", "B", "C"])

    numbers = [int(line) for line in output.read_text().splitlines() if line.isdigit()]
    assert numbers == sorted(set(numbers))
