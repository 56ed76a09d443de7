"""`sluice pipeline publish` with duplicateIds=artemis, killed at random moments: Artemis keeps each row once."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
from tests.interop.brokers import BrokerProcess
from tests.interop.gateway import connector, link_routes
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


def test_broker_keeps_each_row_of_a_killed_publisher_once(
    java_runs: None, artemis: BrokerProcess, tmp_path: Path
) -> None:
    """A batch of 6,000 rows, part of which the broker has, is sent again."""
    seed = random.randrange(1 << 32)
    dice = random.Random(seed)
    print(f"seed {seed}")
    address = "published.once"
    (tmp_path / "router").mkdir()
    router = RouterProcess(tmp_path / "router", [listener(), connector(artemis), *link_routes("published", artemis)], 1)
    router.start()
    try:
        router.wait(lambda: router.log.count("Link Route Activated") == 2, "link routes are active")
        url = f"amqp://127.0.0.1:{router.port}"
        table, checkpoint = GrowingTable(tmp_path / "table"), tmp_path / "checkpoint"
        words = [*COMMAND, "publish", "--table", str(table.path), "--url", url, "--address", address, "--follow"]
        words += ["--once", "--checkpoint", str(checkpoint), "--memory", "768m", "--option", "duplicateIds=artemis"]
        words += ["--option", "maxInFlight=50"]
        repeated = 0
        with ReceivingThread(url, address) as receiver:
            for _ in range(KILLS):
                table.add(FILES)
                running, before = QueryProcess(words, checkpoint), len(receiver.messages)
                sent = dice.randint(1, FILES * ROWS // 2)
                poll(
                    lambda: len(receiver.messages) >= before + sent or running.process.poll() is not None,  # noqa: B023
                    f"{sent} more messages",
                    PATIENCE,
                )
                running.kill()
                repeated += count_names(checkpoint / "offsets", ("",)) - count_names(checkpoint / "commits", ("",))
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
