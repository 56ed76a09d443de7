"""Query with a full disk: it exits with the reason, and continues where it stopped once there is room."""

from __future__ import annotations

import json
import resource
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

pytest.importorskip("pyspark")
import pyarrow.dataset as ds

from sluice.pipeline.segments import Landing, LandingLog
from tests.pipeline.java import environment
from tests.pipeline.landers import COMMAND
from tests.pipeline.segments import land, numbered
from tests.system.router import ROOT

ROWS = 50
PATIENCE = 180.0  # seconds for two starts of Java on a busy machine
LOG = LandingLog("one", "a")


@contextmanager
def query_process(landing: Landing, tmp_path: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    """Process of `sluice pipeline query` from the landing folder into a table."""
    where = ["--out", str(tmp_path / "table"), "--checkpoint", str(tmp_path / "checkpoint")]
    process = subprocess.Popen(
        [*COMMAND, "query", "--path", landing.url, *where, "--memory", "512m", "--trigger", "0.1", *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
        cwd=ROOT,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def java_of(process: subprocess.Popen[str]) -> int:
    (found,) = (each for each in psutil.Process(process.pid).children(recursive=True) if each.name() == "java")
    return found.pid


def wait_rows(tmp_path: Path, count: int, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + PATIENCE
    while len(bodies(tmp_path)) < count:
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline, f"{len(bodies(tmp_path))} of {count} rows"
        time.sleep(0.2)


def bodies(tmp_path: Path) -> list[bytes]:
    """Return the bodies that readers of the table see, in the files that its log names."""
    found = []
    for file in sorted((tmp_path / "table" / "_spark_metadata").glob("[0-9]*")):
        names = [json.loads(line)["path"].removeprefix("file://") for line in file.read_text().splitlines()[1:]]
        if names:
            found += ds.dataset(names).to_table(columns=["body"]).column("body").to_pylist()
    return found


@pytest.mark.long
@pytest.mark.timeout(3 * PATIENCE)
def test_full_disk_ends_a_query_and_loses_nothing(java_runs: None, landing: Landing, tmp_path: Path) -> None:
    land(landing, LOG, 0, numbered(0, ROWS))
    with query_process(landing, tmp_path) as first:
        wait_rows(tmp_path, ROWS, first)
        # No file of the process may grow further, neither the checkpoint's nor the table's.
        resource.prlimit(java_of(first), resource.RLIMIT_FSIZE, (1, 1))
        land(landing, LOG, 1, numbered(ROWS, ROWS))
        _, output = first.communicate(timeout=PATIENCE)
    assert first.returncode == 1
    (line,) = [each for each in output.splitlines() if each.startswith("sluice pipeline query: ")]
    assert "File too large, for the checkpoint" in line
    land(landing, LOG, 2, numbered(2 * ROWS, ROWS))
    with query_process(landing, tmp_path, "--once") as second:
        _, output = second.communicate(timeout=PATIENCE)
    assert second.returncode == 0, output
    assert sorted(bodies(tmp_path), key=int) == [str(n).encode() for n in range(3 * ROWS)]
