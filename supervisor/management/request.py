"""Requests to the agent, decoded from messages (management.md 5.2).

The message is not trusted. `decode` never raises: an invalid message becomes a request with a `fault`, which is
answered if there is a reply-to, and dropped otherwise.
"""

from collections.abc import Container, Mapping
from typing import Any, Final

from msgspec import Struct, field

from sluice.router.amqp import codec
from sluice.router.amqp.errors import RemoteError
from sluice.router.config.schema import EntityType
from sluice.router.policy.management import UNLIMITED, ManagementRights
from sluice.supervisor.management import values
from sluice.supervisor.management.response import BAD_REQUEST, NOT_FOUND, StatusError
from sluice.supervisor.management.values import EMPTY_MAP, NULL

PROPERTIES: Final = 0x73
APPLICATION_PROPERTIES: Final = 0x74
BODIES: Final = (0x75, 0x76, 0x77)
VALUE: Final = 0x77

_SYMBOLIC: Final = {
    "amqp:properties:list": PROPERTIES,
    "amqp:application-properties:map": APPLICATION_PROPERTIES,
    "amqp:data:binary": 0x75,
    "amqp:amqp-sequence:list": 0x76,
    "amqp:amqp-value:*": VALUE,
}
_TO, _REPLY_TO, _CORRELATION_ID = 2, 4, 5  # fields of the properties section
_SHOWN: Final = 1000  # characters of a request in a text
_SHOWN_NAMES: Final = 200  # characters of attribute names in a text
# properties kept while a request waits
_KEPT: Final = frozenset({"operation", "type", "entityType", "name", "identity"})


class Request(Struct):
    """Request with its origin. `octets`: the message, for its body.

    `worker`, `connection`: origin of the message. `correlation_id`: the encoded value. `fault`: reason for which the
    message is not a valid request. `rights`: of its sender.
    """

    worker: int
    connection: int | None
    octets: bytes
    to: str | None = None
    reply_to: str | None = None
    correlation_id: bytes | None = None
    properties: dict[str, Any] = field(default_factory=dict)
    fault: str | None = None
    rights: ManagementRights = UNLIMITED
    _body_at: int | None = None

    def __repr__(self) -> str:
        return f"{self.operation} of {self.text('type')}, {self.size} octets"  # the body may contain passwords

    @property
    def size(self) -> int:
        """Return the number of octets kept for the request."""
        return len(self.octets) + len(self.reply_to or "") + len(self.correlation_id or b"")

    def shrink(self) -> None:
        """Keep only the data for the answer and for its log line."""
        self.octets, self._body_at = b"", None
        self.properties = {
            key: value
            for key, value in self.properties.items()
            if key in _KEPT and (isinstance(value, int) or (isinstance(value, str) and len(value) <= _SHOWN))
        }

    def text(self, key: str) -> str | None:
        """Return a property that is a string or symbol, otherwise None."""
        value = self.properties.get(key)
        return str(value) if isinstance(value, str) and value else None

    @property
    def operation(self) -> str | None:
        """Return the operation as sent."""
        return self.text("operation")

    @property
    def name(self) -> str | None:
        """Return the name of the target entity."""
        return self.text("name")

    @property
    def identity(self) -> str | None:
        """Return the identity of the target entity. A number is converted to text."""
        value = self.properties.get("identity")
        return str(value) if isinstance(value, int) and not isinstance(value, bool) else self.text("identity")

    def number(self, key: str) -> int | None:
        """Return an integer of any width or from decimal text, None if absent. Raises StatusError for other text."""
        value = self.properties.get(key)
        if isinstance(value, str):
            text = value.strip()
            digits = text[1:] if text[:1] in ("-", "+") else text
            if not digits.isascii() or not digits.isdigit() or len(digits) > 20:
                raise StatusError(BAD_REQUEST, f"'{key}' is not a number: '{value[:_SHOWN]}'")
            return int(text)
        return int(value) if isinstance(value, int) and not isinstance(value, bool) else None

    def body(self) -> Any:
        """Return the value of the body, or None without a valid one. Decoded at each call."""
        if self._body_at is None:
            return None
        try:
            section, _ = codec.decode(self.octets, self._body_at)
        except (RemoteError, RecursionError, OverflowError):
            return None
        return section.value if isinstance(section, codec.Described) else None

    def encoded_body(self) -> bytes:
        """Return the octets of the body's value, up to the end of the message; empty without a body. Not validated."""
        return b"" if self._body_at is None else self.octets[_section(self.octets, self._body_at)[1] :]

    def body_map(self) -> dict[str, Any]:
        """Return the body as a map with keys as text. Raises StatusError if the body is not a map."""
        body = self.body()
        if not isinstance(body, dict):
            raise StatusError(BAD_REQUEST, "Body of request must be a map")
        return {str(key): value for key, value in body.items() if isinstance(key, str)}

    def attribute_names(self, known: Container[str], kind: EntityType | None) -> list[str]:
        """Return the attribute names that a QUERY lists; empty for all attributes.

        Raises StatusError (404) for a name that is not in `known`, the attributes of `kind` or of all types.
        """
        body = self.body()
        listed = body.get("attributeNames") if isinstance(body, dict) else None
        if not isinstance(listed, list):
            return []
        names = [str(name) for name in listed if isinstance(name, str)]
        unknown = [name for name in names if name not in known]
        if unknown:
            suffix = "" if kind is None else f" for type {kind.long_name}"
            raise StatusError(NOT_FOUND, f"Unknown attributes {str(unknown)[:_SHOWN_NAMES]}{suffix}.")
        return names

    def refuse_unknown(self, kind: EntityType, more: Container[str] = ()) -> None:
        """Raise StatusError (400) if the body of a CREATE or UPDATE has an attribute that `kind` lacks.

        more: further names that the operation accepts.
        """
        body = self.body()
        if not isinstance(body, dict):
            return
        attributes = kind.attributes.values()
        known = {name for each in attributes for name in (each.name, each.old_name, each.alias)}
        for name in body:
            if isinstance(name, str) and name not in known and name not in more:
                text = f"Unknown attribute '{name[:_SHOWN_NAMES]}' for '{kind.long_name}'"
                raise StatusError(BAD_REQUEST, text, NULL if self.operation == "CREATE" else EMPTY_MAP)

    def __str__(self) -> str:
        """Return the text for the log (management.md 4.7)."""
        text = (
            f"Message(address={self.to!r}, properties={self.properties!r}, body={self.body()!r}, "
            f"reply_to={self.reply_to!r}, correlation_id={self.correlation_text()}, content_type=None)"
        )
        return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."

    def correlation_text(self) -> str:
        """Return the correlation-id as text for the log."""
        return "None" if self.correlation_id is None else repr(codec.decode_one(self.correlation_id))


def decode(worker: int, connection: int | None, octets: bytes) -> Request:
    """Return the request in a message that came over `connection` of `worker`."""
    request = Request(worker, connection, octets)
    try:
        _scan(request)
    except (RemoteError, OverflowError, RecursionError) as error:
        request.fault = f"The request cannot be read: {error}"
    return request


def encode_request(to: str, reply_to: str, correlation_id: str, properties: Mapping[str, Any]) -> bytes:
    """Return the message of a request without a body to another agent."""
    null = values.NULL
    fields = [null, null, values.string(to), null, values.string(reply_to), values.string(correlation_id)]
    sections = ((PROPERTIES, codec.encode_list(fields)), (APPLICATION_PROPERTIES, values.mapping(properties)))
    return b"".join(b"\x00\x53%c%b" % section for section in (*sections, (VALUE, values.EMPTY_MAP)))


def _scan(request: Request) -> None:
    """Parse the sections up to the body. Raises RemoteError."""
    octets = request.octets
    at = 0
    while at < len(octets):
        code, behind = _section(octets, at)
        if code in BODIES:
            if code == VALUE:
                request._body_at = at
            return
        value, end = codec.decode(octets, at)
        if code == PROPERTIES:
            _read_properties(request, octets[at:end])
        elif code == APPLICATION_PROPERTIES:
            _read_application_properties(request, value.value)
        at = max(end, behind)


def _section(octets: bytes, at: int) -> tuple[int | None, int]:
    """Return the descriptor of the section at `at` (None: unknown), and the start of its value."""
    if octets[at] != 0:
        raise RemoteError("message", "amqp:decode-error", f"no section at octet {at}")
    descriptor, behind = codec.decode(octets, at + 1)
    if isinstance(descriptor, codec.Symbol):
        return _SYMBOLIC.get(descriptor), behind
    return (descriptor if isinstance(descriptor, int) else None), behind


def _read_properties(request: Request, section: bytes) -> None:
    _, items = codec.described_list(section)
    for index in (_TO, _REPLY_TO):
        value = codec.decode_one(items[index]) if len(items) > index else None
        if isinstance(value, str) and value:
            if index == _TO:
                request.to = str(value)
            else:
                request.reply_to = str(value)
    if len(items) > _CORRELATION_ID and codec.decode_one(items[_CORRELATION_ID]) is not None:
        request.correlation_id = items[_CORRELATION_ID]


def _read_application_properties(request: Request, value: Any) -> None:
    if not isinstance(value, dict):
        raise RemoteError("message", "amqp:decode-error", "application-properties are not a map")
    request.properties = {str(key): item for key, item in value.items() if isinstance(key, str)}
