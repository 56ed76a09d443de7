"""Router annotations of a message: parsing, and rewriting of a message's head for the next hop."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.peer.codec import CodecError, decode
from tests.peer.router19.encoding import section
from tests.peer.types import Described, Int, Map, Symbol

HEADER, DELIVERY_ANNOTATIONS, MESSAGE_ANNOTATIONS, PROPERTIES = 0x70, 0x71, 0x72, 0x73
PREFIX = "x-opt-qd."
PHASE, STREAM, TO = Symbol(PREFIX + "phase"), Symbol(PREFIX + "stream"), Symbol(PREFIX + "to")
INGRESS, TRACE = Symbol(PREFIX + "ingress"), Symbol(PREFIX + "trace")
CLASS = Symbol(PREFIX + "class")
_OURS = (PHASE, STREAM, TO, INGRESS, TRACE, CLASS, Symbol(PREFIX))
DEFAULT_PRIORITY = 4


class InvalidAnnotationsError(ValueError):
    """Raised for annotations that make 1.19 reject a delivery with amqp:invalid-field. The text is the description."""


@dataclass
class MessageHead:
    """Parts of a message that a router reads before forwarding it."""

    #: Header and delivery annotations, unchanged.
    before: bytes = b""
    #: Offset behind the message annotations.
    rest: int = 0
    priority: int = DEFAULT_PRIORITY
    user: list[tuple[Any, Any]] = field(default_factory=list)
    phase: int = 0
    stream: bool = False
    to: str | None = None
    ingress: str | None = None
    trace: list[str] = field(default_factory=list)
    #: `to` of the properties.
    properties_to: str | None = None

    def address(self) -> tuple[str, int] | None:
        """Return address text and phase for routing on a router link; None if there is no address."""
        if self.to is not None:
            return self.to, self.phase
        return None if self.properties_to is None else (self.properties_to, 0)


def compose(
    user: list[tuple[Any, Any]],
    phase: int = 0,
    stream: bool = False,
    to: str | None = None,
    ingress: str | None = None,
    trace: list[str] | None = None,
) -> bytes:
    """Return the message-annotations section: users' pairs first, then the router's in order. Empty if there are
    none."""
    pairs = list(user)
    if phase:
        pairs.append((PHASE, Int(phase)))
    if stream:
        pairs.append((STREAM, Int(1)))
    if to is not None:
        pairs.append((TO, to))
    if ingress is not None:
        pairs.append((INGRESS, ingress))
    if trace is not None:
        pairs.append((TRACE, trace))
    return section(MESSAGE_ANNOTATIONS, Map(pairs)) if pairs else b""


def read(octets: bytes) -> MessageHead:
    """Parse the head of a message from a router link. Raises InvalidAnnotationsError, and CodecError if it is
    incomplete."""
    head = MessageHead()
    at = 0
    while at < len(octets):
        item, end = decode(octets, at)
        if not isinstance(item, Described):
            raise InvalidAnnotationsError("not a section")
        code = item.descriptor
        if code == HEADER:
            head.priority = _priority(item.value)
        elif code == MESSAGE_ANNOTATIONS:
            _split(head, item.value)
        elif code == PROPERTIES and isinstance(item.value, list) and len(item.value) > 2:
            to = item.value[2]
            head.properties_to = str(to) if isinstance(to, str) else None
        if code in (HEADER, DELIVERY_ANNOTATIONS):
            head.before += octets[at:end]
            head.rest = end
        elif code == MESSAGE_ANNOTATIONS:
            head.rest = end
        if code >= PROPERTIES:
            break
        at = end
    return head


def complete_head(octets: bytes) -> MessageHead | None:
    """Return the head if enough of the message has arrived to route it; otherwise None. Raises
    InvalidAnnotationsError."""
    try:
        return read(octets)
    except CodecError:
        return _without_body(octets)


def _without_body(octets: bytes) -> MessageHead | None:
    """Return the head of a message with an incomplete body. Everything except the last section can be decoded."""
    at = 0
    while at < len(octets):
        try:
            _item, end = decode(octets, at)
        except CodecError:
            break
        at = end
    code = octets[at + 2] if len(octets) > at + 2 and octets[at : at + 2] == b"\x00\x53" else None
    return read(octets[:at]) if code is not None and code > PROPERTIES else None


def _priority(fields: Any) -> int:
    if isinstance(fields, list) and len(fields) > 1 and fields[1] is not None:
        return min(int(fields[1]), 9)
    return DEFAULT_PRIORITY


def _split(head: MessageHead, annotations: Any) -> None:
    """Separate router annotations from users'. A user entry behind a router's is lost, as in 1.19."""
    if not isinstance(annotations, Map):
        raise InvalidAnnotationsError("not a map")
    ours = False
    for key, value in annotations.pairs:
        if isinstance(key, Symbol) and key in _OURS:
            ours = True
            _take(head, key, value)
        elif not ours:
            head.user.append((key, value))


def _take(head: MessageHead, key: Symbol, value: Any) -> None:
    plain = isinstance(value, str) and not isinstance(value, Symbol)
    if key == TO:
        if not plain:
            raise InvalidAnnotationsError("to-override not a valid string type")
        head.to = value
    elif key == INGRESS:
        if not plain:
            raise InvalidAnnotationsError("ingress router not a string type")
        head.ingress = value
    elif key == TRACE:
        if not isinstance(value, list):
            raise InvalidAnnotationsError("trace annotation is not a list")
        if not all(isinstance(one, str) for one in value):
            raise InvalidAnnotationsError("trace list contains non-string entries")
        head.trace = [str(one) for one in value]
    elif key == PHASE and isinstance(value, int):
        head.phase = int(value)
    elif key == STREAM:
        head.stream = True
