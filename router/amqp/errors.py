"""The two errors that may leave the engine, never past the connection that caused them; and the fault that goes past.

`RemoteError`: the peer broke the protocol; the connection is closed with its condition.
`LocalError`: we broke it, or ran out of something; the connection is closed with amqp:internal-error.
"""


class AmqpError(Exception):
    """A protocol error.

    layer: "transport", "sasl", "connection", "session", "link", "message" or "codec".
    condition: AMQP error symbol, e.g. "amqp:connection:framing-error".
    description: text for the peer and the log.
    offset: octets into the frame where it was found, or -1.
    """

    def __init__(self, layer: str, condition: str, description: str, offset: int = -1) -> None:
        super().__init__(f"{layer}: {condition}: {description}" + (f" (octet {offset})" if offset >= 0 else ""))
        self.layer = layer
        self.condition = condition
        self.description = description
        self.offset = offset


class FatalFault(BaseException):
    """A fault of ours that cannot be pinned on one connection or link: what is left of it may be anywhere, so the
    process ends. No net may stop it, so it is no `Exception`.
    """


class RemoteError(AmqpError):
    """The peer erred."""


class LocalError(AmqpError):
    """We erred."""


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
    """A delivery-id is due again while the delivery that had it is unsettled, 2**32 deliveries later."""
    return RemoteError("session", RESOURCE_LIMIT, "a delivery is unsettled since 2**32 deliveries of its session")


def malformed(description: str, offset: int = -1) -> RemoteError:
    """A value of a frame cannot be read (AMQP 1.0 part 1, 1.6)."""
    return RemoteError("codec", DECODE_ERROR, description, offset)
