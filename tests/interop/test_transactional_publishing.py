"""Publisher of the sink with transactions of Artemis, through a router: killed, or without broker or answer."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
from sluice.pipeline.bulk_sender import MessageBatch
from sluice.pipeline.errors import PermanentPublishError
from sluice.pipeline.publisher import PublisherOptions
from sluice.pipeline.transactional_publisher import TransactionalPublisher
from sluice.router.client import Accepted, ConnectionFailedError, Message, SyncConnection, connect
from tests.interop.brokers import BrokerProcess
from tests.interop.gateway import connector, coordinator, link_routes
from tests.pipeline.receiving import ReceivingThread
from tests.system.router import SETTINGS, RouterProcess, listener

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]

PATIENCE = 60.0
SILENCE = 2.0  # seconds without a message after which a queue is taken as empty
COUNT = 200
#: Program that sends messages in a transaction, reports it, and waits for its end.
HALF = """
import sys, time
from sluice.pipeline.publisher import PublisherOptions
from sluice.pipeline.transactional_publisher import TransactionalPublisher
from sluice.router.client import Message
from sluice.pipeline.bulk_sender import MessageBatch
url, address, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
with TransactionalPublisher(PublisherOptions(url, address, most=2, transactions=True)) as publisher:
    publisher.send(MessageBatch.of([Message(str(n), durable=True).encode() for n in range(count)]))
    print(publisher.accepted, flush=True)
    sys.stdin.read()
"""


class Gateway:
    """Router in front of Artemis, with link routes for transactions and for addresses `tx.…`."""

    def __init__(self, router: RouterProcess, broker: BrokerProcess) -> None:
        self.url = f"amqp://127.0.0.1:{router.port}"
        self.broker = broker

    def publisher(
        self, address: str, kind: type[TransactionalPublisher] = TransactionalPublisher, **options: Any
    ) -> Any:
        given = {"timeout": PATIENCE, "transactions": True, **options}
        return kind(PublisherOptions(self.url, address, **given))

    def bodies(self, address: str) -> Counter[str]:
        """Take the visible messages of a queue from the broker, without the router."""
        found: Counter[str] = Counter()
        with connect(self.broker.url, timeout=PATIENCE, allow_insecure_mechs=True) as connection:
            receiver = connection.receiver(address, timeout=PATIENCE)
            while True:
                try:
                    delivery = receiver.receive(SILENCE)
                except TimeoutError:
                    return found
                found[str(delivery.message.body)] += 1
                delivery.accept()


@pytest.fixture(scope="module", params=[1, 3])
def gateway(
    request: pytest.FixtureRequest, artemis: BrokerProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Gateway]:
    sections = [listener(), *SETTINGS, connector(artemis), *link_routes("tx", artemis), coordinator(artemis)]
    router = RouterProcess(tmp_path_factory.mktemp("transactions"), sections, request.param)
    router.start()
    try:
        router.wait(lambda: router.log.count("Link Route Activated") >= 3, "link routes are active")
        yield Gateway(router, artemis)
    finally:
        router.stop()


@pytest.fixture
def bystander(gateway: Gateway) -> Iterator[None]:
    """Client that receives during the test, and must get its message afterwards on the same connection."""
    with ReceivingThread(gateway.url, "closest/bystander") as receiver:
        yield
        with connect(gateway.url, timeout=PATIENCE) as connection:
            sender = connection.sender("closest/bystander", timeout=PATIENCE)
            assert sender.send(Message("still here"), timeout=PATIENCE) == Accepted()
        assert [each.body for each in receiver.wait(1)] == ["still here"]


def messages(count: int = COUNT, first: int = 0) -> MessageBatch:
    return MessageBatch.of(
        Message(str(number), durable=True, properties={"_AMQ_DUPL_ID": f"row-{number}"}).encode()
        for number in range(first, first + count)
    )


def each_once(count: int) -> Counter[str]:
    return Counter(str(number) for number in range(count))


def test_messages_of_transaction_become_visible_together(gateway: Gateway, bystander: None) -> None:
    address = f"tx.together.{os.urandom(4).hex()}"
    with gateway.publisher(address, most=10) as publisher:
        publisher.send(messages())
        assert publisher.accepted > COUNT // 2
        assert not gateway.bodies(address)
        publisher.finish()
    assert gateway.bodies(address) == each_once(COUNT)


def test_killed_publisher_leaves_nothing_visible(gateway: Gateway, bystander: None) -> None:
    address = f"tx.killed.{os.urandom(4).hex()}"
    running = subprocess.Popen(
        [sys.executable, "-c", HALF, gateway.url, address, str(COUNT)],
        cwd=Path(__file__).resolve().parents[2], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    with running:
        assert running.stdout is not None
        assert int(running.stdout.readline()) > COUNT // 2
        running.kill()
    assert not gateway.bodies(address)
    with gateway.publisher(address) as publisher:
        publisher.send(messages())
        publisher.finish()
    assert gateway.bodies(address) == each_once(COUNT)


def test_killed_broker_gets_all_messages_in_another_transaction(gateway: Gateway, bystander: None) -> None:
    address = f"tx.broker.{os.urandom(4).hex()}"
    with gateway.publisher(address, most=10) as publisher:
        publisher.send(messages())
        assert publisher.accepted > COUNT // 2
        gateway.broker.restart()
        publisher.finish()
        assert publisher.accepted == COUNT
    assert gateway.bodies(address) == each_once(COUNT)


class AnswerLoser(TransactionalPublisher):
    """Publisher that loses its connection when the broker has committed, before it reads the answer."""

    losses = 0

    def _request(self, connection: SyncConnection, coordinator: Any, send: Any, what: str) -> Any:
        found = super()._request(connection, coordinator, send, what)
        if what == "discharge" and not self.losses:
            self.losses += 1
            connection.abort()
            raise ConnectionFailedError("", "the answer is lost")
        return found


@pytest.mark.parametrize(("duplicate_ids", "copies"), [(True, 1), (False, 2)])
def test_lost_answer_to_discharge_doubles_only_without_ids(
    gateway: Gateway, bystander: None, duplicate_ids: bool, copies: int
) -> None:
    address = f"tx.answer.{os.urandom(4).hex()}"
    found = messages() if duplicate_ids else MessageBatch.of([Message(str(row)).encode() for row in range(COUNT)])
    with gateway.publisher(address, AnswerLoser, duplicate_ids=duplicate_ids) as publisher:
        publisher.send(found)
        publisher.finish()
    assert publisher.losses == 1
    assert gateway.bodies(address) == Counter({str(row): copies for row in range(COUNT)})


def test_repeated_task_with_other_rows_stores_each_row_once(gateway: Gateway, bystander: None) -> None:
    """The second attempt has rows of the first, as when Spark divides a batch in another way."""
    address = f"tx.attempts.{os.urandom(4).hex()}"
    for first in (0, COUNT // 2):
        with gateway.publisher(address, duplicate_ids=True) as publisher:
            publisher.send(messages(first=first))
            publisher.finish()
    assert gateway.bodies(address) == each_once(COUNT + COUNT // 2)


def test_address_without_link_route_fails(gateway: Gateway, bystander: None) -> None:
    with ReceivingThread(gateway.url, "closest/elsewhere"), gateway.publisher("closest/elsewhere") as publisher:
        publisher.send(messages(1))
        with pytest.raises(PermanentPublishError, match="accepted outside of its transaction"):
            publisher.finish()


@pytest.mark.parametrize("way", ["direct", "routed"])
def test_broker_without_transactions_is_named_at_once(
    rabbitmq: BrokerProcess, way: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """RabbitMQ 3.10 ends the session instead of refusing the coordinator."""
    url = f"amqp://127.0.0.1:{rabbitmq.port}"
    if way == "routed":
        sections = [listener(), *SETTINGS, connector(rabbitmq), *link_routes("tx", rabbitmq), coordinator(rabbitmq)]
        router = RouterProcess(tmp_path, sections, 1)
        router.start()
        request.addfinalizer(router.stop)
        router.wait(lambda: router.log.count("Link Route Activated") >= 3, "link routes are active")
        url = f"amqp://127.0.0.1:{router.port}"
    options = PublisherOptions(url, "tx.none", timeout=PATIENCE, transactions=True)
    refusal = r"refuses the transaction coordinator: .*Transactions not supported\. Transactions need a broker"
    if way == "direct":
        refusal = rf"\('RabbitMQ \S+'\) {refusal}"
    with TransactionalPublisher(options) as publisher:
        publisher.send(messages(1))
        with pytest.raises(PermanentPublishError, match=refusal):
            publisher.finish()
