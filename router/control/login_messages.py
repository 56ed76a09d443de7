"""Control messages about a client that logs in by SASL (AMQP 1.0 part 5, 5.3): what it says, and what it gets."""

from router.control.message import Message

# -- worker to supervisor -----------------------------------------------------------------------------------------


class SaslBegin(Message, kw_only=True):
    """A client wants to log in at a listener whose mechanisms are not the worker's own. It waits for `sasloffer`."""

    conn: int
    external: str | None = None  # user by its certificate
    encryption: int = 0  # strength (ssf) of TLS
    binding: bytes | None = None  # `tls-exporter`, where the listener offers mechanisms that need it

    def __repr__(self) -> str:
        return f"SaslBegin({self.conn})"


class SaslInit(Message, kw_only=True):
    """It has chosen. It waits for `saslchallenge` or `sasloutcome`."""

    conn: int
    mechanism: str
    response: bytes
    hostname: str | None = None

    def __repr__(self) -> str:
        return f"SaslInit({self.conn}, {self.mechanism!r})"


class SaslResponse(Message):
    """It has answered a challenge."""

    conn: int
    response: bytes

    def __repr__(self) -> str:
        return f"SaslResponse({self.conn})"


class LoginFailed(Message):
    """A client was not let in. mechanism: the one that it chose, of those that it was offered."""

    conn: int
    mechanism: str | None
    reason: str = ""  # of the worker, for the log


# -- supervisor to worker -----------------------------------------------------------------------------------------


class SaslOffer(Message):
    """The mechanisms that a client may choose from."""

    conn: int
    mechanisms: list[str]


class SaslChallenge(Message):
    """What it has to answer."""

    conn: int
    octets: bytes

    def __repr__(self) -> str:
        return f"SaslChallenge({self.conn})"


class SaslOutcome(Message, kw_only=True):
    """The end of the exchange. user: None where the client is refused; `reason` says why, for the log."""

    conn: int
    user: str | None
    additional: bytes | None = None
    reason: str = ""


Reply = SaslOffer | SaslChallenge | SaslOutcome
