"""Task of the sink with transactions and duplicateIds, killed again and again: Artemis keeps each row once.

A process with the publisher stands for the task. It is killed at random points before the discharge, with the discharge
on its way, or when the broker has committed and the answer is not read. Then the next process sends the rows again, as
Spark's next attempt does.
"""

from __future__ import annotations

import os
import queue
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from sluice.router.client import Accepted, Message, connect
from tests.interop.brokers import BrokerProcess
from tests.interop.gateway import connector, coordinator, link_routes
from tests.interop.trapping_proxy import MOMENTS, Trap, TrappingProxy
from tests.system.router import ROOT, RouterProcess, listener

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]

ROWS = 2000
PATIENCE = 60.0
END = "end of the rows"
KILLS = 2  # at each point
TASK = """
import sys
from sluice.pipeline.bulk_sender import MessageBatch
from sluice.pipeline.publisher import PublisherOptions
from sluice.pipeline.transactional_publisher import TransactionalPublisher
from sluice.router.client import Message
url, address, rows, ids = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4] == "ids"
options = PublisherOptions(url, address, most=50, transactions=True, duplicate_ids=ids)
with TransactionalPublisher(options) as publisher:
    publisher.send(MessageBatch.of([
        Message(str(row), durable=True, properties={"_AMQ_DUPL_ID": f"row-{row}"} if ids else {}).encode()
        for row in range(rows)
    ]))
    publisher.finish()
"""


@pytest.fixture
def proxy(artemis: BrokerProcess, tmp_path: Path) -> Iterator[TrappingProxy]:
    """Proxy in front of a router with link routes to Artemis."""
    sections = [listener(), connector(artemis), *link_routes("tx", artemis), coordinator(artemis)]
    router = RouterProcess(tmp_path, sections, 1)
    router.start()
    try:
        router.wait(lambda: router.log.count("Link Route Activated") >= 3, "link routes are active")
        made = TrappingProxy(router.port)
        yield made
        made.close()
    finally:
        router.stop()


def start_task(proxy: TrappingProxy, address: str, ids: str) -> subprocess.Popen[bytes]:
    url = f"amqp://127.0.0.1:{proxy.port}"
    return subprocess.Popen([sys.executable, "-c", TASK, url, address, str(ROWS), ids], cwd=ROOT)


def kill_task_at(proxy: TrappingProxy, address: str, ids: str, moment: str, most: int) -> None:
    """Run a task that is killed at a point of its transaction."""
    started: queue.Queue[subprocess.Popen[bytes]] = queue.Queue()
    proxy.set_trap(Trap(moment, most, lambda port: started.get(timeout=PATIENCE).kill()))
    task = start_task(proxy, address, ids)
    started.put(task)
    assert proxy.sprung.wait(PATIENCE), f"no kill at {moment}"
    assert task.wait(PATIENCE) < 0


def count_stored(broker: BrokerProcess, address: str) -> Counter[str]:
    """Take all messages that a queue has before one that is sent now."""
    found: Counter[str] = Counter()
    with connect(broker.url, timeout=PATIENCE, allow_insecure_mechs=True) as connection:
        assert connection.sender(address, timeout=PATIENCE).send(Message(END), timeout=PATIENCE) == Accepted()
        receiver = connection.receiver(address, timeout=PATIENCE)
        while (delivery := receiver.receive(PATIENCE)).message.body != END:
            found[str(delivery.message.body)] += 1
            delivery.accept()
        delivery.accept()
    return found


def each_row(copies: int) -> Counter[str]:
    return Counter({str(row): copies for row in range(ROWS)})


def test_rows_of_task_killed_at_random_points_are_stored_once(artemis: BrokerProcess, proxy: TrappingProxy) -> None:
    seed = random.randrange(1 << 32)
    dice = random.Random(seed)
    print(f"seed {seed}")
    address = f"tx.tasks.{os.urandom(4).hex()}"
    for moment in dice.sample(MOMENTS * KILLS, len(MOMENTS) * KILLS):
        most = dice.randint(1, ROWS * 50)
        print(f"killed at {moment} {most}")
        kill_task_at(proxy, address, "ids", moment, most)
    assert start_task(proxy, address, "ids").wait(PATIENCE) == 0
    assert count_stored(artemis, address) == each_row(1)


@pytest.mark.parametrize(("moment", "copies"), [("messages", 1), ("answer", 2)])
def test_rows_of_killed_task_without_ids_arrive_twice_only_after_commit(
    artemis: BrokerProcess, proxy: TrappingProxy, moment: str, copies: int
) -> None:
    address = f"tx.tasks.{os.urandom(4).hex()}"
    kill_task_at(proxy, address, "none", moment, ROWS * 10)
    assert start_task(proxy, address, "none").wait(PATIENCE) == 0
    assert count_stored(artemis, address) == each_row(copies)
