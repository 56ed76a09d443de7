"""Errors of the engine. RemoteError and LocalError are confined to the connection that caused them; FatalFault is not.

`RemoteError`: the peer violated the protocol; the connection is closed with its condition. `LocalError`: an internal
error, or lack of a resource; the connection is closed with amqp:internal-error.
"""


class AmqpError(Exception):
    """Protocol error.

    layer: "transport", "sasl", "connection", "session", "link", "message" or "codec". condition: AMQP error symbol,
    e.g. "amqp:connection:framing-error". description: text for the peer and the log. offset: octets into the frame
    where the error was found, or -1.
    """

    def __init__(self, layer: str, condition: str, description: str, offset: int = -1) -> None:
        super().__init__(f"{layer}: {condition}: {description}" + (f" (octet {offset})" if offset >= 0 else ""))
        self.layer = layer
        self.condition = condition
        self.description = description
        self.offset = offset


class FatalFault(BaseException):
    """Internal error that cannot be confined to one connection or link. Its remains may be anywhere, so the process
    ends. It is not an `Exception`, so that no error net stops it.
    """


class RemoteError(AmqpError):
    """Protocol violation of the peer."""


class NestingError(RemoteError):
    """Value that is nested more deeply than this codec decodes. It may be valid."""


class LocalError(AmqpError):
    """Internal error, or lack of a resource."""


CONNECTION_FORCED = "amqp:connection:forced"
DECODE_ERROR = "amqp:decode-error"
FRAMING_ERROR = "amqp:connection:framing-error"
INTERNAL_ERROR = "amqp:internal-error"
INVALID_FIELD = "amqp:invalid-field"
MESSAGE_SIZE_EXCEEDED = "amqp:link:message-size-exceeded"
NOT_ALLOWED = "amqp:not-allowed"
NOT_IMPLEMENTED = "amqp:not-implemented"
RESOURCE_LIMIT = "amqp:resource-limit-exceeded"
SESSION_WINDOW_VIOLATION = "amqp:session:window-violation"
SESSION_HANDLE_IN_USE = "amqp:session:handle-in-use"
SESSION_INVALID_FIELD = "amqp:session:invalid-field"


def delivery_id_in_use() -> RemoteError:
    """Return the error for a delivery-id that is used again while its delivery is unsettled, 2**32 deliveries later."""
    return RemoteError("session", RESOURCE_LIMIT, "a delivery of this session has been unsettled for 2**32 deliveries")


def malformed(description: str, offset: int = -1) -> RemoteError:
    """Return the error for a value that cannot be decoded (AMQP 1.0 part 1, 1.6)."""
    return RemoteError("codec", DECODE_ERROR, description, offset)


def nested_too_deeply(offset: int) -> NestingError:
    """Return the error for a value whose depth exceeds the bound on recursion."""
    return NestingError("codec", DECODE_ERROR, "a value is nested too deeply", offset)
