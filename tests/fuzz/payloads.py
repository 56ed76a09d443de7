"""Bodies of messages for the decoders of typed payloads: JSON, Avro and Protobuf, well-formed and damaged.

Any octets give a value or an error, never an exception, and never harm the rows beside them. Memory is bounded by the
size of the body. The libraries are imported by the runners only, because pyarrow starts threads, and the harness forks.
"""

import resource
import struct
from collections.abc import Callable
from functools import cache
from random import Random
from typing import TYPE_CHECKING, Any, Final

from sluice.router import json_codec
from tests.fuzz.samples import Case, case, damaged

if TYPE_CHECKING:
    from sluice.pipeline.payloads.codec import PayloadCodec

FACTOR: Final = 64  # octets of a column that an octet of a body may become
FIXED: Final = 4096  # octets of a column without bodies
#: Growth of the process that a body of some hundred octets may cause, with what the libraries allocate once; octets.
GROWTH: Final = 64 << 20
AVRO_SCHEMA: Final = {
    "type": "record",
    "name": "Reading",
    "fields": [
        {"name": "sensor", "type": "string"},
        {"name": "celsius", "type": ["null", "double"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "cost", "type": {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["OK", "BAD"]}},
        {"name": "id", "type": {"type": "fixed", "name": "Id", "size": 3}},
        {"name": "ratio", "type": "float"},
        {"name": "more", "type": {"type": "map", "values": {"type": "array", "items": ["null", "int"]}}},
    ],
}
LEAST_LONG: Final = -(1 << 63)
NOT_JSON: Final = ("1e400", "1" * 400, '"\\ud800"', "[" * 2000)

# -- bodies ------------------------------------------------------------------------------------------------------------


def json_body(rng: Random) -> Case:
    """Return an object with names of the type of `json_codecs`, and values that mostly do not fit."""
    atoms = [
        "null", "true", "0", "-1", "1.5", "1e308", "-0.0", "2147483648", "9223372036854775808",
        '""', '"x"', '"12.50"', '"1e999999999"', '"1e-9999999"', '"NaN"', '"-Infinity"', '"2026-01-31"', '"0001-01-01"',
        '"2026-01-31T08:00:00Z"', '"0001-01-01T00:00:00+23:59"', '"9999-12-31T23:59:59-23:59"', "[]", "{}", "[1, 2]",
        '{"hall": 3}', '{"hall": "x"}', '[[["x"]]]', '{"a": {"b": [{}]}}',
    ]  # fmt: skip
    names = ("celsius", "place", "tags", "at", "day", "cost", "ratio", "flag", "more", "other", "")

    def atom() -> str:
        depth = rng.choice((0,) * 8 + (1, 100, 300, 1000))  # 254 levels can be encoded, 1,023 decoded
        return "[" * depth + rng.choice(atoms if rng.random() < 0.97 else NOT_JSON) + "]" * depth

    pairs = ", ".join(f'"{rng.choice(names)}": {atom()}' for _ in range(rng.randrange(6)))
    text = rng.choice((f"{{{pairs}}}", f"{{{pairs}}}", atom()))
    return mostly_sound(rng, text.encode())


def mostly_sound(rng: Random, octets: bytes) -> Case:
    """Return a case that is damaged less often than those of other targets: decoders look at values afterwards."""
    return damaged(rng, octets) if rng.random() < 0.3 else case(octets)


def varint(value: int) -> bytes:
    """Return an unsigned number in the base-128 encoding that Avro and Protobuf share."""
    octets = bytearray()
    while value > 0x7F:
        octets.append(value & 0x7F | 0x80)
        value >>= 7
    octets.append(value)
    return bytes(octets)


def zigzag(value: int) -> bytes:
    return varint(((value << 1) ^ (value >> 63)) & ((1 << 64) - 1))


def _integer(rng: Random) -> int:
    return rng.choice((0, 1, -1, rng.randrange(-200, 200), 1 << 31, 1 << 40, LEAST_LONG, -LEAST_LONG - 1))


def _octets(rng: Random) -> bytes:
    return rng.choice((b"", b"hall", b"\xff\xfe", "ü".encode(), bytes(rng.randrange(256) for _ in range(9))))


def avro_body(rng: Random) -> Case:
    """Return a value of AVRO_SCHEMA: its fields in their order, some of them out of range or with false counts."""
    block = b"".join(rng.choice((zigzag(0), zigzag(1) + zigzag(_integer(rng)))) for _ in range(rng.randrange(4)))
    count = rng.choice((1, 2, _integer(rng)))
    items = zigzag(count) + (zigzag(_integer(rng)) if count < 0 else b"") + block + zigzag(0)
    entry = zigzag(1) + _counted(_octets(rng)) + items
    fields = (
        _counted(rng.choice((b"hall", b"hall", _octets(rng)))),
        rng.choice((zigzag(0), zigzag(1) + struct.pack("<d", rng.choice((21.5, float("nan"), float("inf")))))),
        zigzag(rng.choice((0, 1 << 40, _integer(rng)))),
        zigzag(rng.choice((0, 20_000, _integer(rng)))),
        _counted(rng.choice((b"\x04", b"", _octets(rng)))),
        zigzag(rng.choice((0, 1, 1, 1, _integer(rng)))),
        b"abc",
        struct.pack("<f", 1.5),
        rng.choice((entry, b"", zigzag(_integer(rng)))) + zigzag(0),
    )
    return mostly_sound(rng, b"".join(fields))


def _counted(octets: bytes) -> bytes:
    return zigzag(len(octets)) + octets


def protobuf_body(rng: Random) -> Case:
    return mostly_sound(rng, _message(rng, 0))


def _message(rng: Random, depth: int) -> bytes:
    """Return fields 1 to 12 in any order and number, with any wire type."""
    fields = b""
    for _ in range(rng.randrange(8)):
        number, wire = rng.randrange(1, 13), rng.choice((0, 0, 1, 2, 2, 2, 5, 3))
        fields += varint(number << 3 | wire)
        if wire == 0:
            fields += varint(rng.choice((0, 1, 7, 1 << 31, (1 << 64) - 1)))
        elif wire in (1, 5):
            fields += bytes(rng.randrange(256) for _ in range(8 if wire == 1 else 4))
        elif wire == 3:
            fields += varint(number << 3 | 4)
        else:
            inner = _message(rng, depth + 1) if depth < 4 and rng.random() < 0.6 else _octets(rng)
            fields += varint(rng.choice((len(inner), len(inner), 1 << 31))) + inner
    return fields


# -- decoders ----------------------------------------------------------------------------------------------------------


@cache
def json_decoder() -> "PayloadCodec":
    import pyarrow as pa

    from sluice.pipeline.payloads.json_payload import JsonCodec

    fields = {
        "celsius": pa.float64(), "place": pa.struct([("hall", pa.int32())]), "tags": pa.list_(pa.string()),
        "at": pa.timestamp("us", tz="UTC"), "day": pa.date32(), "cost": pa.decimal128(6, 2), "ratio": pa.float32(),
        "flag": pa.bool_(), "more": pa.map_(pa.string(), pa.int64()),
    }  # fmt: skip
    return JsonCodec(pa.struct(list(fields.items())))


@cache
def avro_decoder() -> "PayloadCodec":
    from sluice.pipeline.payloads.avro_payload import AvroCodec

    return AvroCodec(json_codec.encode(AVRO_SCHEMA).decode(), "reading.avsc")


@cache
def protobuf_decoder() -> "PayloadCodec":
    from google.protobuf import descriptor_pb2

    from sluice.pipeline.payloads.protobuf_payload import ProtobufCodec

    field = descriptor_pb2.FieldDescriptorProto
    one, many = field.LABEL_OPTIONAL, field.LABEL_REPEATED
    file = descriptor_pb2.FileDescriptorProto(name="r.proto", package="plant", syntax="proto3")
    state = file.enum_type.add(name="State")
    state.value.add(name="OK", number=0)
    place = file.message_type.add(name="Place")
    place.field.add(name="hall", number=1, type=field.TYPE_SINT32, label=one)
    reading = file.message_type.add(name="Reading")
    entry = reading.nested_type.add(name="MoreEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=field.TYPE_STRING, label=one)
    entry.field.add(name="value", number=2, type=field.TYPE_MESSAGE, type_name=".plant.Place", label=one)
    for number, (kind, label, name) in enumerate(
        (
            (field.TYPE_DOUBLE, one, ""), (field.TYPE_UINT64, one, ""), (field.TYPE_MESSAGE, one, ".plant.Place"),
            (field.TYPE_STRING, many, ""), (field.TYPE_ENUM, many, ".plant.State"), (field.TYPE_BOOL, many, ""),
            (field.TYPE_BYTES, one, ""), (field.TYPE_MESSAGE, many, ".plant.Place"), (field.TYPE_FIXED32, one, ""),
            (field.TYPE_SFIXED64, one, ""), (field.TYPE_FLOAT, one, ""),
            (field.TYPE_MESSAGE, many, ".plant.Reading.MoreEntry"),
        ), start=1,
    ):  # fmt: skip
        called = "more" if name.endswith("Entry") else f"f{number}"
        reading.field.add(name=called, number=number, type=kind, label=label, type_name=name or None)
    return ProtobufCodec(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString(), "plant.Reading", "r.desc")


# -- runners -----------------------------------------------------------------------------------------------------------


def run_json(given: Case) -> None:
    """Decode a body to a given type, and to the type that is inferred from it."""
    from sluice.pipeline.payloads.codec import PayloadError
    from sluice.pipeline.payloads.json_payload import JsonCodec, infer, parse

    body = bytes.fromhex(given["octets"])
    _decode(json_decoder, "json", body, b'{"celsius": 1}')
    try:
        kind = infer([parse(body)])
    except (PayloadError, ValueError):  # not JSON, or null
        return
    error = _decode(lambda: JsonCodec(kind), "json", body, b"null")
    fits = error is None or "cannot be a text: " in error  # too many levels
    assert fits, f"a sample does not fit its own type {kind}: {error}"


def run_avro(given: Case) -> None:
    good = _counted(b"hall") + zigzag(0) * 5 + b"abc" + bytes(4) + zigzag(0)
    _decode(avro_decoder, "avro", bytes.fromhex(given["octets"]), good)


def run_protobuf(given: Case) -> None:
    _decode(protobuf_decoder, "protobuf", bytes.fromhex(given["octets"]), b"")


def _decode(made: Callable[[], "PayloadCodec"], form: str, body: bytes, good: bytes) -> str | None:
    """Decode a body between two good ones, which must not notice it; return its error."""
    import pyarrow as pa

    from sluice.pipeline.payloads.codec import ERROR_MOST, KINDS, payload_columns

    codec = made()

    def decode(*bodies: bytes) -> tuple[Any, Any]:
        found = pa.array(["data"] * len(bodies))
        [columns] = payload_columns(codec, KINDS[form], [True] * len(bodies), pa.array(bodies, pa.binary()), found)
        return columns

    alone, errors = decode(good)
    assert errors.to_pylist() == [None]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    payloads, errors = decode(good, body, good)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10
    assert grown <= GROWTH, f"{grown} octets of memory for a body of {len(body)}"
    assert payloads.nbytes <= FACTOR * len(body) + FIXED, f"a column of {payloads.nbytes} octets"
    payloads.validate(full=True)
    for row in (0, 2):
        assert payloads.slice(row, 1).equals(alone)
        assert not errors[row].is_valid
    error: str | None = errors[1].as_py()
    assert error is None or (len(error) <= ERROR_MOST and not payloads[1].is_valid)
    if error is None and not payloads[1].is_valid:
        assert form == "json"
        assert json_codec.decode(body) is None
    return error
