"""Messages (part 3, 3.2): sections as Python values, and their encoding."""

from collections.abc import Callable
from typing import Any, Final

from msgspec import Struct, field

from sluice.router.amqp import codec
from sluice.router.amqp.errors import malformed

HEADER, DELIVERY_ANNOTATIONS, MESSAGE_ANNOTATIONS, PROPERTIES = 0x70, 0x71, 0x72, 0x73
APPLICATION_PROPERTIES, DATA, SEQUENCE, VALUE, FOOTER = 0x74, 0x75, 0x76, 0x77, 0x78
NULL = b"\x40"

Encode = Callable[[Any], bytes]


def _message_id(value: Any) -> bytes:
    """Encode a message-id: a ulong, uuid, binary or string (3.2.11 … 3.2.14)."""
    return bytes(codec.encode_ulong(value) if isinstance(value, int) else codec.encode_value(value))


def _timestamp(value: int) -> bytes:
    return bytes(codec.encode_value(codec.Timestamp(value)))


#: Encoders of the fields of header and properties, in the order of 3.2.1 and 3.2.4.
HEADER_FIELDS: Final[dict[str, Encode]] = {
    "durable": codec.encode_value,
    "priority": codec.encode_ubyte,
    "ttl": codec.encode_uint,
    "first_acquirer": codec.encode_value,
    "delivery_count": codec.encode_uint,
}
PROPERTY_FIELDS: Final[dict[str, Encode]] = {
    "message_id": _message_id,
    "user_id": codec.encode_binary,
    "to": codec.encode_string,
    "subject": codec.encode_string,
    "reply_to": codec.encode_string,
    "correlation_id": _message_id,
    "content_type": codec.encode_symbol,
    "content_encoding": codec.encode_symbol,
    "absolute_expiry_time": _timestamp,
    "creation_time": _timestamp,
    "group_id": codec.encode_string,
    "group_sequence": codec.encode_uint,
    "reply_to_group_id": codec.encode_string,
}


#: Type of each section that is not any value.
TYPES: Final[dict[int, type]] = {
    HEADER: list,
    DELIVERY_ANNOTATIONS: dict,
    MESSAGE_ANNOTATIONS: dict,
    PROPERTIES: list,
    APPLICATION_PROPERTIES: dict,
    DATA: bytes,
    SEQUENCE: list,
    FOOTER: dict,
}


class Message(Struct):
    """Message with its sections as Python values.

    Fields that are None are absent. A body of bytes is one data section, `DataSections` are several data sections,
    `Sequences` are amqp-sequences, and anything else is an amqp-value.
    """

    body: Any = None
    durable: bool | None = None
    priority: int | None = None
    ttl: int | None = None  # ms
    first_acquirer: bool | None = None
    delivery_count: int | None = None
    delivery_annotations: dict[str, Any] = field(default_factory=dict)
    annotations: dict[str, Any] = field(default_factory=dict)
    message_id: Any = None
    user_id: bytes | None = None
    to: str | None = None
    subject: str | None = None
    reply_to: str | None = None
    correlation_id: Any = None
    content_type: str | None = None
    content_encoding: str | None = None
    absolute_expiry_time: int | None = None  # ms since 1970
    creation_time: int | None = None
    group_id: str | None = None
    group_sequence: int | None = None
    reply_to_group_id: str | None = None
    properties: dict[str, Any] = field(default_factory=dict)  # application-properties
    footer: dict[str, Any] = field(default_factory=dict)

    def encode(self) -> bytes:
        """Encode all sections. Raises TypeError for a value that AMQP has no type for."""
        return b"".join(
            (
                _fields(self, HEADER, HEADER_FIELDS),
                _annotations(DELIVERY_ANNOTATIONS, self.delivery_annotations),
                _annotations(MESSAGE_ANNOTATIONS, self.annotations),
                _fields(self, PROPERTIES, PROPERTY_FIELDS),
                _section(APPLICATION_PROPERTIES, codec.encode_value(self.properties)) if self.properties else b"",
                _body(self.body),
                _annotations(FOOTER, self.footer),
            )
        )


class DataSections(list[bytes]):
    """Body of several data sections."""


class Sequences(list[list[Any]]):
    """Body of amqp-sequence sections."""


def _section(code: int, value: bytes) -> bytes:
    return bytes((0, 0x53, code)) + value


def _fields(message: Message, code: int, fields: dict[str, Encode]) -> bytes:
    items = [NULL if (value := getattr(message, name)) is None else encode(value) for name, encode in fields.items()]
    while items and items[-1] == NULL:
        items.pop()
    return bytes(codec.encode_described(code, items)) if items else b""


def _annotations(code: int, values: dict[Any, Any]) -> bytes:
    """Encode a map whose keys are symbols (or ulongs, which are reserved)."""
    if not values:
        return b""
    items = []
    for key, value in values.items():
        items += [
            codec.encode_symbol(key) if isinstance(key, str) else codec.encode_ulong(key),
            codec.encode_value(value),
        ]
    return _section(code, codec.encode_map(items))


def _body(body: Any) -> bytes:
    if isinstance(body, bytes | bytearray | memoryview) and not isinstance(body, codec.DecimalOctets):
        return _section(DATA, codec.encode_binary(bytes(body)))
    if isinstance(body, Sequences):
        return b"".join(_section(SEQUENCE, codec.encode_value(part)) for part in body)
    if isinstance(body, DataSections):
        return b"".join(_section(DATA, codec.encode_binary(part)) for part in body)
    return _section(VALUE, codec.encode_value(body))


def decode(octets: bytes) -> Message:
    """Decode the sections of a message. Raises AmqpError (amqp:decode-error)."""
    message = Message()
    data = DataSections()
    sequences = Sequences()
    at = 0
    while at < len(octets):
        section, at = codec.decode(octets, at)
        if not isinstance(section, codec.Described):
            raise malformed("a message contains a value that is not a section", at)
        code, value = section.descriptor, section.value
        if code in TYPES and (not isinstance(value, TYPES[code]) or isinstance(value, codec.DecimalOctets)):
            raise malformed(f"section 0x{code:02x} has the wrong type", at)
        if code in (HEADER, PROPERTIES):
            fields = HEADER_FIELDS if code == HEADER else PROPERTY_FIELDS
            for name, item in zip(fields, value, strict=False):
                setattr(message, name, item)
        elif code == DELIVERY_ANNOTATIONS:
            message.delivery_annotations = value
        elif code == MESSAGE_ANNOTATIONS:
            message.annotations = value
        elif code == APPLICATION_PROPERTIES:
            message.properties = value
        elif code == FOOTER:
            message.footer = value
        elif code == DATA:
            data.append(value)
        elif code == SEQUENCE:
            sequences.append(value)
        elif code == VALUE:
            message.body = value
        else:
            raise malformed(f"unknown section {code}", at)
    if data:
        message.body = data[0] if len(data) == 1 else data
    elif sequences:
        message.body = sequences
    return message
