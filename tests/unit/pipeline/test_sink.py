"""Options and schemas of the sink, and rows as messages, without Spark's Java."""

from typing import Any

import pytest

pytest.importorskip("pyspark")
import pyarrow as pa
from pyspark.sql import types

from sluice.pipeline.errors import PipelineOptionError, PublishError
from sluice.pipeline.sink import BatchWriter, SinkOptions, check_schema, sink_options
from sluice.router.client.message import Message
from sluice.router.client.message import decode as decode_message

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
    found = writer(rows, **given).messages(batch, "q/0/0", first)
    return [decode_message(found[row]) for row in range(found.count)]


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"amqp.url": "http://x"}, "option amqp.url: "),
        ({"onReject": "deadletter"}, "onReject=deadletter and deadLetterAddress must be given together"),
        ({"deadLetterAddress": "d"}, "onReject=deadletter and deadLetterAddress must be given together"),
        ({"settlement": "settled", "onReject": "drop"}, "option onReject has no effect with settlement=settled"),
        ({"amqp.sasl.username": "u"}, "option amqp.sasl.username and amqp.sasl.passwordFile"),
        ({"amqp.sasl.passwordEnv": "X"}, "option amqp.sasl.username and amqp.sasl.passwordFile"),
        ({**CREDENTIALS, "amqp.sasl.passwordFile": "f"}, "only one of them can be given"),
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


def test_message_column_is_sent_unchanged():
    octets = Message("x", subject="s").encode()
    batch = writer("message binary").messages(pa.record_batch({"message": [octets]}), "q", 0)
    assert [batch[0]] == [octets]


@pytest.mark.parametrize(
    ("rows", "columns", "text"),
    [
        ("message binary", {"message": pa.array([None], pa.binary())}, "column message is null in a row"),
        ("body string, priority int", {"body": ["x"], "priority": [300]}, "column 'priority': 300 is out of range"),
        ("body string, ttl_ms bigint", {"body": ["x"], "ttl_ms": [-1]}, "column 'ttl_ms': -1 is out of range"),
    ],
)
def test_row_that_is_no_message_fails_the_write(rows, columns, text):
    with pytest.raises(PublishError, match=text):
        messages(rows, columns)


def test_null_address_fails_the_write():
    without = sink_options({"amqp.url": URL}, overwrite=False)
    sink = BatchWriter(without, schema("body string, address string"))
    batch = pa.record_batch({"body": ["x"], "address": pa.array([None], pa.string())})
    with pytest.raises(PublishError, match="column address is null in a row"):
        sink.messages(batch, "q", 0)


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
