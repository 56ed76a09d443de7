"""`sluice pipeline publish --follow`, killed at random moments: its messages are those that docs/user promises.

Each row arrives at least once, its copies have one id and one body, and no row is sent again whose batch is done.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark")
from tests.pipeline.landers import COMMAND
from tests.pipeline.receiving import ReceivingThread
from tests.pipeline.test_killed_queries import PATIENCE, SLOW_START, TRIES, QueryProcess, count_names
from tests.system.router import poll

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

KILLS = 3
FILES = 3  # files that are added before each run
ROWS = 2000  # of a file
ADDRESS = "balanced/killed-publishers"


class GrowingTable:
    """Table of numbered rows, to which files are added."""

    def __init__(self, path: Path) -> None:
        path.mkdir()
        self.path = path
        self.rows = 0

    def add(self, files: int) -> None:
        for _ in range(files):
            bodies = [str(number) for number in range(self.rows, self.rows + ROWS)]
            hidden = self.path / f"_{self.rows:06}.parquet"  # Spark reads no files of such a name
            pq.write_table(pa.table({"body": bodies}), hidden)
            hidden.rename(self.path / hidden.name[1:])
            self.rows += ROWS


def test_rows_of_killed_publisher_arrive_at_least_once_with_stable_ids(java_runs: None, url: str, tmp_path: Path):
    seed = random.randrange(1 << 32)
    dice = random.Random(seed)
    print(f"seed {seed}")
    table, checkpoint = GrowingTable(tmp_path / "table"), tmp_path / "checkpoint"
    words = [*COMMAND, "publish", "--table", str(table.path), "--url", url, "--address", ADDRESS, "--follow", "--once"]
    words += ["--checkpoint", str(checkpoint), "--memory", "768m", "--option", "maxInFlight=50"]

    def run_to_end() -> None:
        for _ in range(TRIES):
            last = QueryProcess(words, checkpoint)
            if SLOW_START not in last.finish():
                break
        assert last.process.returncode == 0

    with ReceivingThread(url, ADDRESS) as receiver:
        for _ in range(KILLS):
            table.add(FILES)
            running, before = QueryProcess(words, checkpoint), len(receiver.messages)
            sent = dice.randint(1, FILES * ROWS * 3 // 2)  # a run that needs fewer ends by itself
            poll(
                lambda: len(receiver.messages) >= before + sent or running.process.poll() is not None,  # noqa: B023
                f"{sent} more messages",
                PATIENCE,
            )
            running.kill()
        table.add(FILES)
        run_to_end()
        received = len(receiver.messages)
        done = count_names(checkpoint / "commits", ("",))
        run_to_end()
        assert (len(receiver.messages), count_names(checkpoint / "commits", ("",))) == (received, done)
        messages = receiver.wait(received)

    copies: Counter[str] = Counter()
    ids: dict[str, set[object]] = defaultdict(set)
    for each in messages:
        body = str(each.body)
        copies[body] += 1
        ids[body].add(each.message_id)
    assert copies.keys() == {str(number) for number in range(table.rows)}
    assert {len(found) for found in ids.values()} == {1}
    assert len(set.union(*ids.values())) == table.rows
    print(f"{received} messages for {table.rows} rows")
    assert max(copies.values()) <= 1 + KILLS
