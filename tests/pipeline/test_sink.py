"""Spark tables and streams sent to addresses of a running router."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")
from pyspark.errors import PySparkException

from sluice.pipeline.segments import Landing, LandingLog
from sluice.router.client.links import Delivery
from sluice.router.client.message import Message
from tests.pipeline.conftest import need_stream_reader
from tests.pipeline.receiving import ReceivingThread
from tests.pipeline.segments import land, numbered
from tests.system.fixtures import Start
from tests.system.router import SETTINGS, listener

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = 3000
SHORT = "1500"  # milliseconds


def write(frame: DataFrame, url: str, address: str | None, **options: Any) -> None:
    if address is not None:
        options["address"] = address
    frame.write.format("amqp").mode("append").options(**{"amqp.url": url, "sendTimeoutMs": "15000", **options}).save()


def table(spark: SparkSession, rows: int = ROWS) -> DataFrame:
    return spark.range(rows).selectExpr("cast(cast(id as string) as binary) as body", "concat('m', id) as message_id")


def test_message_fields_come_from_columns(spark: SparkSession, url: str):
    frame = spark.sql(
        """select 'text' as body, 'ul:7' as message_id, 'uuid:01234567-89ab-cdef-0123-456789abcdef' as correlation_id,
        'balanced/elsewhere' as `to`, 's' as subject, 'r' as reply_to, 'text/plain' as content_type, 'g' as group_id,
        3 as group_sequence, timestamp '1970-01-01 00:00:01Z' as creation_time, 5000L as ttl_ms, 7 as priority,
        true as durable, map('a', 'x', 'b', null) as application_properties, map('x-opt-a', 1) as message_annotations,
        unhex('00ff') as user_id"""
    )
    with ReceivingThread(url, "balanced/fields") as consumer:
        write(frame, url, "balanced/fields")
        (message,) = consumer.wait(1)
    assert str(message.correlation_id) == "01234567-89ab-cdef-0123-456789abcdef"
    message.correlation_id = None
    assert message.annotations.pop("x-opt-a") == 1
    message.annotations.clear()
    assert message == Message(
        "text", message_id=7, to="balanced/elsewhere", subject="s", reply_to="r", content_type="text/plain",
        group_id="g", group_sequence=3, creation_time=1000, ttl=5000, priority=7, durable=True,
        properties={"a": "x", "b": None}, user_id=b"\0\xff",
    )  # fmt: skip


def test_rows_are_accepted_when_write_returns(spark: SparkSession, url: str):
    with ReceivingThread(url, "balanced/all") as consumer:
        write(table(spark), url, "balanced/all", maxInFlight="100")
        assert sorted(int(message.body) for message in consumer.messages) == list(range(ROWS)), "when it returns"


def test_settled_write_sends_all_rows(spark: SparkSession, url: str):
    with ReceivingThread(url, "balanced/settled", window=ROWS) as consumer:
        write(table(spark), url, "balanced/settled", settlement="settled")
        assert sorted(int(message.body) for message in consumer.wait(ROWS)) == list(range(ROWS))


def test_address_column_selects_the_address(spark: SparkSession, url: str):
    frame = table(spark).selectExpr("body", "if(int(string(body)) % 2 = 0, 'balanced/even', 'balanced/odd') as address")
    with ReceivingThread(url, "balanced/even") as even, ReceivingThread(url, "balanced/odd") as odd:
        write(frame, url, None)
    assert sorted(int(message.body) for message in even.messages) == list(range(0, ROWS, 2))
    assert sorted(int(message.body) for message in odd.messages) == list(range(1, ROWS, 2))


def test_id_column_gives_the_message_ids(spark: SparkSession, url: str):
    frame = spark.range(5).selectExpr("id as number", "'x' as body")
    with ReceivingThread(url, "balanced/ids") as consumer:
        write(frame, url, "balanced/ids", idColumn="number")
    assert sorted(message.message_id for message in consumer.messages) == ["0", "1", "2", "3", "4"]


def test_message_column_is_sent_unchanged(spark: SparkSession, url: str):
    octets = Message({"a": 1}, subject="s").encode()
    frame = spark.createDataFrame([(octets,)], "message binary")
    with ReceivingThread(url, "balanced/whole") as consumer:
        write(frame, url, "balanced/whole")
    assert [(message.body, message.subject) for message in consumer.messages] == [({"a": 1}, "s")]


class FirstDelivery:
    """Settlement function that treats the first delivery of each message in a given way, and accepts later ones."""

    def __init__(self, first: Any) -> None:
        self.first = first
        self.seen: set[Any] = set()

    def __call__(self, delivery: Delivery) -> None:
        name = delivery.message.message_id
        if name in self.seen:
            delivery.accept()
        else:
            self.seen.add(name)
            self.first(delivery)


KEYS = 7


def check_order(messages: list[Message], rows: int) -> None:
    """Check that messages of each key arrived in order, and all. Bodies are numbers; the key is their rest by KEYS."""
    for key in range(KEYS):
        found = [number for each in messages if (number := int(each.body)) % KEYS == key]
        assert found == sorted(found)
        assert set(found) == set(range(key, rows, KEYS))


def test_released_messages_arrive_in_the_order_of_their_key(spark: SparkSession, url: str):
    """Two receivers share the address and release each message once."""
    rows = spark.range(200).selectExpr(
        "id", f"id % {KEYS} as device", "cast(id as string) as body", "'m' || id as name"
    )
    ordered = (
        rows.repartition(2, "device").sortWithinPartitions("id").selectExpr("device", "body", "name as message_id")
    )
    once = FirstDelivery(Delivery.release)
    arrived: list[Message] = []
    lock = threading.Lock()

    def settle(delivery: Delivery) -> None:
        with lock:
            arrived.append(delivery.message)
            once(delivery)

    with ReceivingThread(url, "balanced/order", settle), ReceivingThread(url, "balanced/order", settle):
        write(ordered, url, "balanced/order", orderBy="device")
    assert len(arrived) == 400
    check_order(arrived, 200)


@pytest.mark.parametrize("first", [Delivery.release, Delivery.modify], ids=["released", "modified"])
def test_released_or_modified_message_is_sent_again(spark: SparkSession, url: str, first: Any):
    address = f"balanced/again-{first.__name__}"
    with ReceivingThread(url, address, FirstDelivery(first)) as consumer:
        write(table(spark, 40), url, address)
    assert len(consumer.messages) == 80


def odd_rejected(delivery: Delivery) -> None:
    if int(delivery.message.body) % 2:
        delivery.reject("test:odd", "not even")
    else:
        delivery.accept()


def test_rejected_message_fails_the_write_without_repetition(spark: SparkSession, url: str):
    with ReceivingThread(url, "balanced/fail", odd_rejected) as consumer:
        with pytest.raises(PySparkException, match="message 'm.' to 'balanced/fail' was rejected: test:odd: not even"):
            write(table(spark, 10), url, "balanced/fail")
        names = [message.message_id for message in consumer.messages]
        assert len(names) == len(set(names))


def test_rejected_message_is_dropped_on_request(spark: SparkSession, url: str):
    with ReceivingThread(url, "balanced/drop", odd_rejected) as consumer:
        write(table(spark, 100), url, "balanced/drop", onReject="drop")
    assert len(consumer.messages) == 100


def test_rejected_messages_go_to_dead_letters(spark: SparkSession, url: str):
    with ReceivingThread(url, "balanced/live", odd_rejected), ReceivingThread(url, "balanced/dead") as dead:
        write(table(spark, 100), url, "balanced/live", onReject="deadletter", deadLetterAddress="balanced/dead")
    assert sorted(int(message.body) for message in dead.messages) == list(range(1, 100, 2))


def test_write_without_consumer_times_out(spark: SparkSession, url: str):
    text = r"no message to 'balanced/nobody' was settled within 1.5 s; \d+ messages are left"
    with pytest.raises(PySparkException, match=text):
        write(table(spark, 10), url, "balanced/nobody", sendTimeoutMs=SHORT)


def test_write_without_router_fails(spark: SparkSession):
    with pytest.raises(PySparkException, match="amqp://127.0.0.1:1: no message .* Connection refused"):
        write(table(spark, 10), "amqp://127.0.0.1:1", "balanced/x", sendTimeoutMs=SHORT)


def test_address_refused_by_router_fails_the_write(spark: SparkSession, url: str):
    with pytest.raises(PySparkException, match="the router refuses address 'unavailable/x'"):
        write(table(spark, 10), url, "unavailable/x")


def test_sink_refused_by_policy_fails_the_write(spark: SparkSession, start: Start):
    allowed = {"users": "*", "remoteHosts": "*", "sources": "*", "targets": "other"}
    router = start(
        [
            listener(),
            ("policy", {"enableVhostPolicy": True}),
            ("vhost", {"hostname": "$default", "groups": {"all": allowed}}),
            *SETTINGS,
        ]
    )
    with pytest.raises(PySparkException, match=r"refuses address 'balanced/x': .* link disallowed by local policy"):
        write(table(spark, 10), f"amqp://127.0.0.1:{router.port}", "balanced/x")


@pytest.mark.parametrize(
    ("rows", "options", "text"),
    [
        ("'x' as body, 1 as colour", {}, "column 'colour': a message has no such field"),
        ("1 as body", {}, "column 'body' is int; it must be binary or string"),
        ("'x' as subject", {}, "no column body or message"),
        ("'x' as body, 'a' as address", {}, "option address: give either the option or a column address"),
        ("'x' as body", {"address": None}, "option address: give either the option or a column address"),
        ("'x' as body", {"idColumn": "id"}, "option idColumn: there is no column 'id'"),
        ("'x' as body", {"onReject": "panic"}, "option onReject"),
        ("'x' as body", {"onReject": "deadletter"}, "onBadRow=deadletter and deadLetterAddress"),
        ("'x' as body", {"maxInFlight": "0"}, "option maxInFlight"),
        ("'x' as body", {"sendTimeoutMs": "soon"}, "option sendTimeoutMs"),
        ("'x' as body", {"settlement": "maybe"}, "option settlement"),
        ("'x' as body", {"amqp.url": "http://x"}, "option amqp.url"),
        ("'x' as body", {"amqp.sasl.username": "u"}, "option amqp.sasl.username"),
        ("'x' as body, 300 as priority", {}, "column 'priority': 300 is out of range"),
        ("'x' as body, -1L as ttl_ms", {}, "column 'ttl_ms': -1 is out of range"),
    ],
)
def test_invalid_columns_and_options_are_reported(
    spark: SparkSession, url: str, rows: str, options: dict[str, Any], text: str
):
    options = {"address": "balanced/bad", **options}
    with pytest.raises(PySparkException, match=text):
        write(spark.sql(f"select {rows}"), url, options.pop("address"), **options)


@pytest.mark.long
def test_stream_has_stable_ids(spark: SparkSession, url: str, landing: Landing, tmp_path: Path):
    """A repeated batch has the same ids, although Spark does not tell a writer about the repetition."""
    need_stream_reader()
    for number in range(4):
        land(landing, LandingLog("one", "a"), number, numbered(10 * number, 10))

    def run() -> str:
        query = (
            spark.readStream.format("amqp").option("maxRecordsPerTrigger", "20").load(landing.url).select("body")
            .writeStream.format("amqp").options(**{"amqp.url": url, "address": "balanced/stream"})
            .option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
        )  # fmt: skip
        assert query.awaitTermination(60)
        return str(query.id)

    with ReceivingThread(url, "balanced/stream") as consumer:
        query = run()
        first = {message.message_id: message.body for message in consumer.messages}
        assert len(first) == 40
        assert {name.split("/")[0] for name in first} == {query}
        assert {name.split("/")[1] for name in first} == {"0", "1"}
        commit = tmp_path / "checkpoint" / "commits"
        for file in (commit / "1", commit / ".1.crc"):
            file.unlink()  # as if the driver had been killed in the second batch
        run()
        again = {message.message_id: message.body for message in consumer.messages[40:]}
    assert again == {name: body for name, body in first.items() if name.split("/")[1] == "1"}


@pytest.mark.long
def test_restarted_router_gets_messages_again(spark: SparkSession, start: Start, tmp_path: Path):
    """The router restarts during a write; messages in flight are sent again."""
    router = start([listener(), *SETTINGS])
    port = router.port
    url = f"amqp://127.0.0.1:{port}"
    router.configure([listener(port=port), *SETTINGS])
    consumer = ReceivingThread(url, "balanced/back", window=10)
    second: list[ReceivingThread] = []

    def restart() -> None:
        consumer.wait(500)
        router.kill()
        router.start()
        second.append(ReceivingThread(url, "balanced/back"))

    # The writer stays in this thread, because Spark finds data sources by a thread's active session.
    restarting = threading.Thread(target=restart)
    restarting.start()
    write(table(spark, 20_000), url, "balanced/back", sendTimeoutMs="60000")
    restarting.join(30)
    with consumer, second[0] as other:
        seen = {message.message_id for message in [*consumer.messages, *other.messages]}
    assert seen == {f"m{n}" for n in range(20_000)}


def test_messages_from_source_are_sent_unchanged(spark: SparkSession, url: str, landing: Landing):
    """The sink can send all that the source reads, and ids keep their types."""
    sent = [Message(b"x", message_id=name, properties={"n": "1"}) for name in ("ul:5", 5, b"\0", "s")]
    land(landing, LandingLog("one", "a"), 0, sent)
    frame = spark.read.format("amqp").option("decode", "full").option("includeHeaders", "true").load(landing.url)
    with ReceivingThread(url, "balanced/way") as consumer:
        write(frame.select("body", "message_id", "application_properties"), url, "balanced/way")
    assert sorted(json.dumps(str(message.message_id)) for message in consumer.messages) == sorted(
        json.dumps(str(message.message_id)) for message in sent
    )
    assert {type(message.message_id) for message in consumer.messages} == {str, int, bytes}
