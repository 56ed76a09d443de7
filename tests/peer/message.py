"""Messages: sections built octet by octet, and access to the sections of received messages."""

from typing import Any

from tests.peer.codec import decode, encode
from tests.peer.types import Described, Map, Symbol, Timestamp, UByte, UInt, ULong

HEADER, DELIVERY_ANNOTATIONS, MESSAGE_ANNOTATIONS, PROPERTIES, APPLICATION_PROPERTIES = 0x70, 0x71, 0x72, 0x73, 0x74
DATA, SEQUENCE, VALUE, FOOTER = 0x75, 0x76, 0x77, 0x78

_HEADER_FIELDS = (
    ("durable", bool),
    ("priority", UByte),
    ("ttl", UInt),
    ("first_acquirer", bool),
    ("delivery_count", UInt),
)
_PROPERTY_FIELDS = (
    ("message_id", None),
    ("user_id", None),
    ("to", None),
    ("subject", None),
    ("reply_to", None),
    ("correlation_id", None),
    ("content_type", Symbol),
    ("content_encoding", Symbol),
    ("absolute_expiry_time", Timestamp),
    ("creation_time", Timestamp),
    ("group_id", None),
    ("group_sequence", UInt),
    ("reply_to_group_id", None),
)


def section(code: int, value: Any) -> bytes:
    """Return a message section: a described value with descriptor `code`."""
    return encode(Described(ULong(code), value))


def _listed(code: int, table: tuple[tuple[str, Any], ...], given: dict[str, Any]) -> bytes:
    unknown = set(given) - {field for field, _kind in table}
    if unknown:
        raise TypeError(f"section 0x{code:02x} has no field {sorted(unknown)}")
    values: list[Any] = []
    for field, kind in table:
        value = given.get(field)
        values.append(value if value is None or kind is None else kind(value))
    while values and values[-1] is None:
        values.pop()
    return section(code, values)


def header(**fields: Any) -> bytes:
    """Return a header section. Fields: durable, priority, ttl (ms), first_acquirer, delivery_count."""
    return _listed(HEADER, _HEADER_FIELDS, fields)


def properties(**fields: Any) -> bytes:
    """Return a properties section. Fields: message_id, user_id, to, subject, reply_to, correlation_id, content_type,
    ..."""
    return _listed(PROPERTIES, _PROPERTY_FIELDS, fields)


def annotations(pairs: dict[Any, Any] | list[tuple[Any, Any]]) -> bytes:
    """Return message annotations. Plain string keys of a dict become symbols. A list of pairs is used unchanged."""
    if isinstance(pairs, dict):
        pairs = [(Symbol(key) if isinstance(key, str) else key, value) for key, value in pairs.items()]
    return section(MESSAGE_ANNOTATIONS, Map(pairs))


def application_properties(values: dict[str, Any]) -> bytes:
    """Return application properties."""
    return section(APPLICATION_PROPERTIES, values)


def data(octets: bytes) -> bytes:
    """Return a data body section."""
    return section(DATA, octets)


def value(body: Any) -> bytes:
    """Return an amqp-value body section."""
    return section(VALUE, body)


def message(body: Any = "", to: str | None = None, **property_fields: Any) -> bytes:
    """Return a message as sent by most clients: properties, if any are given, and the body as a value section."""
    if to is not None:
        property_fields["to"] = to
    return (properties(**property_fields) if property_fields else b"") + value(body)


def sections(payload: bytes) -> list[tuple[int, Any]]:
    """Return (descriptor, value) of each section of a received message, in order."""
    found = []
    at = 0
    while at < len(payload):
        item, at = decode(payload, at)
        if not isinstance(item, Described):
            raise ValueError(f"not a message section: {item!r}")
        found.append((int(item.descriptor), item.value))
    return found


def section_of(payload: bytes, code: int) -> Any:
    """Return the value of the first section with descriptor `code`; None if there is none."""
    for found, item in sections(payload):
        if found == code:
            return item
    return None


def body(payload: bytes) -> Any:
    """Return the body of a message: the value, or the joined data sections."""
    parts = sections(payload)
    for code, item in parts:
        if code == VALUE:
            return item
    return b"".join(item for code, item in parts if code == DATA)


def annotations_of(payload: bytes) -> Map | None:
    """Return the annotations of a received message; None if the section is absent."""
    found = section_of(payload, MESSAGE_ANNOTATIONS)
    return found if isinstance(found, Map) else None


def annotation(payload: bytes, key: str) -> Any:
    """Return a message annotation by its symbol key; None if it or the section is absent."""
    found = annotations_of(payload)
    return None if found is None else next((v for k, v in found.pairs if isinstance(k, Symbol) and k == key), None)
