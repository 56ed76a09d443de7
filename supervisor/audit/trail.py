"""Audit events about clients: logins, refusals, and connections that the router closes.

Subsystems report their decisions here whether there is an audit log or not.
"""

import os
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final, Protocol

from sluice.router.config.diff import Plan
from sluice.router.control.messages import ErrorText
from sluice.supervisor.audit.line import timestamp
from sluice.supervisor.audit.repetitions import Event, Kind, Repetitions
from sluice.supervisor.configuration.errors import ChangeError
from sluice.supervisor.connections.connections import RegisteredConnection
from sluice.supervisor.runtime.remote_hosts import remote_host

SUCCESS: Final = "success"
DENIED: Final = "denied"  # by a rule, a role or a wrong password
FAILURE: Final = "failure"  # an error of the request or of the router
CHANGES_SHOWN: Final = 20  # maximum number of entities listed by name in the event of a reload
BOOT_OCTETS: Final = 4  # octets of the random `boot` value that distinguishes the starts of a router


class Recorder(Protocol):
    """Writer of events, implemented by the audit subsystem."""

    @property
    def enabled(self) -> bool:
        """True if there is an audit log."""

    @property
    def refuses(self) -> bool:
        """True if actions that have to be reported must be refused, because no line can be written about them."""

    def write(self, event: Event) -> None:
        """Write an event."""


class AuditTrail:
    """Source of audit events, which go to the recorder in order. Owner: the audit subsystem."""

    def __init__(self, router: str, recorder: Recorder) -> None:
        """Create the trail of the router with id `router`."""
        self.reloads: Final = dict.fromkeys((SUCCESS, FAILURE), 0)  # number of reloads by outcome
        self.reload_refusal: str | None = None  # why the last reload was refused; None: it was not
        self._router: Final = router
        self._boot: Final = os.urandom(BOOT_OCTETS).hex()
        self._recorder: Final = recorder
        self._repetitions: Final = Repetitions(recorder.write)
        # State of connections by their number, until `forget`.
        self._logins: dict[int, dict[str, Any]] = {}  # facts about the user, after SASL and before the open
        self._errors: dict[int, ErrorText] = {}  # errors of connections that ended before they were open
        self._refused: set[int] = set()  # connections whose refusal has been reported

    @property
    def deadline(self) -> float:
        """Time at which combined events are due; infinite: there are none."""
        return self._repetitions.deadline

    def flush(self, *, everything: bool = False) -> None:
        """Report the combined events that are due, or all."""
        self._repetitions.flush(everything=everything)

    @property
    def enabled(self) -> bool:
        """True if there is an audit log; otherwise reports are discarded."""
        return self._recorder.enabled

    @property
    def refuses(self) -> bool:
        """True if clients and changes must be refused, because no line can be written about them."""
        return self._recorder.refuses

    def event(self, name: str, outcome: str | None, who: Mapping[str, Any], detail: Mapping[str, Any]) -> Event:
        """Return an event with the present time. Members of `detail` without value are omitted."""
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
        """Report an event. kind: combine it with events of the same kind, because peers can cause it without limit."""
        if not self.enabled:
            return
        event = self.event(name, outcome, who, detail)
        if kind is None or self._repetitions.admit((name, *kind), event):
            self._recorder.write(event)

    # Logins

    def authenticated(
        self, connection: RegisteredConnection, mechanism: str, user: str, token: tuple[str, str] | None
    ) -> None:
        """Note that SASL has succeeded. The login is reported at the open, or at the end of the connection if earlier.

        token: issuer and subject of the token that the client has shown.
        """
        issued = None if token is None else {"issuer": token[0], "subject": token[1]}
        self._logins[connection.number] = {"mechanism": mechanism, "user": user, "token": issued}

    def login(self, connection: RegisteredConnection) -> None:
        """Report a login at the open of a client, after its user is known and before the open is decided."""
        known = self._logins.pop(connection.number, None) if self._logins else None
        if self.enabled:
            token = None if known is None else known.get("token")
            self._login(connection, connection.user, connection.mechanism, token)

    def _login(
        self,
        connection: RegisteredConnection,
        user: str | None,
        mechanism: str | None,
        token: object,
        *,
        left: bool = False,
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

    def login_refused(self, connection: RegisteredConnection, mechanism: str | None, claimed: str, reason: str) -> None:
        """Report a failed login. claimed: the user name that the client gave."""
        self._refused.add(connection.number)
        detail = {"mechanism": mechanism, "claimed": claimed or None, "reason": reason, "tls": tls_of(connection)}
        self.report("login.refused", DENIED, client(connection), detail, (host_of(connection.peer),))

    def renewed(self, connection: RegisteredConnection, fault: str | None) -> None:
        """Report a new token for an open connection. fault: reason of its refusal; None: accepted."""
        name, outcome = ("login.renewed", SUCCESS) if fault is None else ("login.refused", DENIED)
        detail = {"mechanism": "$cbs", "reason": fault}
        self.report(name, outcome, client(connection), detail, (host_of(connection.peer), connection.user))

    def open_refused(self, connection: RegisteredConnection, condition: str, reason: str) -> None:
        """Report an open that was refused for another reason than a rule of a vhost."""
        self._refused.add(connection.number)
        detail = {"condition": condition, "reason": reason}
        self.report("open.refused", DENIED, client(connection), detail, (host_of(connection.peer),))

    def ended(self, connection: RegisteredConnection, error: ErrorText | None) -> None:
        """Note the error of a client's connection that ended before its open. error: None if the peer just left."""
        if error is not None and not connection.page:
            self._errors[connection.number] = error

    def forget(self, connection: RegisteredConnection) -> None:
        """Forget a connection that has ended, after all subsystems were notified. Report what is still unreported."""
        if not (self._refused or self._errors or self._logins):
            return
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

    def closed(self, connection: RegisteredConnection, condition: str | None, reason: str | None) -> None:
        """Report that the router closes an open connection, by a management request, at the expiry of a token, …"""
        detail = {"condition": condition, "reason": reason}
        kind = (host_of(connection.peer), connection.user, reason)
        self.report("connection.closed", None, client(connection), detail, kind)

    # Policy

    def limit_reached(self, peer: str, limit: int) -> None:
        """Report a client refused because the router has too many connections. peer: `ip:port`."""
        detail = {"of": "connection", "reason": "router_connections", "limit": limit}
        self.report("policy.denied", DENIED, remote(peer), detail, (host_of(peer), "router_connections"))

    def denied(self, who: Mapping[str, Any], kind: Kind, detail: Mapping[str, Any]) -> None:
        """Report that a policy rule forbids something. kind: facts about the rule that no peer chooses."""
        if detail.get("of") == "connection" and (number := who.get("connection")) is not None:
            self._refused.add(number)
        host = host_of(f"{who.get('remote')}:{who.get('port')}")
        self.report("policy.denied", DENIED, who, detail, (host, who.get("user"), *kind))

    # The router

    def reloaded(self, source: str, path: str, result: Plan | ChangeError) -> None:
        """Report a reload of the configuration. source: its requester."""
        detail: dict[str, Any] = {"source": source, "path": path}
        if isinstance(result, Plan):
            outcome = SUCCESS
            detail |= Counter(f"{change.kind}d" for change in result.changes)
            detail["changes"] = [f"{change.kind} {change.title()}" for change in result.changes[:CHANGES_SHOWN]]
        else:
            outcome = FAILURE
            detail["reason"] = result.text
        self.reloads[outcome] += 1
        self.reload_refusal = result.text if isinstance(result, ChangeError) else None
        self.report("configuration.reload", outcome, {}, detail)


def client(connection: RegisteredConnection) -> dict[str, Any]:
    """Return the event members that identify a connection: user, remote host, listener or connector, vhost."""
    origin = connection.origin
    ours = connection.initiator is not None
    return {
        "user": connection.user,
        **remote(connection.peer),
        "connection": connection.number,
        "connector" if ours else "listener": origin.name,
        "vhost": origin.policy_vhost if origin.policy_vhost is not None else connection.hostname,
    }


def tls_of(connection: RegisteredConnection) -> dict[str, str | None] | None:
    """Return the TLS protocol, the cipher and the certificate names of the peer; None without TLS."""
    tls = connection.tls
    if tls is None:
        return None
    names = {"subject": tls.subject or None, "issuer": tls.issuer or None}
    return {"protocol": tls.protocol, "cipher": tls.cipher, **names}


def remote(peer: str) -> dict[str, Any]:
    """Return the event members that identify a peer, given as `ip:port`."""
    host, _, port = peer.rpartition(":")
    return {"remote": host.strip("[]"), "port": int(port) if port.isdecimal() else None}


def host_of(peer: str) -> str:
    """Return the host or network by which events of a peer, given as `ip:port`, are grouped."""
    host = peer.rpartition(":")[0]
    try:
        return remote_host(host)
    except ValueError:  # a host name: the router has opened the connection
        return host
