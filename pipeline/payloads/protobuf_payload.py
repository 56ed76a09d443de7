"""Protobuf payloads: one message, described by a file of `protoc --descriptor_set_out --include_imports`."""

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError

from sluice.pipeline.errors import PipelineOptionError
from sluice.pipeline.payloads.codec import FieldCount, PayloadError, ValueCount

SIMPLE = {
    FieldDescriptor.CPPTYPE_BOOL: pa.bool_(),
    FieldDescriptor.CPPTYPE_INT32: pa.int32(),
    FieldDescriptor.CPPTYPE_UINT32: pa.int64(),
    FieldDescriptor.CPPTYPE_INT64: pa.int64(),
    FieldDescriptor.CPPTYPE_UINT64: pa.decimal128(20, 0),
    FieldDescriptor.CPPTYPE_FLOAT: pa.float32(),
    FieldDescriptor.CPPTYPE_DOUBLE: pa.float64(),
    FieldDescriptor.CPPTYPE_ENUM: pa.string(),
    FieldDescriptor.CPPTYPE_STRING: pa.string(),
}


class ProtobufCodec:
    """Decoder of messages of one type. A field without presence has its default; others are null if they are unset."""

    def __init__(self, descriptors: bytes, message: str, where: str) -> None:
        self._made_of = (descriptors, message, where)
        pool = descriptor_pool.DescriptorPool()
        try:
            for file in descriptor_pb2.FileDescriptorSet.FromString(descriptors).file:
                pool.Add(file)
            found = pool.FindMessageTypeByName(message)
        except (DecodeError, TypeError) as error:
            raise PipelineOptionError(f"{where}: not a set of file descriptors: {error}") from None
        except KeyError:
            raise PipelineOptionError(f"{where}: there is no message {message!r}") from None
        try:
            self.type = _struct(found, (), FieldCount())
        except ValueError as error:
            raise PipelineOptionError(f"{where}: {error}") from None
        self._class = message_factory.GetMessageClass(found)

    def __reduce__(self) -> tuple[Any, ...]:
        return ProtobufCodec, self._made_of

    def decode(self, body: bytes, count: ValueCount | None = None) -> Any:
        try:
            return _value(self._class.FromString(body), count or ValueCount(len(body)))
        except DecodeError as error:
            raise PayloadError(f"not a message {self._class.DESCRIPTOR.full_name}: {error}") from None


def message_at(file: Any, path: Sequence[int]) -> str:
    """Return the full name of a message in a FileDescriptorProto, by its number in the file and in those around it.

    Raises PayloadError.
    """
    names = [file.package] if file.package else []
    messages = file.message_type
    for number in path:
        if not 0 <= number < len(messages):
            raise PayloadError(f"the schema has no message {'.'.join(map(str, path))}")
        names.append(messages[number].name)
        messages = messages[number].nested_type
    return ".".join(names)


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def _struct(message: Descriptor, inside: tuple[str, ...], count: FieldCount) -> pa.DataType:
    if message.full_name in inside:
        raise ValueError(f"message {message.full_name} contains itself, which Spark's types cannot")
    inner = (*inside, message.full_name)
    return pa.struct([pa.field(field.name, _type(field, inner, count)) for field in message.fields])


def _type(field: FieldDescriptor, inside: tuple[str, ...], count: FieldCount) -> pa.DataType:
    count.add()
    if _is_map(field):
        entry = field.message_type.fields_by_name
        return pa.map_(_type(entry["key"], inside, count), _type(entry["value"], inside, count))
    kind = _single_type(field, inside, count)
    return pa.list_(kind) if field.is_repeated else kind


def _single_type(field: FieldDescriptor, inside: tuple[str, ...], count: FieldCount) -> pa.DataType:
    if field.message_type is not None:
        return _struct(field.message_type, inside, count)
    return pa.binary() if field.type == FieldDescriptor.TYPE_BYTES else SIMPLE[field.cpp_type]


def _value(message: Any, count: ValueCount) -> dict[str, Any]:
    found: dict[str, Any] = {}
    count.add(len(message.DESCRIPTOR.fields))
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if _is_map(field):
            of = field.message_type.fields_by_name["value"]
            count.add(2 * len(value))
            found[field.name] = [(key, _single(of, value[key], count)) for key in value]
        elif field.is_repeated:
            count.add(len(value))
            found[field.name] = [_single(field, each, count) for each in value]
        elif field.has_presence and not message.HasField(field.name):
            found[field.name] = None
        else:
            found[field.name] = _single(field, value, count)
    return found


def _single(field: FieldDescriptor, value: Any, count: ValueCount) -> Any:
    if field.message_type is not None:
        return _value(value, count)
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return str(value) if known is None else known.name
    return Decimal(value) if field.cpp_type == FieldDescriptor.CPPTYPE_UINT64 else value
