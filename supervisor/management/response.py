"""Answers to requests: status, description, body, and their message (management.md 5.3, 5.12)."""

import asyncio
from collections.abc import Generator
from typing import Any, Final

from msgspec import Struct

from sluice.router.amqp import codec
from sluice.supervisor.management import values

OK: Final = 200
CREATED: Final = 201
NO_CONTENT: Final = 204
BAD_REQUEST: Final = 400
FORBIDDEN: Final = 403
NOT_FOUND: Final = 404
INTERNAL_ERROR: Final = 500
NOT_IMPLEMENTED: Final = 501

TEXTS: Final = {
    OK: "OK",
    CREATED: "Created",
    NO_CONTENT: "No Content",
    BAD_REQUEST: "Bad Request",
    FORBIDDEN: "Forbidden",
    NOT_FOUND: "Not Found",
    INTERNAL_ERROR: "Internal Server Error",
    NOT_IMPLEMENTED: "Not Implemented",
}
_HEADER: Final = codec.encode_described(0x70, [values.FALSE])  # durable: false
_PROPERTIES: Final = 0x73
_APPLICATION_PROPERTIES: Final = b"\x00\x53\x74"
_VALUE: Final = b"\x00\x53\x77"
_STATUS: Final = (values.string("statusCode"), values.string("statusDescription"))


class StatusError(Exception):
    """Failure of a request. `body` is encoded; an empty map unless the specification says otherwise."""

    def __init__(self, status: int, description: str | None = None, body: bytes = values.EMPTY_MAP) -> None:
        super().__init__(status, description)
        self.status = status
        self.description = TEXTS[status] if description is None else description
        self.body = body


class Response(Struct, frozen=True):
    """Answer to a request. `body` is encoded. `subject`: of the message, if a request has several answers."""

    status: int = OK
    body: bytes = values.EMPTY_MAP
    description: str | None = None
    subject: str | None = None

    @property
    def text(self) -> str:
        """Return the description, by default the standard text of the status."""
        return TEXTS[self.status] if self.description is None else self.description

    @classmethod
    def of(cls, status: int, body: Any) -> "Response":
        """Return a successful answer with a body of plain values."""
        return cls(status, values.value(body))

    @classmethod
    def failed(cls, error: StatusError) -> "Response":
        """Return the answer to a failed request."""
        return cls(error.status, error.body, error.description)


# Result of an operation: the answer; or steps that lead to it (other events are handled between steps, and a yielded
# future is awaited); or None if the operation answers later by itself.
Steps = Generator["asyncio.Future[Any] | None", None, Response]
Outcome = Response | Steps | None


def encode(response: Response, reply_to: str, correlation_id: bytes | None) -> bytes:
    """Return the message with an answer. correlation_id: as the client encoded it."""
    nothing = values.NULL
    subject = values.string(response.subject)
    properties = [nothing, nothing, values.string(reply_to), subject, nothing, correlation_id or nothing]
    status = [_STATUS[0], values.int32(response.status), _STATUS[1], values.string(response.text)]
    return b"".join(
        (
            _HEADER,
            codec.encode_described(_PROPERTIES, properties),
            _APPLICATION_PROPERTIES,
            codec.encode_map(status),
            _VALUE,
            response.body,
        )
    )
