"""Leading sections of a message between routers: header and router annotations (inter-router.md 10).

All sections from the properties on, the *tail*, are relayed octet for octet.
"""

from typing import Any, Final

from msgspec import Struct

from sluice.router.amqp import codec
from sluice.router.amqp.errors import AmqpError

_HEADER: Final = bytes.fromhex("005370d0000000050000000142")  # durable=false, as 1.19 writes it
_ANNOTATIONS: Final = b"\x00\x53\x72"
_START: Final = _HEADER + _ANNOTATIONS
_INGRESS: Final[bytes] = codec.encode_symbol("x-opt-qd.ingress")
_TRACE: Final[bytes] = codec.encode_symbol("x-opt-qd.trace")
_PREFIX: Final = "x-opt-qd."
_KEPT: Final = ("x-opt-qd.phase", "x-opt-qd.stream", "x-opt-qd.to")  # in the order of encoding
_S_HEADER: Final = 0x70
_S_ANNOTATIONS: Final = 0x72
_SYMBOLIC: Final = {
    "amqp:header:list": 0x70,
    "amqp:delivery-annotations:map": 0x71,
    "amqp:message-annotations:map": 0x72,
    "amqp:properties:list": 0x73,
    "amqp:application-properties:map": 0x74,
    "amqp:amqp-value:*": 0x77,
}


class ControlMessageError(Exception):
    """Invalid message; the text is the reason."""


class Envelope(Struct):
    """Parsed head of `octets`, that is, of all before the tail."""

    octets: bytes
    head: bytes  # header and delivery annotations, unchanged
    users: bytes  # other annotations, encoded
    user_items: int
    kept: bytes  # phase, stream and to, encoded
    kept_items: int
    to: str | None  # x-opt-qd.to
    ingress: bytes | None  # encoded string
    trace: bytes  # items of the list, encoded
    trace_count: int
    tail_at: int

    def tail(self) -> bytes:
        return self.octets[self.tail_at :]

    def ingress_id(self) -> str | None:
        """Return the id of the ingress router, without the area; None if not stated."""
        if self.ingress is None:
            return None
        text: str = codec.decode_one(self.ingress)
        return text.partition("/")[2]

    def trace_ids(self) -> list[str]:
        """Return the ids of the routers passed, oldest first. Raises ControlMessageError."""
        found = []
        at = 0
        try:
            for _ in range(self.trace_count):
                item, at = codec.decode(self.trace, at)
                if type(item) is not str:
                    raise ControlMessageError("trace is not a list of strings")
                found.append(item.partition("/")[2])
        except AmqpError as error:
            raise ControlMessageError(f"trace: {error}") from None
        if at != len(self.trace):
            raise ControlMessageError("extra octets follow the trace")
        return found


def originated_head(node: bytes) -> bytes:
    """Return header and annotations of messages originated by a router. node: its encoded node id (`0/ID`)."""
    return _HEADER + _annotations(b"", 0, node, node, 1)


def relayed(envelope: Envelope, node: bytes) -> bytes:
    """Return the message as a router relays it. node: its encoded node id."""
    annotations = _annotations(
        envelope.users + envelope.kept,
        envelope.user_items + envelope.kept_items,
        envelope.ingress or node,
        envelope.trace + node,
        envelope.trace_count + 1,
    )
    return envelope.head + annotations + envelope.octets[envelope.tail_at :]


def _annotations(first: bytes, first_items: int, ingress: bytes, trace: bytes, trace_count: int) -> bytes:
    if len(trace) < 255 and trace_count < 256:
        listed = b"\xc0" + bytes((len(trace) + 1, trace_count)) + trace
    else:
        listed = b"\xd0" + (len(trace) + 4).to_bytes(4, "big") + trace_count.to_bytes(4, "big") + trace
    body = first + _INGRESS + ingress + _TRACE + listed
    items = first_items + 4
    if len(body) < 255 and items < 256:
        return _ANNOTATIONS + b"\xc1" + bytes((len(body) + 1, items)) + body
    return _ANNOTATIONS + b"\xd1" + (len(body) + 4).to_bytes(4, "big") + items.to_bytes(4, "big") + body


def read(octets: bytes) -> Envelope:
    """Return the envelope of a whole message. Raises ControlMessageError."""
    try:
        return _read_usual(octets) or _read_any(octets)
    except AmqpError as error:
        raise ControlMessageError(str(error)) from None
    except IndexError:
        raise ControlMessageError("the message ends too early") from None


def _read_usual(octets: bytes) -> Envelope | None:
    """Parse control messages in the usual form: the header above, then exactly ingress and trace. None for other
    forms.
    """
    if not octets.startswith(_START):
        return None
    at = len(_START)
    span = _span(octets, at, b"\xc1", b"\xd1")
    if span is None or span[1] != 4:
        return None
    at, _, end = span
    if not octets.startswith(_INGRESS, at):
        return None
    at += len(_INGRESS)
    if octets[at] != 0xA1:
        return None
    after = at + 2 + octets[at + 1]
    ingress = octets[at:after]
    if not octets.startswith(_TRACE, after) or not ingress[2:].isascii():
        return None
    span = _span(octets, after + len(_TRACE), b"\xc0", b"\xd0")
    if span is None or span[2] != end or end > len(octets):
        return None
    return Envelope(octets, _HEADER, b"", 0, b"", 0, None, ingress, octets[span[0] : end], span[1], end)


def _span(octets: bytes, at: int, small: bytes, large: bytes) -> tuple[int, int, int] | None:
    """Return (first item, item count, end) of the compound value at `at`, or None for another type."""
    code = octets[at : at + 1]
    if code == small:
        return at + 3, octets[at + 2], at + 2 + octets[at + 1]
    if code == large:
        size = int.from_bytes(octets[at + 1 : at + 5], "big")
        return at + 9, int.from_bytes(octets[at + 5 : at + 9], "big"), at + 5 + size
    return None


def section(octets: bytes, at: int) -> tuple[int, int]:
    """Return (descriptor code, start of the value) of the section at `at`. Raises ControlMessageError."""
    if octets[at : at + 2] == b"\x00\x53" and at + 2 < len(octets):
        return octets[at + 2], at + 3
    if octets[at : at + 1] != b"\x00":
        raise ControlMessageError("a value is not a section")
    descriptor, after = codec.decode(octets, at + 1)
    if isinstance(descriptor, str):
        return _SYMBOLIC.get(descriptor, 0xFF), after
    if type(descriptor) is int and 0 <= descriptor < 256:
        return descriptor, after
    raise ControlMessageError("a section is not allowed in a message")


def _read_any(octets: bytes) -> Envelope:
    found = Envelope(octets, b"", b"", 0, b"", 0, None, None, b"", 0, 0)
    at = 0
    while at < len(octets):
        code, value_at = section(octets, at)
        if code < _S_HEADER or code > _S_ANNOTATIONS:
            break
        value, end = codec.decode(octets, value_at)
        if code == _S_ANNOTATIONS:
            if not isinstance(value, dict):
                raise ControlMessageError("message annotations are not a map")
            found.head = octets[:at]
            _read_annotations(found, value_at)
            found.tail_at = end
            return found
        at = end
    found.head = octets[:at]
    found.tail_at = at
    return found


def _read_annotations(found: Envelope, at: int) -> None:
    """Parse the map at `at`, whose encoding has been checked before."""
    octets = found.octets
    span = _span(octets, at, b"\xc1", b"\xd1")
    if span is None:
        raise ControlMessageError("message annotations are not a map")
    at, count, _ = span
    kept: dict[str, bytes] = {}
    users = []
    for _ in range(count // 2):
        key, value_at = codec.decode(octets, at)
        value, end = codec.decode(octets, value_at)
        if isinstance(key, codec.Symbol) and key.startswith(_PREFIX):
            _read_annotation(found, kept, key, value, octets[at:end], octets[value_at:end])
        else:
            users.append(octets[at:end])
        at = end
    found.users = b"".join(users)
    found.user_items = 2 * len(users)
    found.kept = b"".join(kept[key] for key in _KEPT if key in kept)
    found.kept_items = 2 * len(kept)


def _read_annotation(found: Envelope, kept: dict[str, bytes], key: str, value: Any, entry: bytes, raw: bytes) -> None:
    if key == "x-opt-qd.ingress":
        if type(value) is not str:
            raise ControlMessageError("ingress is not a string")
        found.ingress = raw
    elif key == "x-opt-qd.trace":
        if not isinstance(value, list) or not all(type(item) is str for item in value):
            raise ControlMessageError("trace is not a list of strings")
        found.trace = b"".join(codec.encode_string(item) for item in value)
        found.trace_count = len(value)
    elif key in _KEPT:
        if key == "x-opt-qd.to":
            if type(value) is not str:
                raise ControlMessageError("to-override is not a string")
            found.to = value
        kept[key] = entry
