"""Payloads in the framing of schema registries: an octet 0, the id of the schema (4 octets, big-endian), the value.

The type of the column comes from one schema, the *reader's*; each body is decoded with the schema that its id names and
converted to that type. Ids come from clients: a task looks for few ids that do not exist, and first for those that
most messages of a batch have, so one client's ids do not keep others' messages from being decoded.
"""

import base64
import binascii
import re
from abc import abstractmethod
from collections.abc import Callable
from importlib import import_module
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sluice.pipeline.errors import PipelineOptionError
from sluice.pipeline.payloads.codec import PayloadCodec, PayloadError, ValueCount
from sluice.pipeline.payloads.json_payload import JsonCodec
from sluice.pipeline.payloads.registry import RegisteredSchema, SchemaRegistry

MAGIC = b"\0"
HEAD = 5  # octets before the value
#: Ids without a usable schema for which a task looks.
UNKNOWN_MOST = 100
#: Ids whose decoders a task keeps.
DECODERS_MOST = 1000

Decoder = Callable[[bytes, ValueCount | None], Any]  # of a value, which it counts; raises PayloadError


class RegisteredCodec(PayloadCodec):
    """Decoder of bodies whose schemas are in a registry, for one format. Instances are pickled."""

    kind: str

    def __init__(self, registry: SchemaRegistry, kind: pa.DataType) -> None:
        self.registry = registry
        self._type = kind
        self._decoders: dict[int, Decoder] = {}
        self._refused: dict[int, str] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_decoders": {}, "_refused": {}}

    @property
    def type(self) -> pa.DataType:
        return self._type

    def prepare(self, bodies: pa.Array) -> None:
        """Look for the schemas of bodies, first for those of most bodies. Raises RegistryError."""
        heads = pc.value_counts(pc.binary_slice(bodies, 0, HEAD)).to_pylist()
        for each in sorted(heads, key=lambda head: -head["counts"]):
            head = each["values"]
            if head is not None and len(head) == HEAD and head[:1] == MAGIC:
                self._look_for(int.from_bytes(head[1:]))

    def take_retries(self) -> tuple[int, str | None]:
        return self.registry.take_retries()

    def decode(self, body: bytes, count: ValueCount | None = None) -> Any:
        if len(body) < HEAD or body[:1] != MAGIC:
            raise PayloadError("no octet 0 and schema id at the beginning")
        number = int.from_bytes(body[1:HEAD])
        self._look_for(number)
        decoder = self._decoders.get(number)
        if decoder is None:
            raise PayloadError(
                self._refused.get(number)
                or f"schema {number} was not looked for: {UNKNOWN_MOST} other ids of these messages do not exist"
            )
        return decoder(body[HEAD:], count)

    def _look_for(self, number: int) -> None:
        """Get the decoder of an id, or the reason that there is none. Raises RegistryError."""
        if number in self._decoders or number in self._refused or len(self._refused) >= UNKNOWN_MOST:
            return
        schema = self.registry.schema(number, self.kind)
        if schema is None:
            self._refused[number] = f"schema {number} is not in the registry"
        elif schema.kind != self.kind:
            self._refused[number] = f"schema {number} is of the format {schema.kind[:20]}"
        else:
            try:
                decoder = self.decoder(number, schema)
            except PipelineOptionError as error:
                self._refused[number] = str(error)
                return
            if len(self._decoders) >= DECODERS_MOST:
                self._decoders.clear()
            self._decoders[number] = decoder

    @abstractmethod
    def decoder(self, number: int, schema: RegisteredSchema) -> Decoder:
        """Return the decoder of values of a schema. Raises PipelineOptionError for a schema that is not supported."""


class RegisteredJson(RegisteredCodec):
    """Decoder of JSON. Schemas must exist; a value is only compared with the type of the column."""

    kind = "json"

    def decoder(self, number: int, schema: RegisteredSchema) -> Decoder:
        return JsonCodec(self.type).decode


class RegisteredAvro(RegisteredCodec):
    """Decoder of Avro, by Avro's rules of schema resolution. reader: the text of the reader's schema."""

    kind = "avro"

    def __init__(self, registry: SchemaRegistry, reader: str, where: str, named: tuple[str, ...] = ()) -> None:
        from sluice.pipeline.payloads.avro_payload import AvroCodec

        self._reader = AvroCodec(reader, where, named)
        super().__init__(registry, self._reader.type)

    def decoder(self, number: int, schema: RegisteredSchema) -> Decoder:
        from sluice.pipeline.payloads.avro_payload import AvroCodec

        named = tuple(each.text for _, each in self.registry.references(schema))
        return AvroCodec(schema.text, f"schema {number}", named, self._reader.schema).decode


class RegisteredProtobuf(RegisteredCodec):
    """Decoder of Protobuf messages of one name. descriptors: the reader's file, and those that it imports.

    Protobuf's numbers of fields replace a resolution of schemas. The id only tells the name of the message, by the
    path of numbers that follows it.
    """

    kind = "protobuf"

    def __init__(self, registry: SchemaRegistry, descriptors: bytes, message: str, where: str) -> None:
        from sluice.pipeline.payloads.protobuf_payload import ProtobufCodec

        self._message = message
        self._reader = ProtobufCodec(descriptors, message, where)
        super().__init__(registry, self._reader.type)

    def decoder(self, number: int, schema: RegisteredSchema) -> Decoder:
        from sluice.pipeline.payloads.protobuf_payload import message_at

        file = file_descriptor(schema, f"schema {number}")

        def decode(octets: bytes, count: ValueCount | None) -> Any:
            path, at = read_path(octets)
            found = message_at(file, path)
            if found != self._message:
                raise PayloadError(f"message {'.'.join(map(str, path))} of schema {number} is {found}")
            return self._reader.decode(octets[at:], count)

        return decode


def read_path(octets: bytes) -> tuple[list[int], int]:
    """Return the numbers of a message and of those around it, and where the value begins. Raises PayloadError.

    Numbers are zigzag varints after their count; a count of 0 stands for the first message.
    """
    count, at = _zigzag(octets, 0)
    if not 0 <= count <= 32:
        raise PayloadError(f"a path of {count} messages")
    path = []
    for _ in range(count):
        number, at = _zigzag(octets, at)
        path.append(number)
    return path or [0], at


def _zigzag(octets: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 35, 7):
        if at >= len(octets):
            break
        value |= (octets[at] & 0x7F) << shift
        at += 1
        if octets[at - 1] < 0x80:
            return value >> 1 ^ -(value & 1), at
    raise PayloadError("the path of the message is cut short")


def file_descriptor(schema: RegisteredSchema, where: str) -> Any:
    """Return the FileDescriptorProto of a schema. Raises PipelineOptionError."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.message import DecodeError

    try:
        return FileDescriptorProto.FromString(base64.b64decode(schema.text, validate=True))
    except (binascii.Error, ValueError, DecodeError):
        raise PipelineOptionError(
            f"{where}: not a serialized file descriptor (the registry must support format=serialized)"
        ) from None


def first_message(file: Any) -> str:
    """Return the full name of the first message of a FileDescriptorProto. Raises PipelineOptionError."""
    if not file.message_type:
        raise PipelineOptionError("option payloadSubject: its schema has no message")
    name = str(file.message_type[0].name)
    return f"{file.package}.{name}" if file.package else name


def file_descriptor_set(registry: SchemaRegistry, schema: RegisteredSchema, where: str) -> Any:
    """Return the FileDescriptorSet of a schema and of what it imports, in the order of imports.

    Raises PipelineOptionError, RegistryError.
    """
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    found = FileDescriptorSet()
    for name, each in registry.references(schema):
        file = file_descriptor(each, name)
        file.name = name
        found.file.append(file)
    found.file.append(file_descriptor(schema, where))
    there = {each.name for each in found.file}
    imported = {name for each in found.file for name in each.dependency if name not in there}
    for name in sorted(imported):
        if not re.fullmatch(r"google/protobuf/[a-z_]+\.proto", name):
            raise PipelineOptionError(f"{where}: the registry has no reference for the import {name!r}")
        try:
            module = import_module(name.removesuffix(".proto").replace("/", ".") + "_pb2")
        except ImportError:
            raise PipelineOptionError(f"{where}: there is no import {name!r}") from None
        one = type(found.file[0])()
        module.DESCRIPTOR.CopyToProto(one)
        found.file.insert(0, one)
    return found


def latest_of(registry: SchemaRegistry, subject: str, kind: str) -> RegisteredSchema:
    """Return the latest schema of a subject. Raises PipelineOptionError, RegistryError."""
    found = registry.latest(subject, kind)
    if found is None:
        raise PipelineOptionError(f"option payloadSubject: the registry has no subject {subject!r}")
    if found.kind != kind:
        raise PipelineOptionError(f"option payloadSubject: {subject!r} has the format {found.kind}, not {kind}")
    return found
