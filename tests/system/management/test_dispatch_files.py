"""Configuration files of Dispatch run unchanged, except for ports, which the kernel chooses, and log sinks."""

import re
from pathlib import Path

import pytest

from tests.system.fixtures import Start
from tests.system.router import ROOT

FILES = sorted((ROOT / "tests" / "unit" / "router" / "config" / "dispatch").glob("*.conf"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_dispatch_file_runs_unchanged(start: Start, path: Path) -> None:
    text = re.sub(r"(?m)^( *port:).*$", r"\1 0", path.read_text()).replace("outputFile: stdout", "outputFile: stderr")
    router = start(text=text)  # waits for every listener
    assert not re.search(r"Unknown|ignoring|Error configuring|\(error\)", router.log)
