"""Payloads of a source: its codec, and which messages are decoded."""

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa

from sluice.pipeline import columns
from sluice.pipeline.errors import PayloadRefusedError, PipelineOptionError
from sluice.pipeline.options import SourceOptions
from sluice.pipeline.payloads import ERROR, MADE, PAYLOAD, RETRIES, RETRY_ERROR
from sluice.pipeline.payloads.codec import FRAMED, KINDS, PayloadCodec, PayloadError, PreparedCodec, payload_columns
from sluice.pipeline.payloads.json_payload import JsonCodec, infer, parse
from sluice.pipeline.payloads.json_schema import json_schema_type
from sluice.pipeline.prerequisites import require
from sluice.pipeline.reading import read_segment
from sluice.pipeline.segments import Landing
from sluice.router import json_codec

#: Columns from which payloads are made.
NEEDED = ("body", "body_kind", "content_type")
#: Columns that name a message in an error, as far as the query reads them.
PLACE = ("lander", "address", "segment", "ordinal")
#: Messages, and segments, from which a type of JSON payloads is inferred.
SAMPLES, SAMPLED_SEGMENTS = 1000, 100


class Payload:
    """Maker of the columns MADE. Pickled, so that nodes need no schema files.

    fails: a body that cannot be decoded raises PayloadRefusedError.
    """

    def __init__(
        self, codec: PayloadCodec, kinds: Sequence[str], content_types: Sequence[str], *, fails: bool = False
    ) -> None:
        self.codec = codec
        self._kinds = kinds
        self._content_types = frozenset(content_types)
        self._fails = fails

    def add(self, batch: pa.RecordBatch, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the columns `names` of a batch that has NEEDED, and of its payloads, some rows at a time.

        Raises PayloadRefusedError.
        """
        wanted = list(decoded_rows(batch.column("content_type"), self._content_types))
        if isinstance(self.codec, PreparedCodec):
            self.codec.prepare(batch.column("body").filter(pa.array(wanted, pa.bool_())))
        first = 0
        for values in payload_columns(self.codec, self._kinds, wanted, batch.column("body"), batch.column("body_kind")):
            rows = batch.slice(first, len(values[1]))
            first += len(rows)
            if self._fails and values[1].null_count < len(rows):
                refuse_first(rows, values[1])
            added = dict(zip(MADE, (*values, *self._retries(len(rows), names)), strict=True))
            arrays = [added[name] if name in added else rows.column(name) for name in names]
            yield pa.RecordBatch.from_arrays(arrays, names=list(names))

    def _retries(self, rows: int, names: Sequence[str]) -> tuple[pa.Array, pa.Array]:
        """Return the columns of the repeated requests to the registry: all are in the first row."""
        counts: list[int] = [0] * rows
        errors: list[str | None] = [None] * rows
        if rows and RETRIES in names and isinstance(self.codec, PreparedCodec):
            counts[0], errors[0] = self.codec.take_retries()
        return pa.array(counts, pa.int64()), pa.array(errors, pa.string())


def refuse_first(batch: pa.RecordBatch, errors: pa.Array) -> None:
    """Raise PayloadRefusedError with the place of the first message that has an error."""
    row = errors.is_valid().index(True).as_py()
    place = ", ".join(f"{name} {batch.column(name)[row].as_py()}" for name in PLACE if name in batch.schema.names)
    raise PayloadRefusedError(f"a payload cannot be decoded ({place or 'no column tells its place'}): {errors[row]}")


def decoded_rows(found: pa.Array, wanted: frozenset[str]) -> Iterator[bool]:
    """Yield True for each content type that is wanted; parameters such as charset do not count."""
    for value in found.to_pylist():
        yield not wanted or (value is not None and value.partition(";")[0].strip().lower() in wanted)


def open_payload(options: SourceOptions, kind: pa.DataType | None) -> Payload:
    """Return the payloads of a source. kind: the type that Spark expects, None if it asks for it.

    Raises PipelineOptionError, MissingError.
    """
    registered = bool(options.registry.url)
    codec = _registered_codec(options, kind) if registered else _codec(options, kind)
    kinds = FRAMED if registered else KINDS[options.decode]
    return Payload(codec, kinds, options.payload_types, fails=options.payload_fails)


def _codec(options: SourceOptions, kind: pa.DataType | None) -> PayloadCodec:
    path = options.payload_schema
    if options.decode == "json":
        if kind is None:
            kind = _json_type(path) if path else _inferred(options)
        return JsonCodec(kind)
    if not path:
        raise PipelineOptionError(f"option payloadSchema is required with decode={options.decode}")
    if options.decode == "avro":
        require("fastavro", extra="payloads")
        from sluice.pipeline.payloads.avro_payload import AvroCodec

        return AvroCodec(_read(path).decode(errors="replace"), f"option payloadSchema: {path}")
    require("google.protobuf", extra="payloads")
    if not options.payload_message:
        raise PipelineOptionError(
            "option payloadMessage is required with decode=protobuf: the full name of the message"
        )
    from sluice.pipeline.payloads.protobuf_payload import ProtobufCodec

    return ProtobufCodec(_read(path), options.payload_message, f"option payloadSchema: {path}")


def _registered_codec(options: SourceOptions, kind: pa.DataType | None) -> PayloadCodec:
    """Return the codec of bodies whose schemas are in a registry."""
    require("requests", extra="payloads")
    from sluice.pipeline.payloads import registered
    from sluice.pipeline.payloads.registry import SchemaRegistry

    registry = SchemaRegistry(options.registry)
    path, subject, mode = options.payload_schema, options.payload_subject, options.decode
    if not path and not subject and (mode != "json" or kind is None):
        raise PipelineOptionError("option schemaRegistry needs payloadSubject or payloadSchema: the type of the column")
    where = f"option payloadSubject: {subject}" if subject else f"option payloadSchema: {path}"
    latest = registered.latest_of(registry, subject, mode) if subject and (mode != "json" or kind is None) else None
    if mode == "json":
        if latest is not None:
            try:
                kind = json_schema_type(json_codec.decode(latest.text))
            except (ValueError, TypeError, AttributeError) as error:
                raise PipelineOptionError(f"{where}: {error}") from None
        return registered.RegisteredJson(registry, _json_type(path) if kind is None else kind)
    if mode == "avro":
        require("fastavro", extra="payloads")
        if latest is None:
            return registered.RegisteredAvro(registry, _read(path).decode(errors="replace"), where)
        named = tuple(each.text for _, each in registry.references(latest))
        return registered.RegisteredAvro(registry, latest.text, where, named)
    require("google.protobuf", extra="payloads")
    message = options.payload_message
    if latest is None:
        if not message:
            raise PipelineOptionError("option payloadMessage is required with decode=protobuf and payloadSchema")
        return registered.RegisteredProtobuf(registry, _read(path), message, where)
    descriptors = registered.file_descriptor_set(registry, latest, where)
    return registered.RegisteredProtobuf(
        registry, descriptors.SerializeToString(), message or registered.first_message(descriptors.file[-1]), where
    )


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise PipelineOptionError(f"option payloadSchema: {path}: {error.strerror}") from None


def _json_type(path: str) -> pa.DataType:
    """Return the type in a file with a schema of Spark as JSON (`frame.schema.json()`)."""
    from pyspark.sql.types import StructType

    from sluice.pipeline.spark_api import arrow_type

    try:
        return arrow_type(StructType.fromJson(json_codec.decode(_read(path))))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise PipelineOptionError(f"option payloadSchema: {path}: not a schema of Spark as JSON: {error}") from None


def _inferred(options: SourceOptions) -> pa.DataType:
    try:
        return infer(islice(_samples(options), SAMPLES))
    except ValueError as error:
        raise PipelineOptionError(f"option payloadSchema is required: {error}") from None


def _samples(options: SourceOptions) -> Iterator[Any]:
    """Yield the JSON values in the oldest segments of each log."""
    landing = Landing.open(options.path)
    types = frozenset(options.payload_types)
    for log in landing.logs():
        if not options.wants(log.address):
            continue
        for segment in islice(landing.by_number(log.key), SAMPLED_SEGMENTS):
            for batch in read_segment(landing, segment, NEEDED):
                wanted = decoded_rows(batch.column("content_type"), types)
                for decoded, body, kind in zip(
                    wanted, *(batch.column(name).to_pylist() for name in NEEDED[:2]), strict=True
                ):
                    if decoded and kind in KINDS["json"]:
                        try:
                            yield parse(body)
                        except PayloadError:  # a row of the query tells it
                            continue


def spark_type(kind: pa.DataType) -> Any:
    """Return Spark's type of an Arrow type."""
    from pyspark.sql.pandas.types import from_arrow_type

    return from_arrow_type(kind, prefer_timestamp_ntz=True)


def spark_schema(names: Sequence[str], payload: Payload, *, retries: bool = False) -> Any:
    """Return Spark's schema of columns, with those of payloads at the end. retries: with those of the registry."""
    from pyspark.sql.types import LongType, StringType, StructField, StructType

    fields = [StructField(name, spark_type(columns.TYPES[columns.ALL[name]])) for name in names]
    fields += [StructField(PAYLOAD, spark_type(payload.codec.type)), StructField(ERROR, StringType())]
    if retries:
        fields += [StructField(RETRIES, LongType()), StructField(RETRY_ERROR, StringType())]
    return StructType(fields)
