"""Options and schemas of the sink, and rows as messages, without Spark's Java."""

from typing import Any

import pytest

pytest.importorskip("pyspark")
import pyarrow as pa
from pyspark.sql import types

from sluice.pipeline.errors import PermanentPublishError, PipelineOptionError
from sluice.pipeline.sink import BadRow, BatchWriter, SinkOptions, TaskCounts, check_schema, sink_options
from sluice.router.client.message import Message
from sluice.router.client.message import decode as decode_message
from sluice.router.client.outcome import Rejected, encode
from tests.unit.router.client.server import EngineBroker

URL = "amqp://127.0.0.1:5672"
CREDENTIALS = {"amqp.sasl.username": "u", "amqp.sasl.passwordEnv": "SLUICE_TEST_PASSWORD"}

#: Types by their names in a schema; Spark's own parser of schemas needs Java.
KINDS = {
    "string": types.StringType(),
    "binary": types.BinaryType(),
    "int": types.IntegerType(),
    "bigint": types.LongType(),
    "double": types.DoubleType(),
    "map<string,date>": types.MapType(types.StringType(), types.DateType()),
}

KINDS_OF_ARROW = {
    **dict.fromkeys(("body", "address", "content_type"), pa.string()),
    "message": pa.binary(),
    "priority": pa.int64(),
    "ttl_ms": pa.int64(),
}


def schema(text: str) -> types.StructType:
    columns = (each.split(" ") for each in text.split(", "))
    return types.StructType([types.StructField(name, KINDS[kind]) for name, kind in columns])


def options(**given: str) -> SinkOptions:
    return sink_options({"amqp.url": URL, "address": "a", **given}, overwrite=False)


def check(rows: str, **given: str) -> None:
    check_schema(options(**given), schema(rows))


def writer(rows: str, **given: str) -> BatchWriter:
    return BatchWriter(options(**given), schema(rows))


def messages(rows: str, columns: dict[str, Any], first: int = 0, **given: str) -> list[Message]:
    batch = pa.record_batch(columns)
    bad: list[BadRow] = []
    found = writer(rows, **given).messages(batch, "q/0/0", first, bad)
    assert not bad
    return [decode_message(found[row]) for row in range(found.count)]


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"amqp.url": "http://x"}, "option amqp.url: "),
        ({"onReject": "deadletter"}, "deadletter and deadLetterAddress must be given together"),
        ({"deadLetterAddress": "d"}, "deadletter and deadLetterAddress must be given together"),
        ({"onBadRow": "deadletter"}, "deadletter and deadLetterAddress must be given together"),
        ({"settlement": "settled", "onReject": "drop"}, "option onReject has no effect with settlement=settled"),
        ({"amqp.sasl.username": "u"}, "option amqp.sasl.username and amqp.sasl.passwordFile"),
        ({"amqp.sasl.passwordEnv": "X"}, "option amqp.sasl.username and amqp.sasl.passwordFile"),
        ({**CREDENTIALS, "amqp.sasl.passwordFile": "f"}, "only one of them can be given"),
        ({"duplicateIds": "kafka"}, "option duplicateIds: 'kafka' is not one of none, artemis, rabbitmq"),
        ({"orderBy": "group_id", "settlement": "settled"}, "option orderBy needs settlement=unsettled"),
        ({"transactions": "batch"}, "option transactions: 'batch' is not one of none, task"),
        ({"transactions": "task", "settlement": "settled"}, "option transactions needs settlement=unsettled"),
        ({"transactionRows": "5"}, "option transactionRows needs transactions=task"),
        ({"maxInFlight": "0"}, "option maxInFlight: '0' is not a whole number"),
    ],
)
def test_contradicting_options_are_refused(given, text):
    with pytest.raises(PipelineOptionError, match=text):
        options(**given)


def test_sink_without_url_is_refused():
    with pytest.raises(PipelineOptionError, match=r"option amqp\.url is required"):
        sink_options({}, overwrite=False)


def test_overwrite_mode_is_refused():
    with pytest.raises(PipelineOptionError, match="mode overwrite is not supported"):
        sink_options({"amqp.url": URL}, overwrite=True)


def test_transactions_know_rows_and_copies():
    found = options(transactions="task", transactionRows="500", duplicateIds="artemis").publisher
    assert (found.transactions, found.transaction_rows, found.duplicate_ids) == (True, 500, True)
    assert not options().publisher.transactions


def test_times_in_ms_become_seconds():
    found = options(sendTimeoutMs="1500", **{"amqp.idle.timeout.ms": "250"}).publisher
    assert (found.timeout, dict(found.client)["idle"]) == (1.5, 0.25)


@pytest.mark.parametrize(
    ("rows", "given", "text"),
    [
        ("body string, colour int", {}, "column 'colour': a message has no such field"),
        ("body int", {}, "column 'body' is int; it must be binary or string"),
        ("subject string", {}, "no column body or message"),
        ("body string, address string", {}, "option address: give either the option or a column address"),
        ("body string", {"idColumn": "id"}, "there is no column 'id'"),
        ("body string, id double", {"idColumn": "id"}, "column 'id' is double, not a string or integer"),
        ("body string, id int, message_id string", {"idColumn": "id"}, "give only one of them"),
        ("message binary, subject string", {}, "no other column may be given"),
        ("message binary", {"idColumn": "message"}, "is binary, not a string"),
        ("message binary", {"duplicateIds": "artemis"}, "option duplicateIds: column message is sent unchanged"),
        ("body string", {"orderBy": "group_id"}, "option orderBy: there is no column 'group_id'"),
        ("body string, device double", {"orderBy": "device"}, "column 'device' is double, not a string, binary or"),
        ("message binary, device int, subject string", {"orderBy": "device"}, "no other column may be given"),
        ("body string, application_properties map<string,date>", {}, "column 'application_properties' is "),
    ],
)
def test_schema_that_is_no_message_is_refused(rows, given, text):
    with pytest.raises(PipelineOptionError, match=text):
        check(rows, **given)


def test_address_comes_from_one_place_only():
    without = sink_options({"amqp.url": URL}, overwrite=False)
    check_schema(without, schema("body string, address string"))
    with pytest.raises(PipelineOptionError, match="option address: give either"):
        check_schema(without, schema("body string"))
    with pytest.raises(PipelineOptionError, match="column to: column address already sets this field"):
        check_schema(without, schema("body string, address string, to string"))


def test_rows_without_id_get_the_prefix_and_their_ordinal():
    found = messages("body string", {"body": ["x", "y"]}, first=7)
    assert [each.message_id for each in found] == ["q/0/0/7", "q/0/0/8"]


def test_id_column_becomes_the_message_id():
    found = messages("body string, id int", {"body": ["x"], "id": pa.array([5], pa.int32())}, idColumn="id")
    assert [each.message_id for each in found] == ["5"]


def test_messages_have_no_duplicate_ids_by_default():
    (default,) = messages("body string", {"body": ["x"]})
    (none,) = messages("body string", {"body": ["x"]}, duplicateIds="none")
    assert default == none == Message("x", message_id="q/0/0/0")


def test_duplicate_id_comes_from_the_id_column():
    columns = {"body": ["x"], "id": pa.array([5], pa.int32())}
    (found,) = messages("body string, id int", columns, idColumn="id", duplicateIds="artemis")
    assert (found.message_id, found.properties) == ("5", {"_AMQ_DUPL_ID": "5"})


def test_column_of_keys_is_sent_only_if_messages_have_the_field():
    (plain,) = messages("body string, device int", {"body": ["x"], "device": [5]}, orderBy="device")
    (grouped,) = messages("body string, group_id string", {"body": ["x"], "group_id": ["g"]}, orderBy="group_id")
    assert plain == Message("x", message_id="q/0/0/0")
    assert grouped.group_id == "g"


def test_message_column_is_sent_unchanged():
    octets = Message("x", subject="s").encode()
    batch = writer("message binary").messages(pa.record_batch({"message": [octets]}), "q", 0, [])
    assert [batch[0]] == [octets]


@pytest.mark.parametrize(
    ("rows", "columns", "reason"),
    [
        ("message binary", {"message": [None]}, "column 'message': it is null"),
        ("body string, priority int", {"body": ["x"], "priority": [300]}, "column 'priority': 300 is out of range"),
        ("body string, ttl_ms bigint", {"body": ["x"], "ttl_ms": [-1]}, "column 'ttl_ms': -1 is out of range"),
        ("body string, address string", {"body": ["x"], "address": [None]}, "column 'address': it is null"),
        ("body string, address string", {"body": ["x"], "address": [""]}, "column 'address': it is empty"),
        ("body string, content_type string", {"body": ["x"], "content_type": ["ü"]}, "column 'content_type': 'ü' is"),
    ],
)
def test_row_that_is_no_message_is_reported_and_others_are_encoded(rows, columns, reason):
    good = {"message": b"", "body": "y", "priority": 1, "ttl_ms": 1, "address": "a", "content_type": "text/plain"}
    arrays = {
        name: pa.array([good[name], *values, good[name]], KINDS_OF_ARROW[name]) for name, values in columns.items()
    }
    without = sink_options({"amqp.url": URL, **({} if "address" in columns else {"address": "a"})}, overwrite=False)
    bad: list[BadRow] = []
    found = BatchWriter(without, schema(rows)).messages(pa.record_batch(arrays), "q", 0, bad)
    assert found.count == 2
    assert [row for row, _ in bad] == [1]
    assert bad[0][1].startswith(reason)


class TaskRun:
    """Rows that a task sends to a broker."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(BatchWriter, "prefix", lambda _: "q/0/0")

    def __call__(self, broker: EngineBroker, columns: dict[str, Any], rows: str, **given: str) -> TaskCounts:
        found = sink_options({"amqp.url": broker.url, "address": "a", "sendTimeoutMs": "20000", **given}, False)
        self.writer = BatchWriter(found, schema(rows))
        counts = self.writer.write(iter([pa.record_batch(columns)]))
        assert isinstance(counts, TaskCounts)
        return counts


@pytest.fixture
def task(monkeypatch):
    return TaskRun(monkeypatch)


@pytest.fixture
def broker():
    with EngineBroker() as running:
        yield running


BAD_ROWS = {"body": ["a", "b", "c"], "priority": [1, 300, 2], "message_id": ["m1", "m2", "m3"]}
BAD_SCHEMA = "body string, priority int, message_id string"


def test_bad_row_fails_the_write_in_the_driver(task, broker):
    counts = task(broker, BAD_ROWS, BAD_SCHEMA)
    assert list(broker.queues["a"]) == []
    text = "the row with message_id 'm2' is no message: column 'priority': 300 is out of range"
    with pytest.raises(PermanentPublishError, match=text):
        task.writer.commit([None, counts])


def test_bad_row_is_dropped_on_request(task, broker, caplog):
    counts = task(broker, BAD_ROWS, BAD_SCHEMA, onBadRow="drop")
    assert (counts.accepted, counts.dropped, counts.failure) == (2, 1, "")
    assert [decode_message(each).message_id for each in broker.queues["a"]] == ["m1", "m3"]
    task.writer.commit([counts])
    assert "1 rows are no messages and were dropped" in caplog.text


def test_bad_row_goes_to_dead_letters_on_request(task, broker):
    columns = {name: BAD_ROWS[name] for name in ("body", "priority")}
    counts = task(broker, columns, "body string, priority int", onBadRow="deadletter", deadLetterAddress="dead")
    assert (counts.accepted, counts.dropped) == (3, 0)
    (letter,) = map(decode_message, broker.queues["dead"])
    assert (letter.body, letter.message_id) == ("b", "q/0/0/1")
    assert letter.properties["sluice.reason"].startswith("column 'priority': 300 is out of range")


def test_rejection_fails_the_write_in_the_driver_only(task, broker):
    broker.outcomes["a"] = encode(Rejected("amqp:not-allowed", "too hot"))
    counts = task(broker, {"body": ["x"]}, "body string")
    assert counts.rejected == 1
    with pytest.raises(PermanentPublishError, match="message 'q/0/0/0' to 'a' was rejected: amqp:not-allowed: too hot"):
        task.writer.commit([counts])


def test_password_is_read_in_the_task_and_not_kept_in_options(monkeypatch, tmp_path):
    sink = writer("body string", **CREDENTIALS)
    monkeypatch.delenv("SLUICE_TEST_PASSWORD", raising=False)
    with pytest.raises(PipelineOptionError, match="SLUICE_TEST_PASSWORD is not set here"):
        sink.publisher_options()
    monkeypatch.setenv("SLUICE_TEST_PASSWORD", "secret")
    assert dict(sink.publisher_options().client)["login"] == ("u", "secret")
    assert "secret" not in repr(sink.options)


def test_password_is_the_first_line_of_its_file(tmp_path):
    path = tmp_path / "password"
    given = {"amqp.sasl.username": "u", "amqp.sasl.passwordFile": str(path)}
    sink = writer("body string", **given)
    with pytest.raises(PipelineOptionError, match=r"option amqp\.sasl\.passwordFile: "):
        sink.publisher_options()
    path.write_text("secret\nother\n")
    assert dict(sink.publisher_options().client)["login"] == ("u", "secret")


def test_rows_of_a_key_are_sent_in_order_without_the_bad_ones(task, broker):
    broker.credit = 1
    columns = {
        "body": [str(number) for number in range(8)], "device": [number % 2 for number in range(8)],
        "priority": [300 if number == 3 else 1 for number in range(8)],
    }  # fmt: skip
    counts = task(broker, columns, "body string, device int, priority int", orderBy="device", onBadRow="drop")
    assert (counts.accepted, counts.dropped) == (7, 1)
    found = [str(decode_message(each).body) for each in broker.queues["a"]]
    assert [each for each in found if int(each) % 2] == ["1", "5", "7"]
    assert [each for each in found if not int(each) % 2] == ["0", "2", "4", "6"]
