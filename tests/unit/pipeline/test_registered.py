"""Payloads whose schemas are in a registry: formats, evolution, references, faults of the registry, hostile ids."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("fastavro")
pytest.importorskip("google.protobuf")
pytest.importorskip("pyspark")
pytest.importorskip("requests")
import fastavro
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from sluice.pipeline.errors import PipelineError, PipelineOptionError, RegistryError
from sluice.pipeline.options import RegistryOptions, source_options
from sluice.pipeline.payloads import MADE, registered, registry
from sluice.pipeline.payloads.avro_payload import AvroCodec
from sluice.pipeline.payloads.codec import PayloadError
from sluice.pipeline.payloads.json_schema import json_schema_type
from sluice.pipeline.payloads.payload import open_payload
from sluice.pipeline.payloads.protobuf_payload import ProtobufCodec
from sluice.pipeline.segments import Landing, LandingLog
from sluice.router.client import Message
from tests.pipeline.segments import land
from tests.unit.pipeline.schema_registry import RegistryServer
from tests.unit.pipeline.test_payloads import rows

FIRST = {"type": "record", "name": "R", "namespace": "plant", "fields": [{"name": "celsius", "type": "float"}]}
SECOND = {
    **FIRST,
    "fields": [{"name": "celsius", "type": "double"}, {"name": "hall", "type": ["null", "string"], "default": None}],
}


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    made = RegistryServer()
    yield made
    made.stop()


def framed(number: int, octets: bytes) -> bytes:
    return b"\0" + number.to_bytes(4) + octets


def avro(schema: Any, value: Any) -> bytes:
    octets = io.BytesIO()
    fastavro.schemaless_writer(octets, fastavro.parse_schema(schema), value)
    return octets.getvalue()


def landed(folder: Path, *bodies: bytes) -> Path:
    landing = Landing.create(str(folder / "landing"))
    land(landing, LandingLog("one", "a"), 0, [Message(body) for body in bodies])
    return folder / "landing"


def payloads(path: Path, server: RegistryServer, **options: str) -> list[Any]:
    """Return the payload of each row, or its error."""
    found = rows(path, schemaRegistry=server.url, **options)
    return [each["payload_error"] if each["payload"] is None else each["payload"] for each in found]


# -- formats -----------------------------------------------------------------------------------------------------------


def test_avro_bodies_of_all_versions_become_the_latest_one(server: RegistryServer, tmp_path: Path) -> None:
    server.register(7, "reading", FIRST)
    server.register(9, "reading", SECOND)
    old, new = framed(7, avro(FIRST, {"celsius": 1.5})), framed(9, avro(SECOND, {"celsius": 2.5, "hall": "b"}))
    found = payloads(landed(tmp_path, old, new), server, decode="avro", payloadSubject="reading")
    assert found == [{"celsius": 1.5, "hall": None}, {"celsius": 2.5, "hall": "b"}]


def test_avro_bodies_become_the_schema_of_a_file(server: RegistryServer, tmp_path: Path) -> None:
    server.register(7, "reading", SECOND)
    (tmp_path / "r.avsc").write_text(json.dumps({**FIRST, "fields": [{"name": "celsius", "type": "double"}]}))
    path = landed(tmp_path, framed(7, avro(SECOND, {"celsius": 2.5, "hall": "b"})))
    assert payloads(path, server, decode="avro", payloadSchema=str(tmp_path / "r.avsc")) == [{"celsius": 2.5}]


def test_avro_schema_may_refer_to_others(server: RegistryServer, tmp_path: Path) -> None:
    place = {"type": "record", "name": "plant.Place", "fields": [{"name": "hall", "type": "string"}]}
    reading = {**FIRST, "fields": [{"name": "place", "type": "plant.Place"}]}
    server.register(1, "place", place)
    server.register(2, "reading", reading, **{"plant.Place": "place"})
    body = avro({**FIRST, "fields": [{"name": "place", "type": place}]}, {"place": {"hall": "a"}})
    path = landed(tmp_path, framed(2, body))
    assert payloads(path, server, decode="avro", payloadSubject="reading") == [{"place": {"hall": "a"}}]


def test_json_bodies_have_the_type_of_the_json_schema(server: RegistryServer, tmp_path: Path) -> None:
    schema = {
        "type": "object",
        "properties": {
            "celsius": {"type": "number"},
            "at": {"type": "string", "format": "date-time"},
            "place": {"$ref": "#/$defs/place"},
            "tags": {"type": "array", "items": {"type": ["null", "string"]}},
            "more": {},
        },
        "$defs": {"place": {"oneOf": [{"type": "null"}, {"type": "object", "properties": {"n": {"type": "integer"}}}]}},
    }
    server.register(3, "reading", schema, "JSON")
    body = b'{"celsius": 21, "at": "2026-01-31T08:00:00Z", "place": {"n": 3}, "tags": ["a", null], "more": [1]}'
    found = payloads(landed(tmp_path, framed(3, body)), server, decode="json", payloadSubject="reading")
    at = datetime(2026, 1, 31, 8, tzinfo=UTC)
    assert found == [{"celsius": 21.0, "at": at, "place": {"n": 3}, "tags": ["a", None], "more": "[1]"}]


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"$ref": "other.json#/a"}, "only references within the schema"),
        ({"$ref": "#/nothing"}, "leads nowhere"),
        ({"$ref": "#"}, "a schema contains itself"),
    ],
)
def test_json_schema_that_cannot_be_a_type_is_refused(schema: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        json_schema_type(schema)


def protobuf_files() -> tuple[Any, Any]:
    """Return the file of a message Place, and one that imports it, with messages Other, Reading and Reading.Inner."""
    field = descriptor_pb2.FieldDescriptorProto
    place = descriptor_pb2.FileDescriptorProto(name="default", package="plant", syntax="proto3")
    place.message_type.add(name="Place").field.add(name="hall", number=1, type=field.TYPE_INT32, label=1)
    file = descriptor_pb2.FileDescriptorProto(name="default", package="plant", syntax="proto3")
    file.dependency.extend(["place.proto", "google/protobuf/timestamp.proto"])
    file.message_type.add(name="Other")
    reading = file.message_type.add(name="Reading")
    reading.nested_type.add(name="Inner")
    reading.field.add(name="celsius", number=1, type=field.TYPE_DOUBLE, label=1)
    reading.field.add(name="place", number=2, type=field.TYPE_MESSAGE, type_name=".plant.Place", label=1)
    reading.field.add(name="at", number=3, type=field.TYPE_MESSAGE, type_name=".google.protobuf.Timestamp", label=1)
    return place, file


def test_protobuf_bodies_have_the_message_that_their_path_names(server: RegistryServer, tmp_path: Path) -> None:
    place, file = protobuf_files()
    server.register(4, "place", place, "PROTOBUF")
    server.register(5, "reading", file, "PROTOBUF", **{"place.proto": "place"})
    pool = descriptor_pool.DescriptorPool()
    timestamp = descriptor_pb2.FileDescriptorProto()
    from google.protobuf import timestamp_pb2

    timestamp_pb2.DESCRIPTOR.CopyToProto(timestamp)
    place.name = "place.proto"
    for each in (timestamp, place, file):
        pool.Add(each)
    made = message_factory.GetMessageClass(pool.FindMessageTypeByName("plant.Reading"))
    body = made(celsius=2.5, place={"hall": 3}, at={"seconds": 5}).SerializeToString()
    path = landed(
        tmp_path,
        framed(5, b"\x02\x02" + body),
        framed(5, b"\0" + body),
        framed(5, b"\x04\x02\0"),
        framed(5, b"\x02\x80"),
    )
    found = payloads(path, server, decode="protobuf", payloadSubject="reading", payloadMessage="plant.Reading")
    assert found == [
        {"celsius": 2.5, "place": {"hall": 3}, "at": {"seconds": 5, "nanos": 0}},
        "message 0 of schema 5 is plant.Other",
        "message 1.0 of schema 5 is plant.Reading.Inner",
        "the path of the message is cut short",
    ]
    assert (
        payloads(path, server, decode="protobuf", payloadSubject="place")[0] == "message 1 of schema 5 is plant.Reading"
    )


@given(st.binary(max_size=60))
def test_path_of_any_octets_is_a_path_or_an_error(octets: bytes) -> None:
    try:
        path, at = registered.read_path(octets)
    except PayloadError:
        return
    assert 1 <= len(path) <= 32
    assert at <= len(octets)


# -- ids ---------------------------------------------------------------------------------------------------------------


def test_bodies_without_a_usable_schema_are_errors(server: RegistryServer, tmp_path: Path) -> None:
    server.register(7, "reading", FIRST)
    server.register(8, "json", {"type": "object"}, "JSON")
    server.register(9, "list", {"type": "array", "items": "null"})
    body = avro(FIRST, {"celsius": 1.5})
    path = landed(
        tmp_path, framed(7, body), framed(1, body), framed(8, body), framed(9, body), body, framed(7, body + b"x"), b""
    )
    found = payloads(path, server, decode="avro", payloadSubject="reading")
    assert found[0] == {"celsius": 1.5}
    assert found[1] == "schema 1 is not in the registry"
    assert found[2] == "schema 8 is of the format json"
    assert found[3].startswith("schema 9: arrays of items without octets")
    assert found[4] == found[6] == "no octet 0 and schema id at the beginning"
    assert found[5] == "not Avro of this schema: 1 octets are left"


def test_flood_of_ids_costs_few_requests_and_no_other_message(server: RegistryServer, tmp_path: Path) -> None:
    server.register(7, "reading", FIRST)
    good = framed(7, avro(FIRST, {"celsius": 1.5}))
    flood = [framed(1000 + number, b"") for number in range(5 * registered.UNKNOWN_MOST)]
    registry._kept.clear()
    found = payloads(landed(tmp_path, *flood, good, good), server, decode="avro", payloadSubject="reading")
    assert found[-2:] == [{"celsius": 1.5}] * 2
    assert found.count("schema 1000 is not in the registry") == 1
    assert found[-3].startswith("schema 1499 was not looked for: 100 other ids of these messages do not exist")
    assert len(server.requests) <= registered.UNKNOWN_MOST + 5


def test_schema_is_requested_once_by_a_process(server: RegistryServer, tmp_path: Path) -> None:
    server.register(7, "reading", FIRST)
    path = landed(tmp_path, *[framed(7, avro(FIRST, {"celsius": 1.5}))] * 3)
    for _ in range(2):
        payloads(path, server, decode="avro", payloadSubject="reading")
    assert server.requests.count("/schemas/ids/7") == 1


# -- faults of the registry --------------------------------------------------------------------------------------------


def one_body(server: RegistryServer, folder: Path) -> Path:
    server.register(7, "reading", FIRST)
    return landed(folder, framed(7, avro(FIRST, {"celsius": 1.5})))


def test_registry_that_is_overloaded_is_asked_again(server: RegistryServer, tmp_path: Path) -> None:
    path = one_body(server, tmp_path)
    server.faults = [503, 429, 500]
    assert payloads(path, server, decode="avro", payloadSubject="reading") == [{"celsius": 1.5}]


def test_repeated_requests_are_in_the_first_row_after_them(server: RegistryServer, tmp_path: Path) -> None:
    server.register(7, "reading", FIRST)
    server.register(9, "reading", SECOND)
    first, second = framed(7, avro(FIRST, {"celsius": 1.5})), framed(9, avro(SECOND, {"celsius": 2.5}))
    options = {"path": str(tmp_path), "decode": "avro", "schemaRegistry": server.url, "payloadSubject": "reading"}
    made = pickle.loads(pickle.dumps(open_payload(source_options(options), None)))

    def counts(*bodies: bytes) -> tuple[list[int], list[str | None]]:
        columns = {"body": list(bodies), "body_kind": ["data"] * len(bodies), "content_type": [""] * len(bodies)}
        found = [each.to_pydict() for each in made.add(pa.RecordBatch.from_pydict(columns), MADE)]
        assert [value for each in found for value in each["payload_error"]] == [None] * len(bodies)
        retries = [value for each in found for value in each["registry_retries"]]
        return retries, [value for each in found for value in each["registry_error"]]

    server.faults = [503, 429]
    retries, errors = counts(first, first)
    assert retries == [2, 0]
    assert errors[0] is not None
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ /schemas/ids/7: status 429", errors[0])
    assert errors[1] is None
    assert counts(first, first) == ([0, 0], [None, None]), "they were counted before"
    server.faults = [500]
    assert counts(first, second)[0] == [1, 0]


def test_registry_that_asks_to_wait_for_an_hour_is_asked_again_at_once(server: RegistryServer, tmp_path: Path) -> None:
    path = one_body(server, tmp_path)
    server.faults = [503]
    server.headers = {"Retry-After": "3600"}
    assert payloads(path, server, decode="avro", payloadSubject="reading") == [{"celsius": 1.5}]


def test_answer_that_trickles_ends_the_query_at_the_deadline(
    server: RegistryServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = one_body(server, tmp_path)
    server.trickle = 0.05
    server.body = b" " * 100_000  # 5000 s
    monkeypatch.setattr(registry, "ANSWER_SECONDS", 1)
    with pytest.raises(RegistryError, match="/subjects/reading/versions/latest: the answer is cut short"):
        payloads(path, server, decode="avro", payloadSubject="reading")


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (
            {"faults": [503] * 5},
            "/subjects/reading/versions/latest: status 503, and not an answer of a schema registry",
        ),
        ({"faults": [404]}, "status 404, and not an answer of a schema registry"),
        ({"body": b"<html>"}, "status 200, and not an answer of a schema registry"),
        ({"body": b"[]"}, "status 200, and not an answer of a schema registry"),
        ({"body": b"{}"}, "/subjects/reading/versions/latest has no schema"),
        ({"body": b'{"schema": "{}", "references": 5}'}, "/subjects/reading/versions/latest has no schema"),
        ({"body": b" " * (1 << 21)}, "the answer has more than 1048576 octets"),
        (
            {"body": gzip.compress(b" " * (1 << 28)), "headers": {"Content-Encoding": "gzip"}},
            "status 200, and not an answer of a schema registry",
        ),
        ({"location": "http://127.0.0.1:1/"}, "status 302, and not an answer of a schema registry"),
        ({"credentials": ("u", "p")}, "status 401: it does not accept the user and password"),
    ],
)
def test_answer_that_is_none_ends_the_query(
    server: RegistryServer, tmp_path: Path, change: dict[str, Any], text: str
) -> None:
    path = one_body(server, tmp_path)
    for name, value in change.items():
        setattr(server, name, value)
    with pytest.raises(RegistryError, match=f"^schema registry {server.url}.*{text}"):
        payloads(path, server, decode="avro", payloadSubject="reading")


def test_registry_that_does_not_answer_ends_the_query(server: RegistryServer, tmp_path: Path) -> None:
    path = one_body(server, tmp_path)
    url = server.url
    server.stop()
    with pytest.raises(RegistryError, match=f"^schema registry {url}: /subjects/reading/versions/latest: no answer"):
        payloads(path, server, decode="avro", payloadSubject="reading")


def test_schemas_that_refer_to_each_other_are_refused(server: RegistryServer, tmp_path: Path) -> None:
    path = one_body(server, tmp_path)
    server.schemas[7]["references"] = [{"name": "plant.R", "subject": "reading", "version": 1}]
    with pytest.raises(RegistryError, match="schema 'plant.R' refers to itself, or to too many"):
        payloads(path, server, decode="avro", payloadSubject="reading")


def test_password_is_in_no_plan_and_no_error(
    server: RegistryServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = one_body(server, tmp_path)
    server.credentials = ("spark", "geheim-ü")
    (tmp_path / "password").write_text("geheim-ü\n")
    monkeypatch.setenv("REGISTRY_PASSWORD", "geheim-ü")
    options = {"decode": "avro", "payloadSubject": "reading", "schemaRegistryUser": "spark"}
    for secret in (
        {"schemaRegistryPasswordFile": str(tmp_path / "password")},
        {"schemaRegistryPasswordEnv": "REGISTRY_PASSWORD"},
    ):
        assert payloads(path, server, **options, **secret) == [{"celsius": 1.5}]
    client = registry.SchemaRegistry(RegistryOptions(server.url, "spark", "", "REGISTRY_PASSWORD", ""))
    assert client.latest("reading", "avro") is not None
    assert b"geheim" not in pickle.dumps(client)
    server.credentials = ("spark", "other")
    with pytest.raises(RegistryError) as refused:
        payloads(path, server, **options, schemaRegistryPasswordEnv="REGISTRY_PASSWORD")
    assert "geheim" not in str(refused.value)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"schemaRegistry": "ftp://a"}, "option schemaRegistry: expected http://HOST"),
        ({"schemaRegistry": "http://u:p@a"}, "option schemaRegistry: no user and password here"),
        ({"payloadSubject": "a"}, "option payloadSubject needs schemaRegistry"),
        ({"schemaRegistry": "http://a"}, "option schemaRegistry needs payloadSubject or payloadSchema"),
        ({"schemaRegistry": "http://a", "payloadSubject": "a", "payloadSchema": "b"}, "only one of them"),
        ({"schemaRegistry": "http://a", "schemaRegistryUser": "u"}, "must be given together"),
        (
            {"schemaRegistry": "http://a", "schemaRegistryUser": "u", "schemaRegistryPasswordEnv": "NOT_SET",
             "payloadSubject": "a"},
            "option schemaRegistryPasswordEnv: NOT_SET is not set here",
        ),
        (
            {"schemaRegistry": "http://a", "schemaRegistryUser": "u", "schemaRegistryPasswordFile": "/nothing",
             "payloadSubject": "a"},
            "option schemaRegistryPasswordFile: .*No such file",
        ),
    ],
)  # fmt: skip
def test_wrong_options_of_a_registry_are_refused(options: dict[str, str], text: str, tmp_path: Path) -> None:
    with pytest.raises(PipelineOptionError, match=text):
        rows(landed(tmp_path, b""), decode="avro", **options)


def test_subject_that_does_not_exist_or_has_another_format_is_refused(server: RegistryServer, tmp_path: Path) -> None:
    path = one_body(server, tmp_path)
    with pytest.raises(PipelineError, match="option payloadSubject: the registry has no subject 'none'"):
        payloads(path, server, decode="avro", payloadSubject="none")
    with pytest.raises(PipelineError, match="option payloadSubject: 'reading' has the format avro, not json"):
        payloads(path, server, decode="json", payloadSubject="reading")


# -- schemas that grow -------------------------------------------------------------------------------------------------

DOUBLINGS = 60


def doubling_avro() -> str:
    """Return a schema of records that contain the next one twice each."""
    schema: Any = {"type": "record", "name": f"R{DOUBLINGS}", "fields": [{"name": "x", "type": "int"}]}
    for number in reversed(range(DOUBLINGS)):
        fields = [{"name": "a", "type": schema}, {"name": "b", "type": f"R{number + 1}"}]
        schema = {"type": "record", "name": f"R{number}", "fields": fields}
    return json.dumps(schema)


def doubling_json() -> Any:
    """Return a schema with as many levels as are supported, each of which contains the next one eight times."""
    found = {
        f"d{number}": {"type": "object", "properties": {each: {"$ref": f"#/d/d{number + 1}"} for each in "abcdefgh"}}
        for number in range(15)
    }
    return {"$ref": "#/d/d0", "d": {**found, "d15": {"type": "integer"}}}


def doubling_protobuf() -> bytes:
    file = descriptor_pb2.FileDescriptorProto(name="p.proto", package="p")
    for number in range(DOUBLINGS):
        message = file.message_type.add(name=f"M{number}")
        for at, name in enumerate("ab", 1):
            message.field.add(name=name, number=at, type=11, label=1, type_name=f".p.M{number + 1}")
    file.message_type.add(name=f"M{DOUBLINGS}")
    octets: bytes = descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()
    return octets


@pytest.mark.parametrize(
    "make",
    [
        lambda: AvroCodec(doubling_avro(), "schema 7"),
        lambda: ProtobufCodec(doubling_protobuf(), "p.M0", "schema 7"),
        lambda: json_schema_type(doubling_json()),
    ],
)
def test_schema_whose_type_would_have_any_number_of_fields_is_refused(make: Callable[[], Any]) -> None:
    with pytest.raises((PipelineOptionError, ValueError), match="the type has more than 10000 fields"):
        make()


def test_hostile_schema_of_an_id_is_an_error_of_its_message(server: RegistryServer, tmp_path: Path) -> None:
    """Clients may register schemas. One cannot end the query of others by it."""
    server.register(8, "other", json.loads(doubling_avro()))
    server.register(7, "reading", FIRST)
    path = landed(tmp_path, framed(8, b"x"), framed(7, avro(FIRST, {"celsius": 1.5})))
    refused, decoded = payloads(path, server, decode="avro", payloadSubject="reading")
    assert "schema 8: the type has more than 10000 fields" in refused
    assert decoded == {"celsius": 1.5}
