"""SASL of a worker's connections, as server and as client.

A listener with providers of its own (`asks_for_sasl`) leaves the exchange to the supervisor: a worker holds no
secrets, and does nothing that may take long. security.md S-4 to S-10.
"""

import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Literal

from sluice.router.amqp.sasl import DEFERRED, Anonymous, Deferred, External, Mechanism, SaslClient, SaslServer
from sluice.router.control import login_messages
from sluice.router.control import messages as control
from sluice.router.control.handover import InitiateData
from sluice.router.control.ops import Profile
from sluice.router.sasl.client import usable_exchanges
from sluice.workers.background import Result

if TYPE_CHECKING:
    from sluice.workers.connections.handler import ConnectionHandler

ANONYMOUS_USER: Final = "anonymous"
MAX_LOGGED_CHARACTERS: Final = 1_000  # most characters of a failed login's reason


class _SupervisorMechanism(Mechanism):
    """Mechanism of the supervisor, to which the client's responses are forwarded."""

    def __init__(self, exchange: "DelegatedExchange", name: str) -> None:
        self._exchange = exchange
        self._name = name
        self._begun = False

    def step(self, response: bytes) -> Literal[Deferred.DEFERRED]:
        """Forward a response. The supervisor's answer arrives at `DelegatedExchange.answer`."""
        exchange = self._exchange
        event: control.Event
        if self._begun:
            event = login_messages.SaslResponse(exchange.handler.number, response)
        else:
            self._begun = True
            event = login_messages.SaslInit(
                conn=exchange.handler.number, mechanism=self._name, response=response, hostname=exchange.server.hostname
            )
        exchange.handler.worker.control.send_event(event)
        exchange.handler.worker.admissions.expect(exchange.handler)
        return DEFERRED


class DelegatedExchange:
    """SASL exchange of a client whose listener leaves it to the supervisor. Owner: the login."""

    __slots__ = ("handler", "server")

    def __init__(self, handler: "ConnectionHandler", tls: control.TlsFacts | None) -> None:
        self.handler = handler
        self.server = SaslServer(None)
        event = login_messages.SaslBegin(conn=handler.number)
        if tls is not None:
            event.external, event.encryption = tls.subject, tls.ssf
            if handler.profile.binds_logins:
                event.binding = handler.open_transport.channel_binding()
        handler.worker.control.send_event(event)
        handler.worker.admissions.expect(handler)

    def answer(self, message: login_messages.Reply) -> None:
        """Handle a reply of the supervisor. The exchange may be over by now."""
        server = self.server
        if server.done:
            return
        match message:
            case login_messages.SaslOffer():
                frames = server.offer({name: self._factory(name) for name in message.mechanisms})
            case login_messages.SaslChallenge():
                frames = server.answer(message.octets, None)
            case login_messages.SaslOutcome(user=None):
                frames = server.refuse(message.reason, server.mechanism)
            case _:
                frames = server.answer(None, message.user, message.additional)
        transport = self.handler.open_transport  # kept here, because the connection loses it if it ends
        self.handler.connection.answer_sasl(frames)
        transport.schedule()

    def _factory(self, name: str) -> Callable[[], Mechanism]:
        return lambda: _SupervisorMechanism(self, name)


class Login:
    """SASL layer of a connection, until its open, and the identity that results from it. Owner: the handler."""

    __slots__ = ("_exchange", "mechanism", "sasl", "user")

    def __init__(self) -> None:
        self.user: str | None = None
        self.mechanism: str | None = None  # SASL mechanism; None: no SASL, or no login yet
        self.sasl: SaslServer | SaslClient | None = None  # None: there is no SASL layer, or it is over
        self._exchange: DelegatedExchange | None = None  # while the supervisor authenticates the client

    def begin(self, handler: "ConnectionHandler") -> SaslServer | SaslClient:
        """Return the SASL server or client of a new SASL layer."""
        if handler.initiate is not None:
            self.sasl = make_client(handler, handler.initiate)
        elif handler.profile.asks_for_sasl:
            self._exchange = DelegatedExchange(handler, handler.open_transport.tls)
            self.sasl = self._exchange.server
        else:
            self.sasl = make_local_server(handler.profile, handler.open_transport.tls)
        return self.sasl

    def answer(self, message: login_messages.Reply) -> bool:
        """Pass a reply of the supervisor to the SASL exchange. False: there is none."""
        if self._exchange is None:
            return False
        self._exchange.answer(message)
        return True

    def complete(self, handler: "ConnectionHandler") -> None:
        """Determine mechanism and user, since the peer's open has arrived."""
        if self.sasl is not None:
            self.mechanism = self.sasl.mechanism
        if handler.initiate is None and self.mechanism is None:
            self.user = user_without_sasl(handler.profile, handler.open_transport.tls)
        self.sasl = self._exchange = None

    def report_failure(self, handler: "ConnectionHandler") -> None:
        """Report the login if the client has failed."""
        sasl = self.sasl
        if isinstance(sasl, SaslServer) and sasl.error is not None:
            reason = sasl.error[1][:MAX_LOGGED_CHARACTERS]
            handler.worker.control.send_event(login_messages.LoginFailed(handler.number, sasl.mechanism, reason))

    def end(self) -> None:
        """Drop the SASL layer, which refers to the handler."""
        if isinstance(self.sasl, SaslServer):
            self.sasl.end()
        self.sasl = self._exchange = None


def user_without_sasl(profile: Profile, tls: control.TlsFacts | None) -> str | None:
    """Return the user of a client that does not use SASL (security.md S-8; routing-semantics.md C-4)."""
    if tls is None:
        return ANONYMOUS_USER
    wanted = profile.sasl_mechanisms
    return tls.subject if wanted is None or "EXTERNAL" in wanted else None


def make_local_server(profile: Profile, tls: control.TlsFacts | None) -> SaslServer:
    """Return the SASL server of a listener without providers (security.md S-4)."""
    external = None if tls is None else tls.subject
    wanted = profile.sasl_mechanisms
    found: dict[str, Callable[[], Mechanism]] = {}
    if external is not None and (wanted is None or "EXTERNAL" in wanted):
        found["EXTERNAL"] = lambda: External(external)
    if not profile.authenticate_peer and (wanted is None or "ANONYMOUS" in wanted):
        found["ANONYMOUS"] = Anonymous
    return SaslServer(found)


def make_client(handler: "ConnectionHandler", initiate: InitiateData) -> SaslClient:
    """Return the SASL client of a connection that the router opened (security.md S-10)."""
    wanted = handler.profile.sasl_mechanisms

    def answered(result: Result) -> None:
        connection = handler.connection
        if connection.ended:
            return
        transport = handler.open_transport
        if isinstance(result, bytes):
            connection.answer_sasl(result)
        else:
            connection.end_by(result)
        transport.schedule()

    mechanisms = usable_exchanges(
        lambda name: wanted is None or name in wanted,
        initiate.user,
        initiate.password,
        socket.gethostname(),
        external=handler.profile.tls is not None,
        find_binding=None if handler.profile.tls is None else handler.open_transport.channel_binding,
    )
    return SaslClient(list(mechanisms), initiate.host, lambda work: handler.worker.background.run(work, answered))
