"""`sluice pipeline publish` with duplicateIds=artemis, killed at random moments: Artemis keeps each row once.

So it does with transactions=task, where a task that was killed has left nothing, or everything.
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
from tests.interop.brokers import BrokerProcess
from tests.interop.gateway import connector, coordinator, link_routes
from tests.pipeline.conftest import java_runs
from tests.pipeline.landers import COMMAND
from tests.pipeline.receiving import ReceivingThread
from tests.pipeline.test_killed_publishers import ROWS, GrowingTable
from tests.pipeline.test_killed_queries import PATIENCE, SLOW_START, TRIES, QueryProcess, count_names
from tests.system.router import RouterProcess, listener, poll

__all__ = ["java_runs"]
pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

KILLS = 2
FILES = 3  # files that are added before each run


@pytest.mark.parametrize("transactions", ["none", "task"])
def test_broker_keeps_each_row_of_a_killed_publisher_once(
    java_runs: None, artemis: BrokerProcess, tmp_path: Path, transactions: str
) -> None:
    """A batch of 6,000 rows, part of which the broker has, is sent again."""
    seed = random.randrange(1 << 32)
    dice = random.Random(seed)
    print(f"seed {seed}")
    address = f"published.{transactions}"
    (tmp_path / "router").mkdir()
    sections = [listener(), connector(artemis), *link_routes("published", artemis), coordinator(artemis)]
    router = RouterProcess(tmp_path / "router", sections, 1)
    router.start()
    try:
        router.wait(lambda: router.log.count("Link Route Activated") == 3, "link routes are active")
        url = f"amqp://127.0.0.1:{router.port}"
        table, checkpoint = GrowingTable(tmp_path / "table"), tmp_path / "checkpoint"
        words = [*COMMAND, "publish", "--table", str(table.path), "--url", url, "--address", address, "--follow"]
        words += ["--once", "--checkpoint", str(checkpoint), "--memory", "768m", "--option", "duplicateIds=artemis"]
        words += ["--option", "maxInFlight=50", "--option", f"transactions={transactions}"]
        repeated = 0

        def pending() -> int:
            """Return the number of batches that were begun and are not done."""
            return count_names(checkpoint / "offsets", ("",)) - count_names(checkpoint / "commits", ("",))

        with ReceivingThread(url, address) as receiver:
            for _ in range(KILLS):
                table.add(FILES)
                running, before = QueryProcess(words, checkpoint), len(receiver.messages)
                sent = dice.randint(1, FILES * ROWS // 2)
                # Messages of a transaction become visible together: wait for none of them in half of the runs.
                hidden = transactions == "task" and not pending() and dice.random() < 0.5
                poll(
                    lambda: (
                        (hidden and pending() > 0)  # noqa: B023
                        or len(receiver.messages) >= before + sent  # noqa: B023
                        or running.process.poll() is not None  # noqa: B023
                    ),
                    f"{sent} more messages",
                    PATIENCE,
                )
                running.kill()
                repeated += pending()
            for _ in range(TRIES):
                last = QueryProcess(words, checkpoint)
                if SLOW_START not in last.finish():
                    break
            assert last.process.returncode == 0
            messages = receiver.wait(table.rows)
        copies = Counter(str(each.body) for each in messages)
    finally:
        router.stop()
    assert copies == Counter(str(number) for number in range(table.rows))
    assert repeated, "no run was killed within a batch"
