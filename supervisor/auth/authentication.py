"""Authentication subsystem: relays SASL exchanges between workers and the authentication process.

The process exists while a listener needs it, and it alone decides about logins. The supervisor knows the connection of
each exchange, and keeps the facts that the process reports about users. Nothing here blocks.
"""

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final, Protocol

from msgspec import Struct

from sluice.router.addressing.address import MOBILE, key
from sluice.router.config import password
from sluice.router.config.entities import (
    AuthServiceConfig,
    Configuration,
    ListenerConfig,
    SaslUsersConfig,
    TokenIssuerConfig,
)
from sluice.router.control.handlers import HandlerTable
from sluice.router.control.login_messages import (
    LoginFailed,
    SaslBegin,
    SaslChallenge,
    SaslInit,
    SaslOffer,
    SaslOutcome,
    SaslResponse,
)
from sluice.router.control.messages import Opened
from sluice.router.log import ProcessLog
from sluice.router.sasl.claimed import claimed_user
from sluice.supervisor.addresses.inprocess import InProcessAddresses
from sluice.supervisor.audit.trail import AuditTrail
from sluice.supervisor.auth.cbs import ADDRESS, TokenNode
from sluice.supervisor.auth.client import AuthenticationProcess
from sluice.supervisor.auth.failures import FailedLogins
from sluice.supervisor.auth.messages import (
    Configured,
    Facts,
    LoginAccepted,
    LoginChallenge,
    LoginOffer,
    LoginRefused,
    ProviderState,
    UsersMissing,
    UsersRead,
)
from sluice.supervisor.auth.messages import LoginReply as Reply
from sluice.supervisor.auth.providers import asks_supervisor, exchange_context, providers
from sluice.supervisor.children.worker import WorkerFaultError, WorkerProcess
from sluice.supervisor.configuration.change import ConfigurationChange
from sluice.supervisor.connections.connections import RegisteredConnection
from sluice.supervisor.connections.registry import Connections
from sluice.supervisor.runtime.waker import Cancellable, Waker
from sluice.supervisor.subsystem import Subsystem

EXPIRED: Final = ("amqp:unauthorized-access", "the token of this connection has expired")
DELETED: Final = ("amqp:unauthorized-access", "the user of this connection has been deleted")
# Maximum number of tokens of a connection that are checked at a time. Clients send one for each of their links.
MOST_RENEWALS: Final = 8
MOST_PAUSE: Final = 3600.0  # maximum seconds of a timer for the expiry of a token; then the time is compared again
LEFT: Final = "the client left before the login was decided"
_PROVIDERS: Final = (SaslUsersConfig, TokenIssuerConfig, AuthServiceConfig)


class _Claim(Struct):
    """Login attempt of a client. user: the name that it gives. reason: reason of its refusal, once it is refused."""

    mechanism: str | None
    user: str = ""
    reason: str = ""


class TokenPolicy(Protocol):
    """Questions and notifications to the policy about users with tokens."""

    def may_send(self, connection: RegisteredConnection, address: str) -> bool:
        """True if a client may send to an address."""

    def groups_changed(self, connection: RegisteredConnection) -> None:
        """Apply the policy again, because a renewed token may name other groups."""


class Authentication(Subsystem):
    """Subsystem of all SASL exchanges and logged-in users. Owner: the core."""

    def __init__(
        self,
        configuration: Configuration,
        connections: Connections,
        in_process: InProcessAddresses,
        policy: TokenPolicy,
        waker: Waker,
        trail: AuditTrail,
        log: ProcessLog,
        name: str,
    ) -> None:
        """Create without a process. name: name of the program, shown in process lists."""
        self.failed: Final = FailedLogins()
        self._configuration = configuration
        self._connections: Final = connections
        self._in_process: Final = in_process
        self._policy: Final = policy
        self._takes_tokens = False  # True: the node `$cbs` exists
        self._waker: Final = waker
        self._trail: Final = trail
        self._log: Final = log
        self._name: Final = name
        self._process: AuthenticationProcess | None = None
        self._serial = 0
        # State by number of the connection.
        self._exchanges: dict[int, int] = {}  # number of the SASL exchange that is under way
        self._claims: dict[int, _Claim] = {}  # attempts of clients that have chosen a mechanism
        self._facts: dict[int, Facts] = {}  # facts about users who have logged in
        self._deleted: set[int] = set()  # connections whose user was deleted after the login and before the open
        self._expiries: dict[int, Cancellable] = {}  # timers for the expiry of tokens
        self._renewals: Counter[int] = Counter()  # number of tokens being checked

    def states(self) -> Sequence[ProviderState]:
        """Return the states of the providers that the process has reported."""
        return () if self._process is None else self._process.states

    # The configuration

    def start(self, configuration: Configuration) -> None:
        self._use(configuration)
        self._announce(configuration.listeners)

    def stop(self) -> None:
        if self._process is not None:
            self._process.stop()
        for timer in self._expiries.values():
            timer.cancel()

    def commit(self, change: ConfigurationChange) -> None:
        if any(change.concerns(kind) for kind in (ListenerConfig, *_PROVIDERS)):
            # Problems with providers must be reported at once, so the process starts for a change of providers. For a
            # change of listeners it need not start: their clients may never log in.
            self._use(change.new, start=any(change.concerns(kind) for kind in _PROVIDERS))
            self._announce(change.new.listeners if change.whole else change.made(ListenerConfig))
        else:
            self._configuration = change.new

    def _use(self, configuration: Configuration, *, start: bool = True) -> None:
        self._configuration = configuration
        self._serial += 1
        wanted = providers(configuration, self._serial, lambda written: password.find(written).text)
        if wanted is None and self._process is None:
            return
        if self._process is None:
            self._process = AuthenticationProcess(
                self._waker.loop, self._name, self._log, self._configured, on_users=self._users_changed
            )
        self._process.configure(wanted, start=start)
        for each in configuration.of_type(SaslUsersConfig.type):
            self._confirm(each.name)
        if not self._takes_tokens and any(listener.token_issuers for listener in configuration.listeners):
            self._takes_tokens = True
            node = TokenNode(self._opened, self.renew, self._may_answer, self._in_process.send)
            self._in_process.serve(key(MOBILE, ADDRESS), node.handle)

    def _opened(self, number: int | None) -> RegisteredConnection | None:
        return None if number is None else self._connections.opened.get(number)

    def _may_answer(self, connection: RegisteredConnection, address: str) -> bool:
        """True if a client may send to the address, or has a receiving link from it."""
        if self._policy.may_send(connection, address):
            return True
        record = self._in_process.find(address)
        return record is not None and any(link.consumer and link.record is record for link in connection.links.values())

    def _announce(self, listeners: Iterable[ListenerConfig]) -> None:
        """Log the authentication services that listeners use (security.md A-1)."""
        for listener in listeners:
            service = self._service(listener)
            if service is not None:
                place = f"{service.host}:{service.port_text}"
                self._log.info("CONN_MGR", f"Using auth service {place} from  SASL Plugin {service.name}")

    def _service(self, listener: ListenerConfig) -> AuthServiceConfig | None:
        name = listener.sasl_plugin
        if name is None:
            return None
        for each in self._configuration.of_type(AuthServiceConfig.type):
            if each.name == name and isinstance(each, AuthServiceConfig):
                return each
        return None

    def _configured(self, report: Configured) -> None:
        for kind, name, text in report.problems:
            self._log.error("AUTHSERVICE", f"{kind} {name} cannot be used: {text}")

    # Deleted users

    def _users_changed(self, report: UsersRead | UsersMissing) -> None:
        if isinstance(report, UsersRead):
            self._confirm(report.file)
        else:
            self._close_deleted(report.file, {*report.users})
        self._waker.wake()

    def _confirm(self, file: str) -> None:
        """Ask the process whether a file still has the users of present connections, if their deletion closes them."""
        if self._process is None or not self._closes_deleted(file):
            return
        accounts = (facts.account for facts in self._facts.values())
        users = {account[1] for account in accounts if account is not None and account[0] == file}
        self._process.confirm(file, sorted(users))

    def _close_deleted(self, file: str, users: Collection[str]) -> None:
        """Close the connections of users that were deleted from a file."""
        closed = 0
        for number, facts in self._facts.items():
            if facts.account is None or facts.account[0] != file or facts.account[1] not in users:
                continue
            connection = self._connections.opened.get(number)
            if connection is None:
                self._deleted.add(number)
            elif not connection.closing:
                self._connections.close(connection, *DELETED)
                closed += 1
        if closed:
            unit = "connection of deleted users is" if closed == 1 else "connections of deleted users are"
            self._log.notice("AUTHSERVICE", f"saslUsers {file}: {closed} {unit} closed")

    def _closes_deleted(self, file: str) -> bool:
        found = (each for each in self._configuration.of_type(SaslUsersConfig.type) if each.name == file)
        return any(isinstance(each, SaslUsersConfig) and each.closes_deleted for each in found)

    # Exchanges

    def messages(self, handlers: HandlerTable[WorkerProcess]) -> None:
        handlers.on(SaslBegin, self._begin)
        handlers.on(SaslInit, self._init)
        handlers.on(SaslResponse, self._respond)
        handlers.on(LoginFailed, self._failed)

    def _begin(self, worker: WorkerProcess, message: SaslBegin) -> None:
        connection = worker.connections.get(message.conn)
        if connection is None:
            return
        listener = connection.origin
        if not isinstance(listener, ListenerConfig) or message.conn in self._exchanges:
            raise WorkerFaultError(
                f"{message.kind_name}: connection {message.conn} is already logging in, or may not log in"
            )
        service = self._service(listener)
        if service is not None:
            place = f"{service.host}:{service.port_text}"
            text = f"[C{connection.number}] Enabling remote authentication service {place}"
            self._log.info("SERVER", text)
        router = self._configuration.router
        if self._process is None or not asks_supervisor(listener, router):
            self._refuse(connection, "no authentication provider is available")
            return
        known = exchange_context(
            listener, router, connection.number, connection.peer, message.external, message.encryption, message.binding
        )
        number = self._process.begin(known, lambda reply: self._replied(connection, reply))
        self._exchanges[connection.number] = number

    def _init(self, worker: WorkerProcess, message: SaslInit) -> None:
        number = self._exchanges.get(message.conn)
        if number is not None and message.conn in worker.connections and self._process is not None:
            self._claims[message.conn] = _Claim(message.mechanism, claimed_user(message.mechanism, message.response))
            self._process.init(number, message.mechanism, message.response, message.hostname)

    def _respond(self, worker: WorkerProcess, message: SaslResponse) -> None:
        number = self._exchanges.get(message.conn)
        if number is not None and message.conn in worker.connections and self._process is not None:
            self._process.step(number, message.response)

    def _failed(self, worker: WorkerProcess, message: LoginFailed) -> None:
        """Count and report a failed login, including those that a worker has refused by itself."""
        connection = worker.connections.get(message.conn)
        if connection is not None:
            host = connection.peer.rpartition(":")[0].strip("[]")
            self.failed.add(connection.origin.name, message.mechanism, host)
            claim = self._claims.pop(message.conn, None) or _Claim(message.mechanism)
            mechanism, reason = message.mechanism or claim.mechanism, claim.reason or message.reason
            self._trail.login_refused(connection, mechanism, claim.user, reason)

    def _replied(self, connection: RegisteredConnection, reply: Reply) -> None:
        """Handle a reply of the process; the connection may have ended meanwhile."""
        number = connection.number
        match reply:
            case LoginOffer():
                self._connections.send(connection, SaslOffer(number, reply.mechanisms))
            case LoginChallenge():
                self._connections.send(connection, SaslChallenge(number, reply.octets))
            case LoginAccepted():
                if self._exchanges.pop(number, None) is not None:
                    facts = self._facts[number] = reply.facts
                    claim = self._claims.pop(number, None)
                    mechanism = "" if claim is None or claim.mechanism is None else claim.mechanism
                    self._trail.authenticated(connection, mechanism, reply.user, facts.token)
                    connection.groups = tuple(facts.groups)
                    if facts.targets is not None and facts.sources is not None:
                        connection.permissions = facts.targets, facts.sources
                    outcome = SaslOutcome(conn=number, user=reply.user, additional=reply.additional)
                    self._connections.send(connection, outcome)
            case LoginRefused():
                self._exchanges.pop(number, None)
                self._refuse(connection, reply.text)
        self._waker.wake()

    def _refuse(self, connection: RegisteredConnection, reason: str) -> None:
        claim = self._claims.get(connection.number)
        if claim is not None:
            claim.reason = reason
        self._connections.send(connection, SaslOutcome(conn=connection.number, user=None, reason=reason))

    # Events of connections

    def connection_opened(self, connection: RegisteredConnection, message: Opened) -> None:
        facts = self._facts.get(connection.number)
        if facts is not None and facts.expires is not None:
            self._expire_at(connection, facts.expires)
        if connection.number in self._deleted:
            self._connections.close(connection, *DELETED)

    def connection_closed(self, connection: RegisteredConnection) -> None:
        if not (self._facts or self._exchanges or self._claims or self._deleted or self._expiries):
            return
        self._deleted.discard(connection.number)
        self._facts.pop(connection.number, None)
        timer = self._expiries.pop(connection.number, None)
        if timer is not None:
            timer.cancel()
        number = self._exchanges.pop(connection.number, None)
        if number is not None and self._process is not None:
            self._process.cancel(number)
        claim = self._claims.pop(connection.number, None)
        # A client that leaves before the answer counts as refused: an attacker who guesses passwords could leave before
        # the delayed refusal, because a success is answered at once.
        if claim is not None:
            self._trail.login_refused(connection, claim.mechanism, claim.user, claim.reason or LEFT)

    # Tokens that expire

    def renew(self, connection: RegisteredConnection, token: str, then: Callable[[str | None], None]) -> None:
        """Check another token of an open connection's user. then: called with the reason of its refusal, or None."""
        listener, router = connection.origin, self._configuration.router
        if self._process is None or not isinstance(listener, ListenerConfig) or not listener.token_issuers:
            then("the listener accepts no tokens, because it has no tokenIssuers")
            return
        if self._renewals[connection.number] >= MOST_RENEWALS:
            then("too many tokens of this connection are being checked")
            return
        self._renewals[connection.number] += 1
        known = exchange_context(listener, router, connection.number, connection.peer, None, 0)
        self._process.check(known, token, lambda reply: self._renewed(connection, reply, then))

    def _renewed(self, connection: RegisteredConnection, reply: Reply, then: Callable[[str | None], None]) -> None:
        self._renewals[connection.number] -= 1
        if not self._renewals[connection.number]:
            del self._renewals[connection.number]
        if connection.number not in self._connections.opened:
            return
        fault = None
        if not isinstance(reply, LoginAccepted):
            fault = "the token is refused"
        elif not self._is_renewal(connection, reply):
            fault = "the token is for another user"
        self._trail.renewed(connection, fault)
        if fault is not None or not isinstance(reply, LoginAccepted):
            then(fault)
        else:
            self._facts[connection.number] = reply.facts
            if reply.facts.expires is not None:
                self._expire_at(connection, reply.facts.expires)
            then(None)
            connection.groups = tuple(reply.facts.groups)
            self._policy.groups_changed(connection)
        self._waker.wake()

    def _is_renewal(self, connection: RegisteredConnection, reply: LoginAccepted) -> bool:
        """True if issuer and user of a token are those of the token that the client has logged in with."""
        facts = self._facts.get(connection.number)
        known = None if facts is None else facts.token
        return known is not None and reply.facts.token == known and reply.user == connection.user

    def _expire_at(self, connection: RegisteredConnection, seconds: float) -> None:
        """Close the connection at a time, given in seconds since the epoch."""
        timer = self._expiries.pop(connection.number, None)
        if timer is not None:
            timer.cancel()
        left = seconds - time.time()
        # The time is compared again at least each MOST_PAUSE: the clock may be set, and timers have an upper limit.
        pause = min(max(left, 0.0), MOST_PAUSE)
        self._expiries[connection.number] = self._waker.later(pause, lambda: self._due(connection, seconds))

    def _due(self, connection: RegisteredConnection, seconds: float) -> None:
        if seconds > time.time():
            self._expire_at(connection, seconds)
            return
        del self._expiries[connection.number]
        self._connections.close(connection, *EXPIRED)
        self._waker.wake()
