"""Columns of the Spark source: fields of a landed message, with their Arrow and Spark types.

A row is a landed message. Its place (lander, segment, ordinal …) comes from the segment, its batch time from the plan
of the batch. All other columns are decoded from the octets of the message, and only if they are requested.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from sluice.pipeline import decode
from sluice.pipeline.errors import PipelineOptionError

#: Arrow types by Spark's DDL names.
TYPES: dict[str, pa.DataType] = {
    "string": pa.string(),
    "binary": pa.binary(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "map<string,string>": pa.map_(pa.string(), pa.string()),
}
#: Columns stored in a segment's file.
LANDED: dict[str, str] = {
    "address": "string",
    "link": "string",
    "ingress_router": "string",
    "arrived": "timestamp",
    "ordinal": "int",
}
#: Columns from the folder and the name of a segment.
PLACE: dict[str, str] = {"lander": "string", "segment": "bigint", "landed_time": "timestamp"}
#: Column with one value for all rows of a batch.
BATCH_TIME = "batch_time"
BATCH: dict[str, str] = {BATCH_TIME: "timestamp"}
MESSAGE: dict[str, str] = {"message": "binary"}
BODY: dict[str, str] = {"body": "binary", "body_kind": "string"}
FIELDS: dict[str, str] = {
    "message_id": "string",
    "user_id": "binary",
    "to": "string",
    "subject": "string",
    "reply_to": "string",
    "correlation_id": "string",
    "content_type": "string",
    "content_encoding": "string",
    "absolute_expiry_time": "timestamp",
    "creation_time": "timestamp",
    "group_id": "string",
    "group_sequence": "bigint",
    "reply_to_group_id": "string",
    "durable": "boolean",
    "priority": "bigint",
    "ttl_ms": "bigint",
    "delivery_count": "bigint",
}
HEADERS: dict[str, str] = {
    "application_properties": "map<string,string>",
    "message_annotations": "map<string,string>",
}
DECODED = {**BODY, **FIELDS, **HEADERS}
ALL = {**MESSAGE, **LANDED, **PLACE, **BATCH, **DECODED}

#: Upper bound in octets for messages decoded at once. It keeps every column well below Arrow's limit of 2 GiB.
DECODE_OCTETS_MAX = 64 << 20


def columns_of_mode(mode: str, headers: bool) -> list[str]:
    """Return the names of the columns of `decode=MODE`, without payloads."""
    full = {**LANDED, **PLACE, **BATCH, **FIELDS, **BODY}
    columns = {
        "raw": {**MESSAGE, **LANDED, **PLACE, **BATCH},
        "body": {**LANDED, **PLACE, **BATCH, **BODY},
    }.get(mode, full)
    return list({**columns, **HEADERS} if headers else columns)


def ddl(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}` {ALL[name]}" for name in names)


def check_user_schema(fields: Iterable[tuple[str, str]]) -> list[str]:
    """Check a user's schema, given as (name, type in DDL), and return its column names. Raises PipelineOptionError."""
    names = []
    for name, kind in fields:
        if name not in ALL:
            raise PipelineOptionError(f"schema: there is no column {name!r}; there are {', '.join(ALL)}")
        if kind != ALL[name]:
            raise PipelineOptionError(f"schema: column {name!r} is {ALL[name]}, not {kind}")
        names.append(name)
    return names


def schema(names: Iterable[str]) -> pa.Schema:
    return pa.schema([(name, TYPES[ALL[name]]) for name in names])


def decoded_columns(messages: pa.Array, names: Sequence[str]) -> dict[str, pa.Array]:
    """Decode columns of DECODED from `messages` (binary, no nulls), by name.

    Raises OverflowError if a message is too large for a column.
    """
    if not names:
        return {}
    if messages.null_count:
        raise ValueError("a message is null")
    _, ends, octets = messages.buffers()
    if not len(messages):
        return {name: pa.array([], TYPES[DECODED[name]]) for name in names}
    found = decode.decode(
        memoryview(ends).cast("B").cast("i"),
        memoryview(octets).cast("B") if octets is not None and octets.size else memoryview(b""),
        messages.offset,
        len(messages),
        names,
    )
    return {name: _array(DECODED[name], len(messages), *found[name]) for name in names}


def _array(kind: str, rows: int, nulls: int, valid: bytes | None, *buffers: Any) -> pa.Array:
    validity = None if valid is None else pa.py_buffer(valid)
    if kind != "map<string,string>":
        return pa.Array.from_buffers(TYPES[kind], rows, [validity, *map(pa.py_buffer, buffers)], nulls)
    ends, entries, keys, value_nulls, value_valid, values = buffers
    pairs = pa.StructArray.from_arrays(
        [
            _array("string", entries, 0, None, *keys),
            _array("string", entries, value_nulls, value_valid, *values),
        ],
        fields=[pa.field("key", pa.string(), nullable=False), pa.field("value", pa.string())],
    )
    return pa.Array.from_buffers(TYPES[kind], rows, [validity, pa.py_buffer(ends)], nulls, children=[pairs])
