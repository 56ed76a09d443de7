"""Avro payloads: the binary encoding of one value, without a header."""

import io
from collections.abc import Sequence
from typing import Any

import fastavro
import pyarrow as pa

from sluice.pipeline.errors import PipelineOptionError
from sluice.pipeline.payloads.codec import FieldCount, PayloadError, ValueCount
from sluice.router import json_codec

SIMPLE = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "fixed": pa.binary(),
    "enum": pa.string(),
}
LOGICAL = {
    ("int", "date"): pa.date32(),
    ("long", "timestamp-millis"): pa.timestamp("us", tz="UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", tz="UTC"),
}
#: Logical types that fastavro decodes to values of Python without an Arrow type of theirs here.
REFUSED = ("time-millis", "time-micros", "local-timestamp-millis", "local-timestamp-micros", "uuid", "duration")
#: Octets of a decimal; 38 digits need 16. Python needs minutes for a number of a million octets.
DECIMAL_MOST = 256


def _bound_decimals(kind: str) -> None:
    """Refuse long decimals of a type of Avro before fastavro makes numbers of them, also for other users of fastavro
    in this process."""
    read = fastavro.read.LOGICAL_READERS[f"{kind}-decimal"]

    def read_bounded(octets: bytes, *schemas: Any) -> Any:
        if len(octets) > DECIMAL_MOST:
            raise ValueError(f"a decimal of {len(octets)} octets; at most {DECIMAL_MOST} are supported")
        return read(octets, *schemas)

    fastavro.read.LOGICAL_READERS[f"{kind}-decimal"] = read_bounded


_bound_decimals("bytes")
_bound_decimals("fixed")


class AvroCodec:
    """Decoder of Avro values of one schema (the text of an .avsc file).

    named: texts of schemas whose names this one uses. reader: schema of the result, of another codec; None: the same.
    """

    def __init__(self, schema: str, where: str, named: Sequence[str] = (), reader: Any = None) -> None:
        names: dict[str, Any] = {}
        try:
            for each in named:
                fastavro.parse_schema(json_codec.decode(each), names)
            self.schema: Any = fastavro.parse_schema(json_codec.decode(schema), dict(names))  # with complete names
        except (
            ValueError, KeyError, TypeError, AttributeError, RecursionError, fastavro.schema.SchemaParseException
        ) as error:  # fmt: skip
            raise PipelineOptionError(f"{where}: not a schema of Avro: {error}") from None
        self._reader = reader
        try:
            self.type = _type(self.schema, names, (), FieldCount())
        except (ValueError, RecursionError) as error:
            raise PipelineOptionError(f"{where}: {error}") from None

    def decode(self, body: bytes, count: ValueCount | None = None) -> Any:
        if count is not None:
            count.made += len(body)  # at most: each value has an octet, unless a reader's schema has a default for it
        octets = io.BytesIO(body)
        try:
            value = fastavro.schemaless_reader(octets, self.schema, self._reader)
        except Exception as error:  # noqa: BLE001 - fastavro raises whatever damaged octets lead to
            raise PayloadError(f"not Avro of this schema: {type(error).__name__} {error}") from None
        if octets.tell() != len(body):
            raise PayloadError(f"not Avro of this schema: {len(body) - octets.tell()} octets are left")
        return value


def _type(schema: Any, names: dict[str, Any], inside: tuple[str, ...], count: FieldCount) -> pa.DataType:
    """Return the Arrow type of a schema. names: types defined so far. inside: records around it. Raises ValueError."""
    count.add()
    if isinstance(schema, list):
        kinds = [each for each in schema if each != "null"]
        if len(kinds) != 1:
            raise ValueError("only unions of null and one other type are supported")
        return _type(kinds[0], names, inside, count)
    if isinstance(schema, str):
        if schema in inside:
            raise ValueError(f"type {schema} contains itself, which Spark's types cannot")
        if schema in names:
            return _type(names[schema], names, inside, count)
        if schema not in SIMPLE:
            raise ValueError(f"type {schema!r} is not supported")
        return SIMPLE[schema]
    kind, logical = schema["type"], schema.get("logicalType")
    if logical in REFUSED:
        raise ValueError(f"logical type {logical} is not supported")
    if isinstance(kind, list | dict):
        return _type(kind, names, inside, count)
    if "name" in schema:
        names[schema["name"]] = schema
    if kind in ("record", "error"):
        inner = (*inside, schema["name"])
        return pa.struct(
            [pa.field(each["name"], _type(each["type"], names, inner, count)) for each in schema["fields"]]
        )
    if kind == "array":
        if _may_be_empty(schema["items"], names, count):
            raise ValueError(
                "arrays of items without octets are not supported: few octets could mean any number of them"
            )
        return pa.list_(_type(schema["items"], names, inside, count))
    if kind == "map":
        return pa.map_(pa.string(), _type(schema["values"], names, inside, count))
    if logical == "decimal":
        return pa.decimal128(schema["precision"], schema.get("scale", 0))
    if (kind, logical) in LOGICAL:
        return LOGICAL[kind, logical]
    return _type(kind, names, inside, count) if kind not in SIMPLE else SIMPLE[kind]


def _may_be_empty(schema: Any, names: dict[str, Any], count: FieldCount) -> bool:
    """Return True if a value of a schema may have no octets. Raises ValueError."""
    count.add()
    if isinstance(schema, list):  # the branch has at least one
        return False
    if isinstance(schema, str):
        return schema == "null" or (schema in names and _may_be_empty(names[schema], names, count))
    if schema["type"] in ("record", "error"):
        return all(_may_be_empty(each["type"], names, count) for each in schema["fields"])
    if schema["type"] == "fixed":
        return not schema["size"]
    return isinstance(schema["type"], list | dict | str) and _may_be_empty(schema["type"], names, count)
