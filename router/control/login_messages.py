"""Control messages about SASL exchanges with clients (AMQP 1.0 part 5, 5.3)."""

from sluice.router.control.message import ControlMessage

# -- worker to supervisor -----------------------------------------------------------------------------------------


class SaslBegin(ControlMessage, kw_only=True):
    """Start of a SASL exchange at a listener whose clients the supervisor authenticates. Answered with `sasloffer`."""

    conn: int
    external: str | None = None  # user named by the client's certificate
    encryption: int = 0  # strength (ssf) of TLS
    binding: bytes | None = None  # channel binding `tls-exporter`, if the listener offers mechanisms that need it

    def __repr__(self) -> str:
        return f"SaslBegin({self.conn})"


class SaslInit(ControlMessage, kw_only=True):
    """Choice of a mechanism by the client. Answered with `saslchallenge` or `sasloutcome`."""

    conn: int
    mechanism: str
    response: bytes
    hostname: str | None = None

    def __repr__(self) -> str:
        return f"SaslInit({self.conn}, {self.mechanism!r})"


class SaslResponse(ControlMessage):
    """Response of the client to a challenge. Answered with `saslchallenge` or `sasloutcome`."""

    conn: int
    response: bytes

    def __repr__(self) -> str:
        return f"SaslResponse({self.conn})"


class LoginFailed(ControlMessage):
    """Failed login of a client. `mechanism`: the one that it chose; None if that was not offered."""

    conn: int
    mechanism: str | None
    reason: str = ""  # the worker's reason, for the log


# -- supervisor to worker -----------------------------------------------------------------------------------------


class SaslOffer(ControlMessage):
    """Mechanisms offered to a client."""

    conn: int
    mechanisms: list[str]


class SaslChallenge(ControlMessage):
    """Challenge that the client has to answer."""

    conn: int
    octets: bytes

    def __repr__(self) -> str:
        return f"SaslChallenge({self.conn})"


class SaslOutcome(ControlMessage, kw_only=True):
    """End of the exchange. `user` is None if the client is refused; `reason` is then the reason for the log."""

    conn: int
    user: str | None
    additional: bytes | None = None
    reason: str = ""


Reply = SaslOffer | SaslChallenge | SaslOutcome
