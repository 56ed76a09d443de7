"""Users of locust: a short run of a scenario has plausible statistics, and names failures as AMQP does.

locust runs in a process of its own, because it patches the standard library.
"""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.system.router import ROOT, RouterProcess

SECONDS = 60  # maximum; a run ends when enough requests were counted
FAILING_SECONDS = 3  # duration of a run that counts no requests
pytestmark = pytest.mark.long


def run(
    router: RouterProcess, where: Path, *more: str, enough: dict[tuple[str, str], int] | None = None
) -> tuple[int, dict[tuple[str, str], int]]:
    """Run the standalone scenario until `enough` of each (type, name) was counted, or for FAILING_SECONDS without it.

    Return locust's exit status, and the number of requests by type and name.
    """
    files = [str(ROOT / "loadtests" / "scenarios" / "standalone.py")]
    environment = dict(os.environ)
    if enough is not None:
        files.append(str(Path(__file__).with_name("locust_stop.py")))
        environment["ENOUGH"] = json.dumps([[*key, number] for key, number in enough.items()])
    seconds = FAILING_SECONDS if enough is None else SECONDS
    words = [sys.executable, "-m", "locust", "-f", ",".join(files), "--headless", "--only-summary"]
    words += ["--users", "19", "--spawn-rate", "19", "--run-time", f"{seconds}s", "--csv", str(where / "load")]
    words += ["--host", f"amqp://127.0.0.1:{router.port}", *more]
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=110, check=False)
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, {key: int(row["Request Count"]) for key, row in rows(where / "load_stats.csv").items()}


def rows(file: Path) -> dict[tuple[str, str], dict[str, str]]:
    """Return a table of locust by type (or method) and name."""
    with file.open() as lines:
        return {(row.get("Type") or row.get("Method") or "", row["Name"]): row for row in csv.DictReader(lines)}


def test_statistics_of_standalone_run_are_plausible(router: RouterProcess, tmp_path: Path) -> None:
    enough = {
        ("send", "balanced/load"): 100,
        ("send", "multicast/load"): 20,
        ("request", "closest/service"): 20,
        ("connect", "StandaloneShortConnection"): 2,
    }
    status, counts = run(router, tmp_path, enough=enough)
    assert status == 0
    assert rows(tmp_path / "load_failures.csv") == {}
    sent, received = counts["send", "balanced/load"], counts["receive", "balanced/load"]
    # Messages in transit at the end are counted on one side only.
    assert abs(sent - received) <= 60
    assert counts["receive", "multicast/load"] > counts["send", "multicast/load"]
    assert all(float(row["Max Response Time"]) < 30_000 for row in rows(tmp_path / "load_stats.csv").values())


def test_locust_processes_share_the_load(router: RouterProcess, tmp_path: Path) -> None:
    enough = {("send", "balanced/load"): 100, ("receive", "balanced/load"): 100}
    status, counts = run(router, tmp_path, "--processes", "2", "--rate", "30", enough=enough)
    assert status == 0
    assert all(counts[key] >= number for key, number in enough.items())


def test_failures_are_named(router: RouterProcess, tmp_path: Path) -> None:
    status, _ = run(router, tmp_path, "--address-prefix", "unavailable/")
    assert status == 1
    failures = rows(tmp_path / "load_failures.csv")
    assert {row["Error"] for row in failures.values()} == {
        "RefusedByPeer('link detached: amqp:not-found: Node not found')"
    }
    assert ("connect", "StandaloneQueueSender") in failures
