"""Node `$cbs` of AMQP claims-based security: clients renew the token that they have logged in with.

The only operation is `put-token`, answered with status 202, 400 or 401.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from sluice.router.amqp import codec
from sluice.router.amqp.errors import AmqpError
from sluice.supervisor.addresses.inprocess import LocalMessage
from sluice.supervisor.connections.connections import RegisteredConnection

ADDRESS: Final = "$cbs"
OPERATION: Final = "put-token"
# Check a token for a connection. The last parameter is called with the reason for refusing it; None: it is in force.
Renew = Callable[[RegisteredConnection, str, Callable[[str | None], None]], None]
ACCEPTED, BAD_REQUEST, UNAUTHORIZED = 202, 400, 401

_PROPERTIES, _APPLICATION_PROPERTIES, _VALUE = 0x73, 0x74, 0x77  # descriptors of sections
_MESSAGE_ID, _REPLY_TO, _CORRELATION_ID = 0, 4, 5  # fields of the properties
_NULL: Final = b"\x40"
_STATUS_CODE: Final[bytes] = codec.encode_string("status-code")
_STATUS_DESCRIPTION: Final[bytes] = codec.encode_string("status-description")


class TokenRequest(NamedTuple):
    """Request to `$cbs`. correlation_id: encoded, for the answer. body: None unless it is one value."""

    reply_to: str | None
    correlation_id: bytes
    operation: object
    body: object


class TokenNode:
    """Handler of messages to `$cbs`. Owner: the core."""

    def __init__(
        self,
        find: Callable[[int | None], RegisteredConnection | None],
        renew: Renew,
        may_answer: Callable[[RegisteredConnection, str], bool],
        send: Callable[[str, bytes], object],
    ) -> None:
        """Create the node.

        find: return the open connection with a number. may_answer: True if the router may send responses for this
        connection to an address. send: send a message to an address.
        """
        self._find: Final = find
        self._renew: Final = renew
        self._may_answer: Final = may_answer
        self._send: Final = send

    def handle(self, message: LocalMessage) -> None:
        """Handle a request. Nothing of it is logged, because it contains a token."""
        try:
            request = _read(message.octets)
        except (AmqpError, ValueError, TypeError, AttributeError, OverflowError, RecursionError):
            return  # the address for a response is unknown, too
        connection = self._find(message.connection_number)
        if connection is None:
            return
        if not isinstance(request.body, str) or request.operation != OPERATION:
            text = "the request must have operation put-token and a token as its body"
            self._answer(connection, request, BAD_REQUEST, text)
            return
        self._renew(connection, str(request.body), lambda refusal: self._renewed(connection, request, refusal))

    def _renewed(self, connection: RegisteredConnection, request: TokenRequest, refusal: str | None) -> None:
        if refusal is None:
            self._answer(connection, request, ACCEPTED, "Accepted")
        else:
            self._answer(connection, request, UNAUTHORIZED, refusal)

    def _answer(self, connection: RegisteredConnection, request: TokenRequest, status: int, text: str) -> None:
        """Send a response, unless the client may not receive from and not send to the reply-to address.

        The router must not send messages on behalf of a client to addresses that policy forbids to that client.
        """
        if request.reply_to is not None and self._may_answer(connection, request.reply_to):
            self._send(request.reply_to, _encode_answer(request.reply_to, request.correlation_id, status, text))


def _read(octets: bytes) -> TokenRequest:
    """Return the request in a message. Raises AmqpError or an exception of Python for an invalid message."""
    fields: list[bytes] = []
    operation = body = None
    at = 0
    while at < len(octets):
        start = at
        section, at = codec.decode(octets, at)
        if section.descriptor == _PROPERTIES:
            fields = codec.described_list(octets[start:at])[1]
        elif section.descriptor == _APPLICATION_PROPERTIES:
            operation = section.value.get("operation")
        elif section.descriptor == _VALUE:
            body = section.value
    fields = [*fields, *[_NULL] * (_CORRELATION_ID + 1 - len(fields))]
    reply_to = codec.decode_one(fields[_REPLY_TO])
    correlation_id = fields[_MESSAGE_ID] if fields[_CORRELATION_ID] == _NULL else fields[_CORRELATION_ID]
    return TokenRequest(str(reply_to) if isinstance(reply_to, str) else None, correlation_id, operation, body)


def _encode_answer(reply_to: str, correlation_id: bytes, status: int, text: str) -> bytes:
    """Return the message with an answer, whose body is null."""
    properties = [_NULL, _NULL, codec.encode_string(reply_to), _NULL, _NULL, correlation_id]
    about = [_STATUS_CODE, codec.encode_int(status), _STATUS_DESCRIPTION, codec.encode_string(text)]
    sections = ((_APPLICATION_PROPERTIES, codec.encode_map(about)), (_VALUE, _NULL))
    octets: bytes = codec.encode_described(_PROPERTIES, properties)
    return octets + b"".join(b"\x00\x53%c%b" % section for section in sections)
