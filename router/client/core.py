"""Connection of a client, without input or output. Its sessions and links outlive its transports.

Its driver (blocking.py, aio.py) passes octets and the time to it, takes octets from it, and reads its state:

    core.start(now, secure)        a transport is connected, with TLS or not: begin the exchange
    core.receive(octets, now)      octets were received
    core.feed(octets, now)         as `receive`, for a driver that keeps the octets that were not taken
    core.output(now)               octets to send
    core.tick(now)                 heartbeats and time-outs; returns seconds until the next call, None: nothing is due
    core.lost(description)         the transport was lost
    core.closing                   the transport is to be closed when all octets are sent

Sessions and links are begun and attached again on each new transport. Deliveries that were unsettled on the old one
are reported and never sent again: UnsettledError for messages sent, StaleDeliveryError for deliveries received.
"""

import os
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, ClassVar

from msgspec import field

from sluice.router.amqp import codec
from sluice.router.amqp.connection import Connection
from sluice.router.amqp.errors import FRAMING_ERROR, NOT_ALLOWED, RemoteError
from sluice.router.amqp.sasl import ClientExchange, SaslClient
from sluice.router.amqp.scheduler import Scheduler
from sluice.router.client.errors import ClientError, ConnectionFailedError
from sluice.router.client.session import SessionState
from sluice.router.client.tls import Tls, failure, is_untrusted
from sluice.router.client.url import Url, parse
from sluice.router.record import Record

if TYPE_CHECKING:
    import ssl

    from sluice.router.amqp.session import Session
    from sluice.router.client.links import LinkState

NANOSECONDS = 1_000_000_000
MS = 1000
UNAUTHORIZED = "amqp:unauthorized-access"
MAX_FRAME = 65536  # octets
EXPLAINED_MOST = 64  # links whose detach a later close may explain; the peer sends both together
UNSAFE = ("PLAIN", "OAUTHBEARER")  # mechanisms that send a secret in the clear


def _nothing() -> None:
    """Do nothing: there is no driver yet."""


def _container() -> str:
    return f"{os.uname().nodename}-{os.getpid()}-{os.urandom(4).hex()}"


class Options(Record, frozen=True):
    """Options of a connection.

    idle: seconds after which a silent peer is disconnected, 0: never. handshake: seconds until the peer's open.

    login: user and password. token: of OAuth 2.0, or a callable that returns one for each connection. tls: for `amqps`
    URLs. mechanisms: names of SASL mechanisms that may be used, none: all. The strongest with its data is used:
    EXTERNAL with a certificate, OAUTHBEARER with a token, SCRAM or PLAIN with a login, and ANONYMOUS with neither
    login nor token. Exchanges may be given instead of names: the first that the peer offers is used.
    allow_insecure_mechs: passwords (PLAIN) and tokens are also sent without TLS. sasl False: AMQP without a SASL layer,
    as the tools of Dispatch do.
    """

    HIDDEN: ClassVar[frozenset[str]] = frozenset({"login", "token"})

    container: str = field(default_factory=_container)
    hostname: str | None = None
    mechanisms: Sequence[ClientExchange | str] = ()
    login: tuple[str, str] | None = None
    token: str | Callable[[], str] | None = None
    tls: Tls | None = None
    allow_insecure_mechs: bool = False
    sasl: bool = True
    idle: float = 60.0
    handshake: float = 15.0
    max_frame: int = MAX_FRAME
    properties: dict[str, Any] = field(default_factory=dict)


def target(url: str | Sequence[str], given: dict[str, Any]) -> tuple[list[Url], Options]:
    """Parse the arguments of `connect`. Raises ValueError, and ConnectionFailedError for TLS files that cannot be
    used."""
    urls = [parse(each) for each in ([url] if isinstance(url, str) else url)]
    login = None if urls[0].user is None else (urls[0].user, urls[0].password or "")
    options = Options(**{"login": login, "hostname": urls[0].host, **given})
    if options.tls is not None and not all(each.secure for each in urls):
        raise ValueError("TLS settings need amqps URLs, and one URL is not amqps")
    if any(each.secure for each in urls):
        try:
            (options.tls or Tls()).context()
        except OSError as error:
            raise ConnectionFailedError("", str(error)) from error
    return urls, options


class ConnectionStage(Enum):
    """State of a connection."""

    DOWN = auto()  # no transport, or one that has not opened yet
    OPEN = auto()
    CLOSED = auto()  # closed by this client, or not to be opened again


class ClientCore:
    """Connection of a client. Owner: its driver, which calls it from one thread."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.stage = ConnectionStage.DOWN
        self.scheduler = Scheduler()
        self.connection: Connection | None = None
        self.sessions: list[SessionState] = []
        self.remote: dict[str, Any] = {}  # open of the peer
        self.error: ClientError | None = None  # reason why the connection is not open
        # Links that the peer has detached without an error on the current transport: a close may give the reason, as
        # after a message that is too long (routing-semantics.md 11.8).
        self.detached_without_reason: deque[LinkState] = deque(maxlen=EXPLAINED_MOST)
        self.refused = False  # another attempt would fail, too
        self.was_open = False  # the current transport has opened
        # Set by the driver: called when there may be octets to send, and when a connection or link begins or ends.
        self.changed: Callable[[], None] = _nothing
        # Set by the driver: called with long computations of SASL, whose result goes to `answer_sasl`. None: computed
        # at once.
        self.later: Callable[[Callable[[], bytes]], None] | None = None
        self.secure = False  # the transport uses TLS
        self._sasl: SaslClient | None = None
        self._lost = False  # the transport was lost before the exchange ended
        self._rest = b""
        self._out: list[bytes] = []

    # -- driving -------------------------------------------------------------------------------------------------------

    def tls(self, url: Url) -> "tuple[ssl.SSLContext | None, str]":
        """Return the TLS context for a transport to `url` (None: plain TCP), and the name that the peer must have.
        Raises OSError."""
        settings = self.options.tls or Tls()
        return settings.context() if url.secure else None, settings.server_name or url.host

    def connection_attempt_failed(self, url: Url, error: OSError) -> None:
        """Note an attempt that failed before there was a transport."""
        self.refused = is_untrusted(error)
        self.error = ConnectionFailedError("", f"{url.host}:{url.port}: {failure(error)}")
        self.error.__cause__ = error

    def start(self, now: float, secure: bool = False) -> None:
        """Begin the exchange on a new transport. secure: with TLS."""
        self._clock(now)
        self.secure = secure
        self.refused = False
        self._rest = b""
        self._out.clear()
        self.error = None
        self.was_open = False
        self._lost = False
        self.detached_without_reason.clear()
        self.connection = Connection(
            self.scheduler, self, initiator=True, max_frame=self.options.max_frame, idle_ms=int(self.options.idle * MS)
        )
        self.connection.limit_handshake(int(self.options.handshake * MS))
        self.connection.start()

    def receive(self, octets: bytes, now: float) -> None:
        self._rest += octets
        self._rest = self._rest[self.feed(self._rest, now) :]

    def feed(self, octets: bytes | memoryview, now: float) -> int:
        """Pass octets to the engine; return the number taken. The others must be given again, with more behind them."""
        self._clock(now)
        if self.connection is None:
            return len(octets)
        taken = self.connection.feed(octets)
        while self.scheduler.go_on():
            taken += self.connection.feed(octets[taken:])
        return taken

    def answer_sasl(self, octets: bytes, now: float) -> None:
        """Continue SASL with the result of a computation given to `later`. The transport must still be the same.

        Octets that were received meanwhile are taken. A driver that keeps octets calls `feed` afterwards.
        """
        if self.connection is not None:
            self._clock(now)
            self.connection.answer_sasl(octets)
            self.receive(b"", now)

    def output(self, now: float) -> bytes:
        """Return the octets to send now; b"": none."""
        if self.connection is None:
            return b""
        self._clock(now)
        octets = b"".join([*self._out, self.connection.take_output()])
        self._out.clear()
        if octets:
            self.connection.last_sent = self.scheduler.now
        return octets

    def tick(self, now: float) -> float | None:
        if self.connection is None:
            return None
        self._clock(now)
        due = self.connection.tick(self.scheduler.now)
        return max(due - self.scheduler.now, 0) / MS if due else None

    def lost(self, description: str, cause: OSError | None = None) -> None:
        """Note that the transport was lost. cause: of the loss; None: the peer has closed the socket."""
        connection, self.connection = self.connection, None
        if connection is None:
            return
        if not connection.finished:
            self._lost = True
            connection.transport_lost()
            while self.scheduler.go_on():
                pass  # links end turn by turn
            self.error = ConnectionFailedError("", description)
            self.error.__cause__ = cause
        connection.release()
        if self.stage is ConnectionStage.OPEN:
            self.stage = ConnectionStage.DOWN
        for session in self.sessions:
            session.connection_lost()

    @property
    def closing(self) -> bool:
        """True if nothing more will be written, and the transport is to be closed."""
        return self.connection is None or bool(self.connection.finished)

    def close(self, condition: str | None = None, description: str | None = None) -> None:
        """Close for good."""
        self.stage = ConnectionStage.CLOSED
        if self.connection is not None and not self.connection.finished:
            if self.connection.remote_open is None:
                self.connection.drop_silently()
            else:
                while octets := self.connection.take_output():
                    self._out.append(octets)  # outcomes precede the close
                self.connection.close(condition, description)

    def give_up(self) -> None:
        """Mark the connection as not to be opened again."""
        self.stage = ConnectionStage.CLOSED
        self.error = self.error or ConnectionFailedError("", "the connection is closed")

    def check(self) -> None:
        """Raise ConnectionFailedError if the connection is closed for good."""
        if self.stage is ConnectionStage.CLOSED:
            raise self.error or ConnectionFailedError("", "the connection is closed")

    def _clock(self, now: float) -> None:
        self.scheduler.set_time(int(now * NANOSECONDS))

    # -- sessions and links --------------------------------------------------------------------------------------------

    def session(self, window: int | None = None) -> SessionState:
        """Create a session."""
        self.check()
        session = SessionState(self, window)
        self.sessions.append(session)
        if self.stage is ConnectionStage.OPEN:
            assert self.connection is not None
            session.begin(self.connection)
        return session

    def forget(self, session: SessionState) -> None:
        self.sessions.remove(session)

    # -- events of the engine ------------------------------------------------------------------------------------------

    def authenticator(self) -> SaslClient | None:
        self._sasl = None
        if self.options.sasl:
            self._sasl = SaslClient(list(self._usable_exchanges()), self.options.hostname or "", self.later)
        return self._sasl

    def _usable_exchanges(self) -> Iterable[ClientExchange]:
        """Return the exchanges that may be used, the strongest first."""
        from sluice.router.sasl.client import usable_exchanges  # 20 ms that clients without SASL do not need

        options = self.options
        exchanges = [each for each in options.mechanisms if not isinstance(each, str)]
        if exchanges:
            return exchanges
        user, password = options.login or (None, None)
        safe = self.secure or options.allow_insecure_mechs
        token = options.token() if callable(options.token) else options.token

        def allowed(name: str) -> bool:
            if name in UNSAFE and not safe:
                return False
            if options.mechanisms:
                return name in options.mechanisms
            # A known user never logs in as anonymous.
            return name != "ANONYMOUS" or (user is None and token is None)

        external = self.secure and options.tls is not None and options.tls.certificate is not None
        return usable_exchanges(allowed, user, password, os.uname().nodename, external=external, token=token)

    def _describe_refusal(self, description: str) -> str:
        """Add the reason of a failed login if this client, and not the peer, has refused."""
        sasl = self._sasl
        if sasl is None or sasl.picked is not None or not sasl.done:
            return description
        may = " ".join(each.name for each in sasl.mechanisms) or "none"
        text = f"no mechanism in common: the peer offers {' '.join(sasl.offered) or 'none'}; usable here: {may}"
        withheld = [name for name in sasl.offered if name in UNSAFE]
        if withheld and not self.secure and not self.options.allow_insecure_mechs:
            text += f". {' '.join(withheld)} needs TLS, or allow_insecure_mechs=True"
        from sluice.router.sasl.client import CLIENT_MECHANISMS

        unknown = [name for name in self.options.mechanisms if isinstance(name, str) and name not in CLIENT_MECHANISMS]
        if unknown:
            text += f". This client does not implement {' '.join(unknown)}"
        return f"{text} (Authentication failed [mech=none])"

    def on_authenticated(self, connection: Connection, user: str | None) -> None:
        properties = [
            part
            for key, value in self.options.properties.items()
            for part in (codec.encode_symbol(key), codec.encode_value(value))
        ]
        connection.send_open(self.options.container, hostname=self.options.hostname, properties=properties)

    def on_open(self, connection: Connection, remote: dict[str, Any]) -> None:
        self.remote = remote
        self.stage = ConnectionStage.OPEN
        self.was_open = True
        self.changed()
        for session in self.sessions:
            session.begin(connection)

    def on_begin(self, connection: Connection, channel: int, items: list[bytes]) -> None:
        raise RemoteError("session", NOT_ALLOWED, "a client accepts no sessions from its peer")

    def on_too_many_sessions(self) -> None:
        """Do nothing: the error that follows says that the server began a session too many."""

    def on_session_error(self, session: "Session", error: tuple[str, str]) -> None:
        """Keep the error with which the server ends a session, for the links that are lost with it."""
        for state in self.sessions:
            if state.session is session:
                state.error = error

    def on_closing(self, connection: Connection, error: tuple[str, str] | None) -> bool:
        return False

    def on_closed(self, connection: Connection, error: tuple[str, str] | None) -> None:
        if self.stage is ConnectionStage.OPEN:
            self.stage = ConnectionStage.DOWN
        self.changed()
        condition, description = error or ("", "")
        # The login was refused, or the peer does not use AMQP: another attempt would end in the same way.
        self.refused = connection.remote_open is None and condition in (UNAUTHORIZED, FRAMING_ERROR) and not self._lost
        if self.stage is not ConnectionStage.CLOSED:
            description = self._describe_refusal(description) if self.refused else description
            self.error = ConnectionFailedError(condition, description or "the peer has closed the connection")
            self.error.closed_by_peer = connection.close_received
            if condition and connection.close_received:
                for link in self.detached_without_reason:
                    link.explain_detach(self.error)
                self.detached_without_reason.clear()

    def on_fault(self, connection: Connection, fault: BaseException) -> None:
        raise fault
