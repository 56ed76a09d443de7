"""Typed payloads: values of each format, types of schemas, bad bodies, inferred types, hostile bodies."""

import io
import pickle
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("fastavro")
pytest.importorskip("google.protobuf")
pytest.importorskip("pyspark")
import fastavro
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from pyspark.sql.types import FloatType, StringType, StructField, StructType

from sluice.pipeline.errors import PayloadRefusedError, PipelineOptionError
from sluice.pipeline.payloads.avro_payload import AvroCodec
from sluice.pipeline.payloads.codec import KINDS, VALUES_BASE, PayloadError, payload_columns
from sluice.pipeline.payloads.json_payload import JsonCodec, infer
from sluice.pipeline.payloads.protobuf_payload import ProtobufCodec
from sluice.pipeline.segments import Landing, LandingLog
from sluice.pipeline.source import Amqp
from sluice.router import json_codec
from sluice.router.client import Message
from tests.pipeline.segments import land

# -- JSON --------------------------------------------------------------------------------------------------------------

READING = pa.struct(
    [
        ("celsius", pa.float64()),
        ("place", pa.struct([("hall", pa.int32())])),
        ("tags", pa.list_(pa.string())),
        ("at", pa.timestamp("us", tz="UTC")),
    ]
)


def test_json_values_have_the_types_of_the_schema():
    body = b'{"celsius": 21, "place": {"hall": 3, "more": 1}, "tags": ["a", null], "at": "2026-01-31T08:00:00Z"}'
    found = JsonCodec(READING).decode(body)
    assert found == {
        "celsius": 21.0,
        "place": {"hall": 3},
        "tags": ["a", None],
        "at": datetime(2026, 1, 31, 8, tzinfo=UTC),
    }
    assert pa.array([found], READING).to_pylist() == [found]
    assert JsonCodec(READING).decode(b"{}") == dict.fromkeys(("celsius", "place", "tags", "at"))


def nested(levels: int) -> bytes:
    return b"[" * levels + b"]" * levels


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"{", "^not JSON: "),
        (b'{"celsius": "warm"}', "^.celsius: 'warm' is not double$"),
        (b'{"celsius": true}', "^.celsius: 'True' is not double$"),
        (b'{"place": {"hall": 2147483648}}', "^.place.hall: 2147483648 is out of range of int32$"),
        (b'{"tags": {}}', "^.tags: '{}' is not list"),
        (b'{"at": "yesterday"}', "^.at: 'yesterday' is not timestamp"),
        (b'{"at": "2026-01-31T08:00:00"}', "^.at: .* is not timestamp"),
        (b"[1]", "^the value: '.1.' is not struct"),
        (b"\xff", "^not JSON: "),
        (b'{"at": "0001-01-01T00:00:00+23:59"}', "^.at: .* is not timestamp"),
        (b'{"at": "9999-12-31T23:59:59-23:59"}', "^.at: .* is not timestamp"),
        (b'{"tags": [' + nested(300) + b"]}", r"^.tags\[0\] cannot be a text: "),
        (b'{"tags": [' + nested(1000) + b"]}", r"^.tags\[0\] cannot be a text: "),
        (b'{"celsius": ' + nested(1000) + b"}", "^.celsius: .* is not double$"),
    ],
)
def test_body_that_does_not_fit_is_refused_with_the_place(body, text):
    with pytest.raises(PayloadError, match=text):
        JsonCodec(READING).decode(body)


def fit(value: Any, kind: pa.DataType) -> Any:
    return JsonCodec(kind).decode(json_codec.encode(value))


WIDE = 300  # fields
EMPTY_OBJECTS = b"[" + b",".join([b"{}"] * 5000) + b"]"


def test_json_body_of_few_octets_does_not_become_millions_of_values():
    """Each {} would become 300 values: 100 for each octet."""
    kind = pa.list_(pa.struct([(f"f{number}", pa.string()) for number in range(WIDE)]))
    with pytest.raises(PayloadError, match="^the body would become more than 970064 values$"):
        JsonCodec(kind).decode(EMPTY_OBJECTS)
    assert len(JsonCodec(kind).decode(b"[" + b",".join([b"{}"] * (VALUES_BASE // WIDE)) + b"]")) == VALUES_BASE // WIDE


def test_protobuf_body_of_few_octets_does_not_become_millions_of_values():
    message = descriptor_pb2.DescriptorProto(name="Inner")
    for number in range(1, WIDE):
        message.field.add(name=f"f{number}", number=number, type=3, label=1)
    outer = descriptor_pb2.DescriptorProto(name="Outer")
    outer.field.add(name="inner", number=1, type=11, label=3, type_name=".p.Inner")
    file = descriptor_pb2.FileDescriptorProto(name="p.proto", package="p", message_type=[message, outer])
    codec = ProtobufCodec(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString(), "p.Outer", "x")
    with pytest.raises(PayloadError, match="^the body would become more than 650000 values$"):
        codec.decode(b"\x0a\x00" * 5000)


def test_rows_with_many_values_are_made_a_slice_at_a_time(monkeypatch):
    monkeypatch.setattr("sluice.pipeline.payloads.codec.VALUES_OF_SLICE", 5)
    bodies = pa.array([b"[1,2]", b"[1,2,3]", b"[1]", b"x", b"[4]"])
    columns = [
        *payload_columns(JsonCodec(pa.list_(pa.int64())), KINDS["json"], [True] * 5, bodies, pa.array(["data"] * 5))
    ]
    assert [payloads.to_pylist() for payloads, _ in columns] == [[[1, 2], [1, 2, 3]], [[1], None, [4]]]
    assert [errors.null_count for _, errors in columns] == [2, 2]


@pytest.mark.parametrize("text", ["1e-9999999", "1e999999999", "123456", "1.234", "1e-3", "Infinity", "sNaN"])
def test_json_decimal_that_does_not_fit_is_an_error(text):
    kind = pa.decimal128(5, 2)
    with pytest.raises(PayloadError, match="^the value: '.*' is not decimal128"):
        fit(text, kind)


def test_json_decimal_has_the_scale_of_its_type():
    assert [str(fit(value, pa.decimal128(5, 2))) for value in ("1e2", 1.5, "0e-9999999", -7)] == [
        "100.00", "1.50", "0.00", "-7.00",
    ]  # fmt: skip


def test_json_values_fit_other_types():
    assert fit({"a": 1}, pa.map_(pa.string(), pa.int64())) == [("a", 1)]
    assert fit("1.50", pa.decimal128(5, 2)) == Decimal("1.50")
    assert fit("2026-01-31", pa.date32()) == date(2026, 1, 31)
    assert fit({"a": [1]}, pa.string()) == '{"a":[1]}', "another value becomes its text"


def test_inferred_type_fits_all_samples():
    samples: list[Any] = [
        {"a": 1, "b": None, "c": [1]},
        {"a": 1.5, "b": "x", "c": [], "d": {"e": True}},
        {"a": None, "d": {"f": 1}},
        None,
    ]
    found = infer(samples)
    assert found == pa.struct(
        [
            ("a", pa.float64()),
            ("b", pa.string()),
            ("c", pa.list_(pa.int64())),
            ("d", pa.struct([("e", pa.bool_()), ("f", pa.int64())])),
        ]
    )
    assert infer([{"a": 1}, {"a": {"b": 1}}]) == pa.struct([("a", pa.string())])
    with pytest.raises(ValueError, match="there are no JSON payloads"):
        infer([None])


def test_object_whose_names_clash_is_inferred_as_text():
    """Spark takes names that differ only in case for one, in tables and in expressions."""
    found = infer([{"inner": {"id": 1}, "b": 1}, {"inner": {"ID": "x"}}])
    assert found == pa.struct([("inner", pa.string()), ("b", pa.int64())])
    assert fit({"inner": {"id": 1, "ID": 2}, "b": 3}, found) == {"inner": '{"id":1,"ID":2}', "b": 3}
    assert infer([[{"a": 1}, {"A": 1}]]) == pa.list_(pa.string())
    assert infer([{"a": 1, "A": 1}]) == pa.string()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(st.lists(JSON.filter(lambda value: value is not None), min_size=1, max_size=5))
def test_samples_fit_the_type_inferred_from_them(samples):
    kind = infer(samples)
    pa.array([fit(each, kind) for each in samples], kind)


# -- Avro --------------------------------------------------------------------------------------------------------------

AVRO = {
    "type": "record",
    "name": "Reading",
    "fields": [
        {"name": "sensor", "type": "string"},
        {"name": "celsius", "type": ["null", "double"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "cost", "type": {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["OK", "BAD"]}},
        {"name": "more", "type": {"type": "map", "values": {"type": "array", "items": "int"}}},
    ],
}
VALUE = {
    "sensor": "hall",
    "celsius": 21.5,
    "at": datetime(2026, 1, 31, 8, tzinfo=UTC),
    "cost": Decimal("12.50"),
    "state": "BAD",
    "more": {"x": [1, 2]},
}


def avro_body(value: dict[str, Any] = VALUE) -> bytes:
    octets = io.BytesIO()
    fastavro.schemaless_writer(octets, fastavro.parse_schema(AVRO), value)
    return octets.getvalue()


def avro_codec(schema: Any = AVRO) -> AvroCodec:
    return AvroCodec(json_codec.encode(schema).decode(), "reading.avsc")


def test_avro_values_have_the_types_of_the_schema():
    codec = avro_codec()
    assert pa.array([codec.decode(avro_body())], codec.type).to_pylist() == [{**VALUE, "more": [("x", [1, 2])]}]


def test_avro_decimal_of_many_octets_is_refused_before_it_is_a_number():
    """Python needs more than five minutes for the number of such a decimal."""
    kind = {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}
    octets = io.BytesIO()
    fastavro.schemaless_writer(octets, {"type": "bytes"}, b"\x7f" * 1_000_000)
    with pytest.raises(PayloadError, match="a decimal of 1000000 octets; at most 256 are supported"):
        avro_codec(kind).decode(octets.getvalue())


def test_avro_schema_may_refer_to_names_in_its_namespace():
    state = {"type": "enum", "name": "State", "symbols": ["OK"]}
    fields = [
        {"name": "a", "type": state},
        {"name": "b", "type": ["null", "plant.State"]},
        {"name": "c", "type": "State"},
    ]
    kind = avro_codec({"type": "record", "name": "R", "namespace": "plant", "fields": fields}).type
    assert kind == pa.struct([("a", pa.string()), ("b", pa.string()), ("c", pa.string())])


@given(st.binary(max_size=60))
def test_random_octets_are_an_avro_value_or_an_error(octets):
    codec = avro_codec()
    bodies = pa.array([octets, avro_body()[: len(octets)]], pa.binary())
    [(payloads, errors)] = payload_columns(codec, KINDS["avro"], [True, True], bodies, pa.array(["data", "data"]))
    for payload, error in zip(payloads.to_pylist(), errors.to_pylist(), strict=True):
        assert (payload is None) == (error is not None)


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ("}", "not a schema of Avro"),
        ({"type": "array", "items": "null"}, "arrays of items without octets are not supported"),
        (
            {"type": "array", "items": {"type": "record", "name": "E", "fields": []}},
            "arrays of items without octets are not supported",
        ),
        (["int", "string"], "only unions of null and one other type"),
        ({"type": "int", "logicalType": "time-millis"}, "logical type time-millis is not supported"),
        (
            {"type": "record", "name": "L", "fields": [{"name": "next", "type": ["null", "L"]}]},
            "type L contains itself",
        ),
    ],
)
def test_avro_schema_that_cannot_be_used_is_refused(schema, text):
    with pytest.raises(PipelineOptionError, match=f"^reading.avsc: .*{text}"):
        avro_codec(schema)


# -- Protobuf ----------------------------------------------------------------------------------------------------------


def descriptors() -> bytes:
    """Return descriptors as protoc writes them for a message Reading."""
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="r.proto", package="plant", syntax="proto3")
    place = file.message_type.add(name="Place")
    place.field.add(name="hall", number=1, type=field.TYPE_INT32, label=field.LABEL_OPTIONAL)
    reading = file.message_type.add(name="Reading")
    reading.field.add(name="celsius", number=1, type=field.TYPE_DOUBLE, label=field.LABEL_OPTIONAL)
    reading.field.add(name="total", number=2, type=field.TYPE_UINT64, label=field.LABEL_OPTIONAL)
    reading.field.add(
        name="place", number=3, type=field.TYPE_MESSAGE, type_name=".plant.Place", label=field.LABEL_OPTIONAL
    )
    reading.field.add(name="tags", number=4, type=field.TYPE_STRING, label=field.LABEL_REPEATED)
    loop = file.message_type.add(name="Loop")
    loop.field.add(name="next", number=1, type=field.TYPE_MESSAGE, type_name=".plant.Loop", label=field.LABEL_OPTIONAL)
    octets: bytes = descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()
    return octets


def test_protobuf_values_have_the_types_of_the_descriptor():
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(descriptors()).file:
        pool.Add(file)
    made = message_factory.GetMessageClass(pool.FindMessageTypeByName("plant.Reading"))
    codec = ProtobufCodec(descriptors(), "plant.Reading", "r.desc")
    body = made(celsius=21.5, total=2**64 - 1, place={"hall": 3}, tags=["a", "b"]).SerializeToString()
    found = [codec.decode(body), codec.decode(b"")]
    assert pa.array(found, codec.type).to_pylist() == [
        {"celsius": 21.5, "total": Decimal(2**64 - 1), "place": {"hall": 3}, "tags": ["a", "b"]},
        {"celsius": 0.0, "total": Decimal(0), "place": None, "tags": []},
    ]
    with pytest.raises(PayloadError, match=r"^not a message plant\.Reading: "):
        codec.decode(b"\xff\xff")


@pytest.mark.parametrize(
    ("octets", "message", "text"),
    [
        (b"\xff", "plant.Reading", "not a set of file descriptors"),
        (descriptors(), "plant.Nothing", "there is no message 'plant.Nothing'"),
        (descriptors(), "plant.Loop", "message plant.Loop contains itself"),
    ],
)
def test_protobuf_message_that_cannot_be_used_is_refused(octets, message, text):
    with pytest.raises(PipelineOptionError, match=f"^r.desc: {text}"):
        ProtobufCodec(octets, message, "r.desc")


# -- columns -----------------------------------------------------------------------------------------------------------


def test_bad_bodies_become_errors_beside_good_ones():
    kind = pa.struct([("n", pa.decimal128(3, 0))])
    bodies = pa.array([b'{"n": 1}', b"{", b'{"n": 12345}', b"", b"x"], pa.binary())
    kinds = pa.array(["data", "string", "data", "none", "data"])
    [(payloads, errors)] = payload_columns(JsonCodec(kind), KINDS["json"], [True] * 4 + [False], bodies, kinds)
    assert payloads.to_pylist() == [{"n": Decimal(1)}, None, None, None, None]
    found = errors.to_pylist()
    assert found[0] is None
    assert found[1].startswith("not JSON: ")
    assert found[2] == ".n: '12345' is not decimal128(3, 0)"
    assert found[3] == "body_kind is none; expected data, string, binary, json"
    assert found[4] is None, "a message that is not to be decoded has no error"


# -- the source --------------------------------------------------------------------------------------------------------


def rows(path: Path, **options: str) -> list[dict[str, Any]]:
    """Return the rows that Spark gets of a landing folder, with payloads."""
    source = Amqp({"path": str(path), **options})
    schema = source.schema()
    assert isinstance(schema, StructType)
    reader = pickle.loads(pickle.dumps(source.reader(schema)))
    batches = [batch for partition in reader.partitions() for batch in reader.read(partition)]
    assert all(batch.schema.names == schema.names for batch in batches)
    return [row for batch in batches for row in batch.to_pylist()]


@pytest.fixture
def landed(tmp_path: Path) -> Path:
    """Landing folder with JSON, Avro and other messages."""
    landing = Landing.create(str(tmp_path / "landing"))
    messages = [
        Message(b'{"celsius": 21.5}', content_type="application/json; charset=utf-8", message_id="good"),
        Message(b'{"celsius": "warm"', content_type="application/json", message_id="bad"),
        Message(avro_body(), content_type="avro/binary", message_id="avro"),
    ]
    land(landing, LandingLog("one", "a"), 0, messages)
    return tmp_path / "landing"


def test_json_source_has_inferred_payloads_and_errors(landed):
    good, bad, other = rows(landed, decode="json", payloadContentType="application/json")
    assert (good["message_id"], good["payload"], good["payload_error"]) == ("good", {"celsius": 21.5}, None)
    assert (bad["payload"], bad["body"]) == (None, b'{"celsius": "warm"')
    assert bad["payload_error"].startswith("not JSON: ")
    assert (other["payload"], other["payload_error"]) == (None, None), "another content type"


def test_source_that_fails_at_bad_payloads_names_the_first(landed, tmp_path):
    text = r"^a payload cannot be decoded \(lander one, address a, segment 0, ordinal 1\): not JSON: "
    with pytest.raises(PayloadRefusedError, match=text):
        rows(landed, decode="json", onBadPayload="fail")
    path = tmp_path / "schema.json"
    path.write_text(StructType([StructField("celsius", StringType())]).json())
    others = rows(landed, decode="json", onBadPayload="fail", payloadContentType="none", payloadSchema=str(path))
    assert len(others) == 3, "messages of other content types are not decoded, and fail no query"


def test_avro_source_takes_its_schema_from_a_file(landed, tmp_path):
    path = tmp_path / "reading.avsc"
    path.write_bytes(json_codec.encode(AVRO))
    *others, found = rows(landed, decode="avro", payloadSchema=str(path))
    assert found["payload"]["sensor"] == "hall"
    assert [each["payload"] for each in others] == [None, None]
    assert all(each["payload_error"].startswith("not Avro of this schema: ") for each in others)


def test_protobuf_source_takes_its_message_from_a_file(landed, tmp_path):
    path = tmp_path / "r.desc"
    path.write_bytes(descriptors())
    found = rows(landed, decode="protobuf", payloadSchema=str(path), payloadMessage="plant.Reading")
    assert all((each["payload"] is None) == (each["payload_error"] is not None) for each in found)


def test_json_source_takes_its_type_from_a_file_or_the_user(landed, tmp_path):
    path = tmp_path / "schema.json"
    path.write_text(StructType([StructField("celsius", StringType())]).json())
    assert rows(landed, decode="json", payloadSchema=str(path))[0]["payload"] == {"celsius": "21.5"}
    wanted = StructType([StructField("payload", StructType([StructField("celsius", FloatType())]))])
    reader = Amqp({"path": str(landed), "decode": "json"}).reader(wanted)
    (batch,) = reader.read(next(iter(reader.partitions())))
    assert isinstance(batch, pa.RecordBatch)
    assert batch.to_pylist()[0] == {"payload": {"celsius": 21.5}}


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"decode": "avro"}, "option payloadSchema is required with decode=avro"),
        ({"decode": "avro", "payloadSchema": "/nothing"}, "option payloadSchema: /nothing: No such file"),
        ({"decode": "protobuf", "payloadSchema": "/nothing"}, "option payloadMessage is required"),
        ({"decode": "full", "payloadSchema": "/nothing"}, "option payloadSchema needs decode=json or avro or protobuf"),
        ({"decode": "json", "subscribe": "b"}, "option payloadSchema is required: there are no JSON payloads"),
    ],
)
def test_source_without_its_schema_is_refused(landed, options, text):
    with pytest.raises(PipelineOptionError, match=f"^{text}"):
        rows(landed, **options)
