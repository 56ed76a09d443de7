"""Audit events about clients: each login, refusal and close is reported once, with its facts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from sluice.router.config.diff import diff
from sluice.router.config.load import load_text
from sluice.router.control.messages import TlsFacts
from sluice.supervisor.audit.repetitions import AT_ONCE
from sluice.supervisor.audit.trail import CHANGES_SHOWN, AuditTrail, host_of, remote
from sluice.supervisor.configuration.errors import ChangeError
from sluice.supervisor.connections.connections import RegisteredConnection
from tests.unit.supervisor.harness import configuration_text

CONFIGURATION = load_text("router.conf", configuration_text())
ERROR = ("amqp:connection:framing-error", "no AMQP")


class RecordingRecorder:
    """Recorder that keeps its events."""

    def __init__(self) -> None:
        self.enabled = True
        self.refuses = False
        self.events: list[Mapping[str, Any]] = []

    def write(self, event: Mapping[str, Any]) -> None:
        self.events.append(event)

    @property
    def names(self) -> list[str]:
        return [event["event"] for event in self.events]


@pytest.fixture
def recorder() -> RecordingRecorder:
    return RecordingRecorder()


@pytest.fixture
def trail(recorder: RecordingRecorder) -> AuditTrail:
    return AuditTrail("QDR", recorder)


@pytest.fixture
def connection() -> RegisteredConnection:
    return RegisteredConnection(7, CONFIGURATION.listeners[0], "127.0.0.1:5672", "10.0.0.1:40000", "key")


def log_in(trail: AuditTrail, connection: RegisteredConnection) -> None:
    """Authenticate a client, which has not sent its open yet."""
    trail.authenticated(connection, "XOAUTH2", "u", ("https://issuer", "u"))


def test_login_is_reported_once_at_open(
    trail: AuditTrail, recorder: RecordingRecorder, connection: RegisteredConnection
) -> None:
    log_in(trail, connection)
    assert recorder.events == []
    connection.user, connection.mechanism, connection.container = "mapped", "XOAUTH2", "c"
    connection.tls = TlsFacts(protocol="TLSv1.3", cipher="AES", ssf=256, subject="CN=u", issuer="CN=ca")
    trail.login(connection)
    trail.forget(connection)
    (event,) = recorder.events
    assert (event["event"], event["outcome"], event["router"]) == ("login", "success", "QDR")
    assert (event["user"], event["remote"], event["port"], event["listener"]) == ("mapped", "10.0.0.1", 40000, "main")
    assert event["detail"] == {
        "mechanism": "XOAUTH2",
        "role": "normal",
        "container": "c",
        "token": {"issuer": "https://issuer", "subject": "u"},
        "tls": {"protocol": "TLSv1.3", "cipher": "AES", "subject": "CN=u", "issuer": "CN=ca"},
    }


def test_login_without_open_is_reported_at_end(
    trail: AuditTrail, recorder: RecordingRecorder, connection: RegisteredConnection
) -> None:
    """A user who tests a password and leaves must be visible."""
    log_in(trail, connection)
    trail.ended(connection, ERROR)
    trail.forget(connection)
    (event,) = recorder.events
    assert (event["event"], event["user"], event["detail"]["opened"]) == ("login", "u", False)


def test_failed_login_is_reported_once(
    trail: AuditTrail, recorder: RecordingRecorder, connection: RegisteredConnection
) -> None:
    trail.login_refused(connection, "PLAIN", "claimed", "wrong password")
    trail.ended(connection, ERROR)
    trail.forget(connection)
    (event,) = recorder.events
    assert (event["event"], event["outcome"], event["user"]) == ("login.refused", "denied", None)
    assert event["detail"] == {"mechanism": "PLAIN", "claimed": "claimed", "reason": "wrong password"}


def test_connection_with_error_before_open_is_reported(
    trail: AuditTrail, recorder: RecordingRecorder, connection: RegisteredConnection
) -> None:
    trail.ended(connection, ERROR)
    trail.forget(connection)
    (event,) = recorder.events
    assert event["event"] == "connection.refused"
    assert event["detail"] == {"condition": ERROR[0], "reason": ERROR[1]}


@pytest.mark.parametrize("case", ["left", "page", "opened"])
def test_ordinary_end_is_not_reported(
    trail: AuditTrail, recorder: RecordingRecorder, connection: RegisteredConnection, case: str
) -> None:
    connection.page, connection.opened = case == "page", case == "opened"
    trail.ended(connection, None if case == "left" else ERROR)
    trail.forget(connection)
    assert recorder.events == []


@pytest.mark.parametrize(("of", "names"), [("connection", 1), ("link", 2)])
def test_end_of_denied_connection_is_not_reported_again(
    trail: AuditTrail, recorder: RecordingRecorder, connection: RegisteredConnection, of: str, names: int
) -> None:
    who = {"remote": "10.0.0.1", "port": 40000, "connection": connection.number}
    trail.denied(who, ("vhost",), {"of": of})
    trail.ended(connection, ERROR)
    trail.forget(connection)
    assert recorder.names == ["policy.denied", "connection.refused"][:names]


def test_number_of_forgotten_connection_starts_anew(
    trail: AuditTrail, recorder: RecordingRecorder, connection: RegisteredConnection
) -> None:
    trail.open_refused(connection, "amqp:not-allowed", "no such vhost")
    trail.forget(connection)
    trail.ended(connection, ERROR)
    trail.forget(connection)
    assert recorder.names == ["open.refused", "connection.refused"]


def test_events_of_one_host_are_combined(
    trail: AuditTrail, recorder: RecordingRecorder, connection: RegisteredConnection
) -> None:
    """A peer chooses the claimed name and its port, and must not get more lines by changing them."""
    for number in range(AT_ONCE + 5):
        connection.peer = f"10.0.0.1:{40000 + number}"
        trail.login_refused(connection, "PLAIN", f"user{number}", "wrong password")
    assert len(recorder.events) == AT_ONCE
    trail.flush(everything=True)
    combined = recorder.events[-1]
    assert (combined["repeated"], combined["remote"]) == (5, "10.0.0.1")
    assert "claimed" not in combined["detail"]


def test_disabled_log_receives_nothing(
    trail: AuditTrail, recorder: RecordingRecorder, connection: RegisteredConnection
) -> None:
    recorder.enabled = False
    for _ in range(AT_ONCE + 1):
        trail.login_refused(connection, "PLAIN", "u", "wrong password")
    trail.flush(everything=True)
    assert recorder.events == []


def test_reload_event_counts_changes_and_names_first(trail: AuditTrail, recorder: RecordingRecorder) -> None:
    count = CHANGES_SHOWN + 3
    addresses = "".join(f"address {{\n    prefix: new{number}\n}}\n" for number in range(count))
    plan = diff(CONFIGURATION, load_text("router.conf", configuration_text() + addresses))
    trail.reloaded("SIGHUP", "router.conf", plan)
    (event,) = recorder.events
    assert (event["event"], event["outcome"]) == ("configuration.reload", "success")
    assert len(event["detail"].pop("changes")) == CHANGES_SHOWN
    assert event["detail"] == {"source": "SIGHUP", "path": "router.conf", f"{plan.changes[0].kind}d": count}


def test_failed_reload_has_reason(trail: AuditTrail, recorder: RecordingRecorder) -> None:
    trail.reloaded("SIGHUP", "router.conf", ChangeError(400, "no such file"))
    (event,) = recorder.events
    assert (event["outcome"], event["detail"]["reason"]) == ("failure", "no such file")
    assert trail.reloads == {"success": 0, "failure": 1}
    assert trail.reload_refusal == "no such file"
    trail.reloaded("SIGHUP", "router.conf", diff(CONFIGURATION, CONFIGURATION))
    assert trail.reload_refusal is None


def test_starts_of_router_are_distinguished(recorder: RecordingRecorder) -> None:
    boots = {AuditTrail("QDR", recorder).event("e", None, {}, {})["boot"] for _ in range(2)}
    assert len(boots) == 2


@pytest.mark.parametrize(
    ("peer", "members", "host"),
    [
        ("10.0.0.1:5", {"remote": "10.0.0.1", "port": 5}, "10.0.0.1"),
        ("[2001:db8::1]:5", {"remote": "2001:db8::1", "port": 5}, "2001:db8::/64"),
        ("broker.example:amqp", {"remote": "broker.example", "port": None}, "broker.example"),
    ],
    ids=["IPv4", "IPv6", "name"],
)
def test_peer_is_shown_whole_and_grouped_by_host(peer: str, members: dict[str, Any], host: str) -> None:
    assert (remote(peer), host_of(peer)) == (members, host)
