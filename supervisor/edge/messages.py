"""Messages between an edge and an interior router, octet for octet as in Dispatch 1.19 (inter-router.md 14, 16.11).

Each function returns a whole message without router annotations; the sending worker adds those.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from sluice.router.amqp import codec
from sluice.router.amqp.errors import AmqpError

VERSION: Final = 1
LOOKUP_OPCODE: Final = 1  # asks whether one address belongs to a link route
LOOKUPS_OPCODE: Final = 2  # asks about several addresses; between Sluice routers only
MOST_QUESTIONS: Final = 1000  # in one message
# Values in the answer about several addresses: one octet for each address.
NO_LINK_ROUTE: Final = 0
UNSERVED: Final = 1
SERVED: Final = 2
# Status of an answer to a look-up.
FOUND: Final = 0
BAD_VERSION: Final = 1
BAD_OPCODE: Final = 2
NOT_FOUND: Final = 3
INVALID: Final = 4

LINK_ROUTE: Final = "org.apache.qpid.dispatch.router.connection.linkRoute"

_PROPERTIES: Final = 0x73
_APPLICATION_PROPERTIES: Final = 0x74
_VALUE: Final = 0x77
_TRUE: Final = b"\x41"
_FALSE: Final = b"\x42"
_NULL: Final = b"\x40"
_PROPERTIES_BEFORE_CORRELATION: Final = 5
_TO, _REPLY_TO, _CORRELATION_ID = 2, 4, 5


class Tracking(NamedTuple):
    """Interior router's report whether an address has destinations other than those of the edge router."""

    key: str
    reachable: bool


class Precedence(NamedTuple):
    """Order of the interior routers of an edge router with several uplinks, sent to each of them."""

    number: int
    routers: tuple[str, ...]  # ids, best first
    complete: bool  # all former bearers have released the consumers of the edge router


class PrecedenceAnswer(NamedTuple):
    """Confirmation of a precedence by an interior router."""

    number: int  # of the precedence
    bears: bool  # the interior router is the bearer


class LookupAddress(NamedTuple):
    """Address in a look-up."""

    address: str
    sender: bool  # the client's link sends to the router


class LookupQuestion(NamedTuple):
    """Look-up message. fault: status of the answer if the message is malformed."""

    reply_to: str | None
    correlation_id: bytes | None  # encoded
    asked: tuple[LookupAddress, ...]
    several: bool  # has the opcode for several addresses
    fault: int | None


class LookupAnswer(NamedTuple):
    """Answer to a look-up. found: one octet for each address, in their order; empty if the answer is malformed."""

    correlation_id: str
    status: int
    found: bytes


class ManagementAnswer(NamedTuple):
    """Answer to a management request."""

    correlation_id: str
    status: int
    identity: str | None


def tracking_report(key: str, reachable: bool) -> bytes:
    """Encode a report to an edge router whether a key has destinations."""
    return _header() + _value(_list([codec.encode_string(key), _flag(reachable)]))


def read_tracking(octets: bytes) -> Tracking | PrecedenceAnswer | None:
    """Decode a message of the tracking link; None for an unknown message, which is ignored."""
    body = _sections(octets).get(_VALUE)
    if not isinstance(body, list) or len(body) != 2 or not isinstance(body[1], bool):
        return None
    subject, holds = body
    if isinstance(subject, str):
        return Tracking(str(subject), holds)
    return PrecedenceAnswer(subject, holds) if _is_number(subject) else None


def precedence(said: Precedence) -> bytes:
    """Encode a precedence for an interior router."""
    routers = _list([codec.encode_string(router) for router in said.routers])
    return _header() + _value(_list([codec.encode_uint(said.number), routers, _flag(said.complete)]))


def read_precedence(octets: bytes) -> Precedence | None:
    """Decode a precedence; None for an unknown message, which is ignored."""
    body = _sections(octets).get(_VALUE)
    if not isinstance(body, list) or len(body) != 3:
        return None
    number, routers, complete = body
    if not _is_number(number) or not isinstance(routers, list) or not isinstance(complete, bool):
        return None
    if not all(isinstance(router, str) for router in routers):
        return None
    return Precedence(number, tuple(map(str, routers)), complete)


def precedence_answer(number: int, bears: bool) -> bytes:
    """Encode the confirmation of a precedence for an edge router."""
    return _header() + _value(_list([codec.encode_uint(number), _flag(bears)]))


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def lookup(asked: Sequence[LookupAddress], several: bool, reply_to: str, correlation_id: str) -> bytes:
    """Encode a look-up about one address, or about several at once."""
    properties = _properties(None, reply_to, codec.encode_string(correlation_id))
    about = _map(_numbers({"version": VERSION, "opcode": LOOKUPS_OPCODE if several else LOOKUP_OPCODE}))
    items = [item for each in asked for item in (codec.encode_string(each.address), _flag(each.sender))]
    return _header() + properties + about + _value(_list(items))


def read_lookup(octets: bytes) -> LookupQuestion:
    """Decode a look-up; a malformed one has a `fault`."""
    sections = _sections(octets)
    properties = sections.get(_PROPERTIES)
    items = properties if isinstance(properties, list) else []
    reply_to = items[_REPLY_TO] if len(items) > _REPLY_TO and isinstance(items[_REPLY_TO], str) else None
    correlation = items[_CORRELATION_ID] if len(items) > _CORRELATION_ID else None
    correlation_id = None if correlation is None else codec.encode_value(correlation)
    if isinstance(correlation, str):
        correlation_id = codec.encode_string(correlation)
    about = sections.get(_APPLICATION_PROPERTIES)
    about = about if isinstance(about, dict) else {}
    body = sections.get(_VALUE)
    several = about.get("opcode") == LOOKUPS_OPCODE
    fault, asked = None, _read_asked(body)
    if about.get("version") != VERSION:
        fault = BAD_VERSION
    elif about.get("opcode") != LOOKUP_OPCODE and not several:
        fault = BAD_OPCODE
    elif asked is None or (not several and len(asked) != 1):
        fault = INVALID
    return LookupQuestion(None if reply_to is None else str(reply_to), correlation_id, asked or (), several, fault)


def _read_asked(body: Any) -> tuple[LookupAddress, ...] | None:
    """Return the addresses in the body of a look-up; None if the body is malformed or has too many."""
    if not isinstance(body, list) or not 0 < len(body) <= 2 * MOST_QUESTIONS or len(body) % 2:
        return None
    pairs = list(zip(body[::2], body[1::2], strict=True))
    if not all(isinstance(address, str) and isinstance(sender, bool) for address, sender in pairs):
        return None
    return tuple(LookupAddress(str(address), sender) for address, sender in pairs)


def lookup_answer(reply_to: str, question: LookupQuestion, status: int, found: bytes) -> bytes:
    """Encode the answer to a look-up. found: as in `LookupAnswer`; one octet even if the status is an error."""
    properties = _properties(reply_to, None, question.correlation_id or _NULL)
    opcode = LOOKUPS_OPCODE if question.several else LOOKUP_OPCODE
    about = _map(_numbers({"version": VERSION, "opcode": opcode, "status": status}))
    if question.several:
        body = codec.encode_binary(found)
    else:
        body = _list([_flag(found != bytes((NO_LINK_ROUTE,))), _flag(found == bytes((SERVED,)))])
    return _header() + properties + about + _value(body)


def create_link_route(name: str, pattern: str, direction: str, reply_to: str, correlation_id: str) -> bytes:
    """Encode a request to an interior router to create a link route for this connection."""
    properties = _properties(None, reply_to, codec.encode_string(correlation_id))
    about = _map(_texts({"operation": "CREATE", "type": LINK_ROUTE, "name": name}))
    body = _texts({"type": LINK_ROUTE, "pattern": pattern, "direction": direction, "name": name})
    return _header() + properties + about + _value(_wide(b"\xd1", body))


def delete_link_route(name: str, identity: str, reply_to: str, correlation_id: str) -> bytes:
    """Encode a request to an interior router to delete a link route."""
    properties = _properties(None, reply_to, codec.encode_string(correlation_id))
    about = _map(_texts({"operation": "DELETE", "type": LINK_ROUTE, "identity": identity, "name": name}))
    return _header() + properties + about + _value(_wide(b"\xd1", []))


def read_answer(octets: bytes) -> LookupAnswer | ManagementAnswer | None:
    """Decode an answer of an interior router; None for an unknown message."""
    sections = _sections(octets)
    properties, about, body = (sections.get(code) for code in (_PROPERTIES, _APPLICATION_PROPERTIES, _VALUE))
    if not isinstance(properties, list) or len(properties) <= _CORRELATION_ID or not isinstance(about, dict):
        return None
    correlation_id, status, code = properties[_CORRELATION_ID], about.get("status"), about.get("statusCode")
    if not isinstance(correlation_id, str):
        return None
    if isinstance(code, int):
        identity = body.get("identity") if isinstance(body, dict) else None
        return ManagementAnswer(str(correlation_id), code, None if identity is None else str(identity))
    if about.get("version") != VERSION:
        return LookupAnswer(str(correlation_id), BAD_VERSION, b"")  # fields of another version are not interpreted
    if about.get("opcode") == LOOKUPS_OPCODE and isinstance(body, bytes) and isinstance(status, int):
        return LookupAnswer(str(correlation_id), status, bytes(body))
    if not isinstance(status, int) or not isinstance(body, list) or len(body) != 2:
        return LookupAnswer(str(correlation_id), INVALID, b"")
    found = NO_LINK_ROUTE if body[0] is not True else SERVED if body[1] is True else UNSERVED
    return LookupAnswer(str(correlation_id), status, bytes((found if status == FOUND else NO_LINK_ROUTE,)))


# Sections


def _sections(octets: bytes) -> dict[int, Any]:
    """Return the values of the sections by descriptor, up to the first section that cannot be decoded."""
    found: dict[int, Any] = {}
    at = 0
    try:
        while at < len(octets):
            section, at = codec.decode(octets, at)
            if not isinstance(section, codec.Described) or not isinstance(section.descriptor, int):
                break
            found[section.descriptor] = section.value
    except (AmqpError, OverflowError, RecursionError):
        pass  # a peer may send anything
    return found


def _header() -> bytes:
    return b"\x00\x53\x70" + _list([_FALSE])


def _properties(to: str | None, reply_to: str | None, correlation_id: bytes) -> bytes:
    items = [_NULL] * (_PROPERTIES_BEFORE_CORRELATION + 1)
    if to is not None:
        items[_TO] = codec.encode_string(to)
    if reply_to is not None:
        items[_REPLY_TO] = codec.encode_string(reply_to)
    items[_CORRELATION_ID] = correlation_id
    return b"\x00\x53\x73" + _list(items)


def _map(items: list[bytes]) -> bytes:
    return b"\x00\x53\x74" + _wide(b"\xd1", items)


def _value(encoded: bytes) -> bytes:
    return b"\x00\x53\x77" + encoded


def _texts(values: dict[str, str]) -> list[bytes]:
    return [codec.encode_string(item) for pair in values.items() for item in pair]


def _numbers(values: dict[str, int]) -> list[bytes]:
    return [item for name, value in values.items() for item in (codec.encode_string(name), _uint(value))]


def _uint(value: int) -> bytes:
    """Encode a small uint as 1.19 does, which never writes uint0."""
    return b"\x52" + bytes((value,))


def _list(items: list[bytes]) -> bytes:
    return _wide(b"\xd0", items)


def _wide(code: bytes, items: list[bytes]) -> bytes:
    """Encode a list or map with four-octet sizes."""
    body = b"".join(items)
    return code + (len(body) + 4).to_bytes(4, "big") + len(items).to_bytes(4, "big") + body


def _flag(value: bool) -> bytes:
    return _TRUE if value else _FALSE
