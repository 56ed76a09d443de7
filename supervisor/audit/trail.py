"""The audit events of clients: logins, refusals, ends that the router decides. What is reported here becomes lines.

A subsystem that decides something reports it here, whether there is an audit log or not.
"""

import os
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final, Protocol

from router.config.diff import Plan
from router.control.messages import ErrorText
from supervisor.audit.line import timestamp
from supervisor.audit.repetitions import Event, Kind, Repetitions
from supervisor.configuration.errors import ChangeError
from supervisor.connections.connections import Connection
from supervisor.runtime.remote_hosts import remote_host

SUCCESS: Final = "success"
DENIED: Final = "denied"  # a rule, a role, a wrong password
FAILURE: Final = "failure"  # an error, of the request or of the router
CHANGES_SHOWN: Final = 20  # entities of a reload by name
BOOT_OCTETS: Final = 4  # of the text that tells the starts of a router apart


class Recorder(Protocol):
    """Writes events."""

    @property
    def enabled(self) -> bool:
        """Whether there is an audit log."""

    @property
    def refuses(self) -> bool:
        """Whether nothing may happen now that would have to be reported, because no line can be written about it."""

    def write(self, event: Event) -> None:
        """Write an event."""


class AuditTrail:
    """Makes events, and gives them to the recorder in order. Owner: the audit subsystem."""

    def __init__(self, router: str, recorder: Recorder) -> None:
        """router: its id."""
        self._router: Final = router
        self._boot: Final = os.urandom(BOOT_OCTETS).hex()
        self._recorder: Final = recorder
        self._repetitions: Final = Repetitions(recorder.write)
        # By number of the connection, until it is gone.
        self._logins: dict[int, dict[str, Any]] = {}  # SASL has succeeded, no open has come; what is known of the user
        self._errors: dict[int, ErrorText] = {}  # it has ended with an error before it was open
        self._refused: set[int] = set()  # it is reported why the connection never opened

    @property
    def deadline(self) -> float:
        """Return when combined events are due."""
        return self._repetitions.deadline

    def flush(self, *, everything: bool = False) -> None:
        """Report combined events that are due, or all."""
        self._repetitions.flush(everything=everything)

    @property
    def enabled(self) -> bool:
        """Return whether anybody reads what is reported."""
        return self._recorder.enabled

    @property
    def refuses(self) -> bool:
        """Return whether clients and changes are to be refused, because no line can be written about them."""
        return self._recorder.refuses

    def event(self, name: str, outcome: str | None, who: Mapping[str, Any], detail: Mapping[str, Any]) -> Event:
        """Return an event of the present moment. Members without value are not shown."""
        return {
            "time": timestamp(),
            "event": name,
            "outcome": outcome,
            "router": self._router,
            "boot": self._boot,
            **who,
            "detail": {name: value for name, value in detail.items() if value is not None} or None,
        }

    def report(
        self,
        name: str,
        outcome: str | None,
        who: Mapping[str, Any],
        detail: Mapping[str, Any],
        kind: Kind | None = None,
    ) -> None:
        """Report an event; one that peers can cause as often as they like has a kind, by which it is combined."""
        if not self.enabled:
            return
        event = self.event(name, outcome, who, detail)
        if kind is None or self._repetitions.admit((name, *kind), event):
            self._recorder.write(event)

    # Logins

    def authenticated(self, connection: Connection, mechanism: str, user: str, token: tuple[str, str] | None) -> None:
        """SASL has succeeded: the line comes with the open, or with the end of the connection if that is earlier.
        token: its issuer, and how that calls the user."""
        issued = None if token is None else {"issuer": token[0], "subject": token[1]}
        self._logins[connection.number] = {"mechanism": mechanism, "user": user, "token": issued}

    def login(self, connection: Connection) -> None:
        """The open of a client has come; the router knows who it is, and has not decided yet."""
        known = self._logins.pop(connection.number, {})
        self._login(connection, connection.user, connection.mechanism, known.get("token"))

    def _login(
        self, connection: Connection, user: str | None, mechanism: str | None, token: object, *, left: bool = False
    ) -> None:
        detail = {
            "mechanism": mechanism,
            "role": connection.origin.role,
            "container": connection.container,
            "token": token,
            "tls": tls_of(connection),
            "opened": False if left else None,
        }
        kind = (host_of(connection.peer), user, connection.origin.name, mechanism)
        self.report("login", SUCCESS, {**client(connection), "user": user}, detail, kind)

    def login_refused(self, connection: Connection, mechanism: str | None, claimed: str, reason: str) -> None:
        """A client could not log in. claimed: the user that it says it is."""
        self._refused.add(connection.number)
        detail = {"mechanism": mechanism, "claimed": claimed or None, "reason": reason, "tls": tls_of(connection)}
        self.report("login.refused", DENIED, client(connection), detail, (host_of(connection.peer),))

    def renewed(self, connection: Connection, fault: str | None) -> None:
        """An open connection has shown another token. fault: why it is refused."""
        name, outcome = ("login.renewed", SUCCESS) if fault is None else ("login.refused", DENIED)
        detail = {"mechanism": "$cbs", "reason": fault}
        self.report(name, outcome, client(connection), detail, (host_of(connection.peer), connection.user))

    def open_refused(self, connection: Connection, condition: str, reason: str) -> None:
        """The open of a client is refused for another reason than a rule of a vhost."""
        self._refused.add(connection.number)
        detail = {"condition": condition, "reason": reason}
        self.report("open.refused", DENIED, client(connection), detail, (host_of(connection.peer),))

    def ended(self, connection: Connection, error: ErrorText | None) -> None:
        """A client's connection ends that has not opened. error: why, if the peer did not just leave."""
        if error is not None and not connection.page:
            self._errors[connection.number] = error

    def forget(self, connection: Connection) -> None:
        """A connection is gone, and all subsystems have heard of it."""
        number = connection.number
        refused, error = number in self._refused, self._errors.pop(number, None)
        self._refused.discard(number)
        login = self._logins.pop(number, None)
        if login is not None:
            self._login(connection, login["user"], login["mechanism"], login["token"], left=True)
        elif error is not None and not refused and not connection.opened:
            detail = {"condition": error[0], "reason": error[1], "tls": tls_of(connection)}
            kind = (host_of(connection.peer),)
            self.report("connection.refused", DENIED, client(connection), detail, kind)

    def closed(self, connection: Connection, condition: str | None, reason: str | None) -> None:
        """The router closes an open connection: by request of management, because a token has expired, and so on."""
        detail = {"condition": condition, "reason": reason}
        kind = (host_of(connection.peer), connection.user, reason)
        self.report("connection.closed", None, client(connection), detail, kind)

    # Policy

    def limit_reached(self, peer: str, limit: int) -> None:
        """A client is refused because there are too many connections."""
        detail = {"of": "connection", "reason": "router_connections", "limit": limit}
        self.report("policy.denied", DENIED, remote(peer), detail, (host_of(peer), "router_connections"))

    def denied(self, who: Mapping[str, Any], kind: Kind, detail: Mapping[str, Any]) -> None:
        """A rule forbids something. kind: what the router knows by itself of the rule."""
        if detail.get("of") == "connection" and (number := who.get("connection")) is not None:
            self._refused.add(number)
        host = host_of(f"{who.get('remote')}:{who.get('port')}")
        self.report("policy.denied", DENIED, who, detail, (host, who.get("user"), *kind))

    # The router

    def reloaded(self, source: str, path: str, result: Plan | ChangeError) -> None:
        """The configuration was read again. source: who asked for it."""
        detail: dict[str, Any] = {"source": source, "path": path}
        if isinstance(result, Plan):
            outcome = SUCCESS
            detail |= Counter(f"{change.kind}d" for change in result.changes)
            detail["changes"] = [f"{change.kind} {change.title()}" for change in result.changes[:CHANGES_SHOWN]]
        else:
            outcome = FAILURE
            detail["reason"] = result.text
        self.report("configuration.reload", outcome, {}, detail)


def client(connection: Connection) -> dict[str, Any]:
    """Return the members of an event about a connection: who is at its other end, and how it came."""
    origin = connection.origin
    ours = connection.initiator is not None
    return {
        "user": connection.user,
        **remote(connection.peer),
        "connection": connection.number,
        "connector" if ours else "listener": origin.name,
        "vhost": origin.policy_vhost if origin.policy_vhost is not None else connection.hostname,
    }


def tls_of(connection: Connection) -> dict[str, str | None] | None:
    """Return how a connection is encrypted, and whom the certificate of the peer is for."""
    tls = connection.tls
    if tls is None:
        return None
    names = {"subject": tls.subject or None, "issuer": tls.issuer or None}
    return {"protocol": tls.protocol, "cipher": tls.cipher, **names}


def remote(peer: str) -> dict[str, Any]:
    """Return the members of an event about a peer, `ip:port`."""
    host, _, port = peer.rpartition(":")
    return {"remote": host.strip("[]"), "port": int(port) if port.isdecimal() else None}


def host_of(peer: str) -> str:
    """Return what counts as the host of a peer, `ip:port`."""
    host = peer.rpartition(":")[0]
    try:
        return remote_host(host)
    except ValueError:  # a name, of a connection that the router opened
        return host
