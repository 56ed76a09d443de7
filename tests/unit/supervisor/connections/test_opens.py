"""Decisions about opens: their order, the answers, and when a worker may admit clients itself."""

from __future__ import annotations

from typing import Any

import pytest

from sluice.router.amqp.errors import INVALID_FIELD
from sluice.router.config.entities import ListenerConfig
from sluice.router.config.load import load_text
from sluice.router.control.messages import Admitted, Denied, Opened
from sluice.router.log import ProcessLog
from sluice.router.policy.decisions import RESOURCE_LIMIT, UNAUTHORIZED
from sluice.supervisor.audit.trail import AuditTrail
from sluice.supervisor.connections.admission import Admit, Decision, Deny
from sluice.supervisor.connections.connections import RegisteredConnection
from sluice.supervisor.connections.membership import ROUTER_NOT_ALLOWED
from sluice.supervisor.connections.opens import NO_USER_IN_CERTIFICATE, UNRECORDED, OpenDecider
from tests.unit.supervisor.audit.test_trail import RecordingRecorder
from tests.unit.supervisor.core_with_replicas import QUIET

CONFIGURATION = """
router {
    id: A
    mode: %s
}
listener {
    name: main
    port: 0
    %s
}
"""
REFUSED = Deny("amqp:not-allowed", "the policy says no")


def listener(*lines: str) -> ListenerConfig:
    mode = "edge" if "role: inter-edge" in lines else "interior"
    return load_text("router.conf", CONFIGURATION % (mode, "\n    ".join(lines))).listeners[0]


class OpeningClients:
    """Decider with an admission policy and identities that the test sets, and an audit log that it reads."""

    def __init__(self) -> None:
        self.recorder = RecordingRecorder()
        self.user: str | None = "u"
        self.decision: Decision | None = Admit()
        self.admits_clients = True
        self.asked: list[int] = []  # connections about which the policy decided
        self.decider = OpenDecider(self, self, AuditTrail("A", self.recorder), ProcessLog(QUIET))

    # Identities

    def user_of(self, connection: RegisteredConnection, message: Opened) -> str | None:
        return self.user

    def peer_of(self, connection: RegisteredConnection, message: Opened) -> str | None:
        return self.user

    # Admission

    def decide(self, connection: RegisteredConnection, message: Opened) -> Decision | None:
        self.asked.append(connection.number)
        return self.decision

    def admits_all(self, listener: ListenerConfig) -> bool:
        return self.admits_clients

    def open(self, *lines: str, number: int = 7, **fields: Any) -> tuple[RegisteredConnection, Decision | None]:
        """Return a new connection of a listener, and the decision about its open."""
        connection = RegisteredConnection(number, listener(*lines), "l:1", "10.0.0.1:2", "key")
        values = {"container": "c", "hostname": "h", "user": None, "properties": {}, "tls": None, **fields}
        message = Opened(conn=number, **values)
        self.decider.identify(connection, message)
        return connection, self.decider.decide(connection, message)


@pytest.fixture
def clients() -> OpeningClients:
    return OpeningClients()


def test_policy_decides_about_client_that_passes_all_checks(clients: OpeningClients) -> None:
    clients.decision = REFUSED
    assert clients.open()[1] is REFUSED
    clients.decision = None
    assert clients.open(number=8)[1] is None
    assert clients.asked == [7, 8]


def test_client_without_audit_line_is_refused_before_the_policy(clients: OpeningClients) -> None:
    clients.recorder.refuses = True
    assert clients.open()[1] is UNRECORDED
    assert clients.asked == []
    assert UNRECORDED.condition == RESOURCE_LIMIT


def test_joining_router_is_admitted_even_without_audit_line(clients: OpeningClients) -> None:
    clients.recorder.refuses = True
    assert clients.open("role: inter-router")[1] == Admit()


@pytest.mark.parametrize("user", [None, ""])
def test_certificate_without_user_is_refused(clients: OpeningClients, user: str | None) -> None:
    clients.user = user
    assert clients.open(mechanism="EXTERNAL")[1] is NO_USER_IN_CERTIFICATE
    assert NO_USER_IN_CERTIFICATE.condition == UNAUTHORIZED
    assert clients.open(mechanism="ANONYMOUS")[1] == Admit()


def test_router_outside_allowed_routers_is_refused_before_the_policy(clients: OpeningClients) -> None:
    assert clients.open("role: inter-router", "allowedRouters: CN=B")[1] is ROUTER_NOT_ALLOWED
    assert clients.asked == []


def test_client_at_listener_for_edge_routers_among_themselves_is_refused(clients: OpeningClients) -> None:
    decision = clients.open("role: inter-edge")[1]
    assert isinstance(decision, Deny)
    assert clients.asked == []


def test_admitted_client_gets_limits_and_address_space(clients: OpeningClients) -> None:
    connection, decision = clients.open("multiTenant: yes")
    assert decision is not None
    answer = clients.decider.answer(connection, decision)
    assert isinstance(answer, Admitted)
    assert (answer.conn, connection.tenant) == (7, "h/")
    assert clients.recorder.names == ["login"]


def test_tenant_with_slash_is_denied_after_the_policy(clients: OpeningClients) -> None:
    connection, decision = clients.open("multiTenant: yes", hostname="t/a")
    assert decision == Admit()
    answer = clients.decider.answer(connection, decision)
    assert isinstance(answer, Denied)
    assert answer.condition == INVALID_FIELD
    assert connection.tenant is None


@pytest.mark.parametrize(("by_policy", "reports"), [(False, 1), (True, 0)])
def test_denial_is_reported_once_to_the_audit_log(clients: OpeningClients, by_policy: bool, reports: int) -> None:
    """The policy has reported its own denials."""
    connection, _ = clients.open()
    before = len(clients.recorder.events)
    answer = clients.decider.answer(connection, REFUSED._replace(by_policy=by_policy))
    assert isinstance(answer, Denied)
    assert (answer.condition, answer.description) == (REFUSED.condition, REFUSED.description)
    assert len(clients.recorder.events) - before == reports


@pytest.mark.parametrize(
    ("lines", "admitted"),
    [
        ((), True),
        (("role: route-container",), True),
        (("role: inter-router",), False),
        (("role: edge",), False),
        (("multiTenant: yes",), False),
    ],
)
def test_worker_admits_only_clients_that_need_nothing_of_the_supervisor(
    clients: OpeningClients, lines: tuple[str, ...], admitted: bool
) -> None:
    clients.recorder.enabled = False
    assert clients.decider.admits_all(listener(*lines)) is admitted


def test_worker_admits_no_client_with_audit_log_or_policy(clients: OpeningClients) -> None:
    assert not clients.decider.admits_all(listener())  # each login is written to the audit log
    clients.recorder.enabled = False
    clients.admits_clients = False
    assert not clients.decider.admits_all(listener())
