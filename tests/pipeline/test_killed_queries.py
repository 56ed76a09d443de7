"""`sluice pipeline query`, whose driver is killed at random moments, with random limits and triggers: its table."""

from __future__ import annotations

import contextlib
import json
import random
import subprocess
from collections import Counter
from pathlib import Path

import psutil
import pyarrow.dataset as ds
import pytest

pytest.importorskip("pyspark")
from sluice.pipeline.segments import Landing, LandingLog
from tests.pipeline.java import environment
from tests.pipeline.landers import COMMAND
from tests.pipeline.segments import land, numbered
from tests.system.router import ROOT, poll

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

KILLS = 2
WINDOW = 5  # seconds
STEP = 500  # ms between segments of a log
ROWS = 10
START = 1_767_323_045_000
PATIENCE = 240  # seconds for one run of a query
#: Failure of Spark on a busy machine: a Python process has 10 s to start. The query is then started again.
SLOW_START = "Python worker failed to connect back"
TRIES = 3


class UnequalLogs:
    """Landing folder with a fast log, its repetition by another lander whose clock is ahead, and a slow log."""

    def __init__(self, landing: Landing) -> None:
        self.landing = landing
        self.landed: Counter[str] = Counter()
        self.segments: Counter[LandingLog] = Counter()

    def land(self, segments: int) -> None:
        """Land so many segments in the fast log, and what lands in the others meanwhile."""
        fast, again, slow = LandingLog("one", "a"), LandingLog("two", "a"), LandingLog("one", "b")
        for _ in range(segments):
            number = self.segments[fast]
            self._land(fast, number * ROWS, ROWS, START + number * STEP)
            # Within the window, with a clock that is two seconds ahead.
            self._land(again, number * ROWS, number % ROWS + 1, START + number * STEP + 2000)
            if number % 8 == 0:
                self._land(slow, 10**6 + number, 1, START + number * STEP + 100)

    def _land(self, log: LandingLog, first: int, rows: int, landed: int) -> None:
        land(self.landing, log, self.segments[log], numbered(first, rows), landed=landed)
        self.segments[log] += 1
        self.landed.update(str(number) for number in range(first, first + rows))


class QueryProcess:
    """Process of a command that runs a query, in a session of its own."""

    def __init__(self, words: list[str], checkpoint: Path) -> None:
        self.checkpoint = checkpoint
        self.printed = checkpoint.with_name("stderr")
        with self.printed.open("w") as file:
            self.process = subprocess.Popen(words, cwd=ROOT, env=environment(), stdin=subprocess.DEVNULL, stderr=file)

    def kill_at(self, folder: str, batches: int) -> None:
        """Kill Java and Python when so many more batches are planned ("offsets") or done ("commits")."""
        path = self.checkpoint / folder
        before = count_batches(path)
        poll(
            lambda: self.process.poll() is not None or count_batches(path) >= before + batches,
            f"{batches} batches in {folder}",
            PATIENCE,
        )
        self.kill()

    def kill(self) -> None:
        """Kill Java and Python."""
        for child in self.children():
            with contextlib.suppress(psutil.NoSuchProcess):  # a child of one that was killed
                child.kill()
        self.process.kill()
        self.process.wait(60)

    def children(self) -> list[psutil.Process]:
        """Return the processes below this one, Java first."""
        try:
            found = psutil.Process(self.process.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []
        return sorted(found, key=lambda each: each.ppid() != self.process.pid)

    def finish(self) -> str:
        """Wait for the end of the query; return what it printed."""
        self.process.wait(PATIENCE)
        text = self.printed.read_text()
        print(text)
        return text


def count_batches(folder: Path) -> int:
    return sum(path.name.isdigit() for path in folder.iterdir()) if folder.is_dir() else 0


def read_ids(table: Path) -> Counter[str]:
    """Return how often each message id is in a table, as readers see it that honour `_spark_metadata`."""
    files: set[str] = set()
    for log in (table / "_spark_metadata").iterdir():
        if log.name.removesuffix(".compact").isdigit():
            files.update(Path(json.loads(line)["path"]).name for line in log.read_text().splitlines()[1:])
    rows = ds.dataset([str(table / name) for name in sorted(files)]).to_table(columns=["message_id"])
    return Counter(rows["message_id"].to_pylist())


@pytest.mark.parametrize("dedup", [False, True], ids=["plain", "dedup"])
def test_table_is_exact_after_kills_at_random_moments(java_runs: None, landing: Landing, tmp_path: Path, dedup: bool):
    seed = random.randrange(1 << 32)
    dice = random.Random(seed)
    print(f"seed {seed}")
    logs = UnequalLogs(landing)
    table, checkpoint = tmp_path / "table", tmp_path / "checkpoint"

    def run(limit: str, *trigger: str) -> QueryProcess:
        words = [*COMMAND, "query", "--path", landing.url, "--out", str(table), "--checkpoint", str(checkpoint)]
        words += [*trigger, "--option", limit, "--option", "retentionMinutes=0", "--memory", "768m"]
        words += ["--conf", "spark.sql.shuffle.partitions=2", *(["--dedup", str(WINDOW)] if dedup else [])]
        print(*words)
        return QueryProcess(words, checkpoint)

    for _ in range(KILLS):
        logs.land(dice.randint(10, 25))
        limit = dice.choice(
            [f"maxRecordsPerTrigger={dice.randint(1, 120)}", f"maxBytesPerTrigger={dice.randint(2, 30)}k"]
        )
        trigger = dice.choice([["--once"], ["--trigger", str(dice.choice([0, 0.1, 1]))]])
        run(limit, *trigger).kill_at(dice.choice(["offsets", "commits"]), dice.randint(1, 3))
    logs.land(5)
    for _ in range(TRIES):
        last = run(f"maxRecordsPerTrigger={dice.randint(50, 300)}", "--once")
        if SLOW_START not in last.finish():
            break
    assert last.process.returncode == 0
    expected = Counter(dict.fromkeys(logs.landed, 1)) if dedup else logs.landed
    assert read_ids(table) == expected
