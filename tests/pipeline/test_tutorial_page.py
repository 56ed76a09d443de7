"""Walk through docs/user/pipeline-tutorial.md; only the folder, the port and the environment differ."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
from tests.pipeline.java import environment
from tests.system.networks import ports
from tests.system.router import ROOT, poll

PAGE = ROOT / "docs" / "user" / "pipeline-tutorial.md"
PATIENCE = 600  # seconds for one block, on a machine that is busy with other tests
BINARIES = ROOT / ".venv" / "bin"

pytestmark = [pytest.mark.long, pytest.mark.timeout(2400)]


class TutorialReader:
    """Reader who pastes the blocks of the page into terminals, one after the other."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (port,) = ports(1)
        text = PAGE.read_text("utf-8").replace("5672", str(port)).replace("/tmp/orders", str(folder))
        self.blocks = re.findall(r"^```sh\n(.*?)^```$", text, re.M | re.S)
        self.running: list[subprocess.Popen[str]] = []

    def next_block(self, words: str) -> str:
        """Return the next block of the page, which must have these words."""
        block: str = self.blocks.pop(0)
        assert words in block
        return block

    def paste(self, block: str) -> str:
        """Run a block that ends; return what it prints."""
        process = subprocess.Popen(
            ["bash", "-e", "-c", block], cwd=self.folder, env=self._environment(), stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True, start_new_session=True,
        )  # fmt: skip
        try:
            printed, _ = process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:  # a command in the background waits, or the block is too slow
            os.killpg(process.pid, signal.SIGKILL)
            printed, _ = process.communicate()
            raise AssertionError(f"the block did not end: {printed}") from None
        assert process.returncode == 0, printed
        return printed

    def start(self, block: str, ready: str) -> None:
        """Run a block whose last command keeps running; return when it has printed `ready`."""
        *before, last = block.rstrip().splitlines()
        printed = self.folder / f"terminal-{len(self.running)}"
        with printed.open("w") as file:
            process = subprocess.Popen(
                ["bash", "-e", "-c", "\n".join([*before, f"exec {last}"])], cwd=self.folder, env=self._environment(),
                stdout=file, stderr=file, stdin=subprocess.DEVNULL, text=True,
            )  # fmt: skip
        self.running.append(process)
        poll(lambda: ready in printed.read_text() or process.poll() is not None, ready, PATIENCE)
        assert process.poll() is None, printed.read_text()

    def stop(self) -> None:
        """End what runs, the last first, as Ctrl-C does."""
        for process in reversed(self.running):
            process.terminate()
            process.wait(PATIENCE)

    def _environment(self) -> dict[str, str]:
        variables = environment()
        return {**variables, "PATH": f"{BINARIES}:{variables['PATH']}"}


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[TutorialReader]:
    found = TutorialReader(tmp_path)
    yield found
    found.stop()


def test_tutorial_page_commands_work_as_written(java_runs: None, reader: TutorialReader) -> None:
    install = reader.next_block("pip install 'sluice-router[pipeline]'")
    reader.paste(install.splitlines()[-1])
    reader.start(reader.next_block("sluice run"), "Listening on ")
    reader.start(reader.next_block("sluice pipeline land"), "landing orders in landing as ")
    send = reader.paste(reader.next_block("send.py"))
    assert send == "1000 orders are on the disk\n"
    assert '{"order": ' in reader.paste(reader.next_block("--show 5"))
    assert re.search(r"^1000 messages in ", reader.paste(reader.next_block("--once")), re.M)
    again = reader.paste(reader.next_block("python send.py\nsluice pipeline query"))
    assert re.search(r"^1000 messages, 1000 of them repeated in ", again, re.M)
    assert reader.paste(reader.next_block("num_rows")) == "1000 rows\n"
    lines = reader.paste(reader.next_block("receive.py")).splitlines()
    received = {line for line in lines if line.startswith("order-")}
    assert 'order-149 {"order": 149, "amount": 49}' in received
    assert len(received) == 3
    assert not reader.blocks
