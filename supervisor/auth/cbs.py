"""Node `$cbs` of AMQP claims-based security: clients renew the token that they have logged in with.

The only operation is `put-token`, answered with status 202, 400 or 401.
"""

from collections.abc import Callable
from typing import Final

from router.amqp.errors import AmqpError
from router.amqp.message import Message, decode
from supervisor.addresses.inprocess import LocalMessage
from supervisor.connections.connections import RegisteredConnection

ADDRESS: Final = "$cbs"
OPERATION: Final = "put-token"
# Check a token for a connection. The last parameter is called with the reason for refusing it; None: it is in force.
Renew = Callable[[RegisteredConnection, str, Callable[[str | None], None]], None]
ACCEPTED, BAD_REQUEST, UNAUTHORIZED = 202, 400, 401


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
            request = decode(message.octets)
        except (AmqpError, ValueError, TypeError, AttributeError, OverflowError, RecursionError):
            return  # the address for a response is unknown, too
        connection = self._find(message.connection_number)
        token = request.body
        put = request.properties.get("operation") == OPERATION
        if connection is None:
            return
        if not isinstance(token, str) or not put:
            text = "the request must have operation put-token and a token as its body"
            self._answer(connection, request, BAD_REQUEST, text)
            return
        self._renew(connection, str(token), lambda refusal: self._renewed(connection, request, refusal))

    def _renewed(self, connection: RegisteredConnection, request: Message, refusal: str | None) -> None:
        if refusal is None:
            self._answer(connection, request, ACCEPTED, "Accepted")
        else:
            self._answer(connection, request, UNAUTHORIZED, refusal)

    def _answer(self, connection: RegisteredConnection, request: Message, status: int, text: str) -> None:
        """Send a response, unless the client may not receive from and not send to the reply-to address.

        The router must not send messages on behalf of a client to addresses that policy forbids to that client.
        """
        if not isinstance(request.reply_to, str) or not self._may_answer(connection, request.reply_to):
            return
        correlation = request.correlation_id if request.correlation_id is not None else request.message_id
        answer = Message(
            to=request.reply_to,
            correlation_id=correlation,
            properties={"status-code": status, "status-description": text},
        )
        self._send(request.reply_to, answer.encode())
