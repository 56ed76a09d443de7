"""`sluice pipeline query`, whose driver is killed at random moments, with random limits and triggers: its table."""

from __future__ import annotations

import contextlib
import json
import random
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pyarrow.dataset as ds
import pytest

pytest.importorskip("pyspark")
from sluice.pipeline.segments import Landing, LandingLog
from tests.pipeline import second_engine
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

    def kill_after(self, count: Callable[[], int], more: int) -> None:
        """Kill Java and Python when a count has grown by so much: of batches that are planned, written or done."""
        before = count()
        poll(lambda: self.process.poll() is not None or count() >= before + more, f"{more} batches more", PATIENCE)
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
            query = psutil.Process(self.process.pid)
            direct = {each.pid for each in query.children()}
            found = query.children(recursive=True)
        except psutil.NoSuchProcess:
            return []
        return sorted(found, key=lambda each: each.pid not in direct)

    def finish(self) -> str:
        """Wait for the end of the query; return what it printed."""
        self.process.wait(PATIENCE)
        text = self.printed.read_text()
        print(text)
        return text


class WrittenTable:
    """Table that queries write, as its readers see it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def words(self) -> list[str]:
        """Return the arguments of the query that name the table."""
        raise NotImplementedError

    def commits(self) -> int:
        """Return a number that grows by 1 with each batch that readers can see."""
        raise NotImplementedError

    def ids(self) -> list[str]:
        """Return the message ids of all rows."""
        raise NotImplementedError

    def source(self) -> str:
        """Return the table for a FROM clause of DuckDB."""
        raise NotImplementedError


class ParquetQueryTable(WrittenTable):
    def words(self) -> list[str]:
        return ["--out", str(self.folder)]

    def commits(self) -> int:
        return count_names(self.folder / "_spark_metadata", ("",))

    def files(self) -> list[str]:
        """Return the files that the log of Spark's sink lists."""
        files: set[str] = set()
        for log in (self.folder / "_spark_metadata").iterdir():
            if log.name.removesuffix(".compact").isdigit():
                files.update(Path(json.loads(line)["path"]).name for line in log.read_text().splitlines()[1:])
        return [str(self.folder / name) for name in sorted(files)]

    def ids(self) -> list[str]:
        found: list[str] = ds.dataset(self.files()).to_table(columns=["message_id"])["message_id"].to_pylist()
        return found

    def source(self) -> str:
        return f"read_parquet({self.files()})"


class DeltaQueryTable(WrittenTable):
    def words(self) -> list[str]:
        return ["--format", "delta", "--table", str(self.folder)]

    def commits(self) -> int:
        return count_names(self.folder / "_delta_log", (".json",))

    def ids(self) -> list[str]:
        return [row["message_id"] for row in self.rows("message_id")]

    def source(self) -> str:
        return second_engine.delta(self.folder)

    def rows(self, *columns: str) -> list[dict[str, Any]]:
        """Return columns of all rows."""
        table = pytest.importorskip("deltalake").DeltaTable(str(self.folder))
        found: list[dict[str, Any]] = table.to_pyarrow_table(columns=list(columns)).to_pylist()
        return found


class IcebergQueryTable(WrittenTable):
    @property
    def catalog(self) -> dict[str, str]:
        self.folder.mkdir(exist_ok=True)
        return {"type": "sql", "uri": f"sqlite:///{self.folder}/catalog.db", "warehouse": f"file://{self.folder}"}

    def words(self) -> list[str]:
        options = [f"{name}={value}" for name, value in self.catalog.items()]
        options = [word for option in options for word in ("--catalog-option", option)]
        return ["--format", "iceberg", "--table", "test.sensors.readings", *options]

    def commits(self) -> int:
        return count_names(self.folder / "sensors" / "readings" / "metadata", (".metadata.json",))

    def ids(self) -> list[str]:
        catalog = pytest.importorskip("pyiceberg.catalog").load_catalog("test", **self.catalog)
        found = catalog.load_table("sensors.readings").scan(selected_fields=("message_id",)).to_arrow()
        ids: list[str] = found["message_id"].to_pylist()
        return ids

    def source(self) -> str:
        return second_engine.iceberg(self.catalog, "sensors.readings")


def count_names(folder: Path, endings: tuple[str, ...]) -> int:
    """Return the number of files whose names begin with a digit and have one of these endings."""
    if not folder.is_dir():
        return 0
    return sum(path.name[0].isdigit() and path.name.endswith(endings) for path in folder.iterdir())


TABLES = {"parquet": ParquetQueryTable, "delta": DeltaQueryTable, "iceberg": IcebergQueryTable}


@pytest.mark.parametrize(
    ("kind", "once"),
    [
        ("parquet", ()),
        ("parquet", ("--dedup", str(WINDOW))),
        ("delta", ()),
        ("delta", ("--unique", "address", "message_id")),
        ("delta", ("--unique", "address", "message_id", "--unique-within", f"{WINDOW}s")),
        ("iceberg", ()),
        ("iceberg", ("--unique", "address", "message_id")),
        ("iceberg", ("--unique", "address", "message_id", "--unique-within", f"{WINDOW}s")),
    ],
    ids=[
        "parquet",
        "parquet-dedup",
        "delta",
        "delta-unique",
        "delta-window",
        "iceberg",
        "iceberg-unique",
        "iceberg-window",
    ],
)
def test_table_is_exact_after_kills_at_random_moments(
    java_runs: None, landing: Landing, tmp_path: Path, kind: str, once: tuple[str, ...]
):
    seed = random.randrange(1 << 32)
    dice = random.Random(seed)
    print(f"seed {seed}")
    logs = UnequalLogs(landing)
    table, checkpoint = TABLES[kind](tmp_path / "table"), tmp_path / "checkpoint"

    def run(limit: str, *trigger: str) -> QueryProcess:
        words = [*COMMAND, "query", "--path", landing.url, *table.words(), "--checkpoint", str(checkpoint)]
        words += [*trigger, "--min-rows", "1", "--option", limit]
        words += ["--option", "deleteOnCommit=true", "--option", "retentionMinutes=0"]
        words += ["--memory", "768m", "--conf", "spark.sql.shuffle.partitions=2", *once]
        print(*words)
        return QueryProcess(words, checkpoint)

    moments = {
        "planned": lambda: count_names(checkpoint / "offsets", ("",)),
        "written": table.commits,
        "done": lambda: count_names(checkpoint / "commits", ("",)),
    }
    for _ in range(KILLS):
        logs.land(dice.randint(10, 25))
        limit = dice.choice(
            [f"maxRecordsPerTrigger={dice.randint(1, 120)}", f"maxBytesPerTrigger={dice.randint(2, 30)}k"]
        )
        trigger = dice.choice([["--once"], ["--trigger", str(dice.choice([0, 0.1, 1]))]])
        moment = dice.choice(list(moments))
        print(f"kill after a batch is {moment}")
        run(limit, *trigger).kill_after(moments[moment], dice.randint(1, 3))
    logs.land(5)
    for _ in range(TRIES):
        last = run(f"maxRecordsPerTrigger={dice.randint(50, 300)}", "--once")
        if SLOW_START not in last.finish():
            break
    assert last.process.returncode == 0
    expected = Counter(dict.fromkeys(logs.landed, 1)) if once else logs.landed
    assert Counter(table.ids()) == expected
    sums = "count(*), count(DISTINCT message_id), sum(message_id::BIGINT)"
    assert second_engine.query(f"SELECT {sums} FROM {table.source()}") == [
        (expected.total(), len(expected), sum(int(each) * count for each, count in expected.items()))
    ]
