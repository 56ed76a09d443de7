"""What calls of the client raise."""


class ClientError(Exception):
    """Base of all. condition: the AMQP error, "" where the peer said none."""

    def __init__(self, condition: str = "", description: str = "") -> None:
        super().__init__(": ".join(part for part in (condition, description) if part))
        self.condition = condition
        self.description = description


class ConnectionFailedError(ClientError):
    """The connection is not open: refused, lost or closed, and not to be opened again."""


class LinkDetachedError(ClientError):
    """The peer has refused or detached the link, or ended its session."""


class UnsettledError(ClientError):
    """The connection or link was lost before the outcome of a message was known. The receiver may have got it, unless
    `sent` is False: then no octet of it had left.
    """

    def __init__(self, sent: bool, condition: str = "", description: str = "") -> None:
        super().__init__(condition, description or ("the outcome is not known" if sent else "it was not sent"))
        self.sent = sent


class StaleDeliveryError(ClientError):
    """The delivery came by a link that is gone: the sender decides what becomes of it."""
