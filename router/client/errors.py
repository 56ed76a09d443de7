"""Exceptions of the client."""


class ClientError(Exception):
    """Base class of the client's exceptions. condition: the AMQP error condition; "" if the peer sent none."""

    def __init__(self, condition: str = "", description: str = "") -> None:
        super().__init__(": ".join(part for part in (condition, description) if part))
        self.condition = condition
        self.description = description


class ConnectionFailedError(ClientError):
    """Raised when the connection was refused, lost or closed, and is not opened again.

    closed_by_peer: the peer has sent a close frame. `__cause__` is the OSError of a transport that failed.
    """

    closed_by_peer = False


class LinkDetachedError(ClientError):
    """Raised when the peer has refused or detached the link, or ended its session."""


class UnsettledError(ClientError):
    """Raised when the connection or link was lost before the outcome of a message was known.

    The receiver may have got the message, unless `sent` is False: then no octet of it was sent.
    """

    def __init__(self, sent: bool, condition: str = "", description: str = "") -> None:
        super().__init__(condition, description or ("the outcome is unknown" if sent else "the message was not sent"))
        self.sent = sent


class TransactionError(ClientError):
    """Raised when a peer has no transactions, or when a transaction was rolled back although it was to be committed."""


class StaleDeliveryError(ClientError):
    """Raised when the delivery's link has ended: the sender decides what happens to the delivery."""
