"""Management requests in the audit log: changes, requested values, and masked secrets."""

import json
from typing import Any

import pytest

from sluice.router.policy.management import READ, ManagementRights
from sluice.supervisor.addresses.inprocess import LocalMessage
from tests.peer.management import PREFIX
from tests.unit.supervisor.management.managed_router import ManagedRouter, request

ADDRESS = PREFIX + "router.config.address"


class RecordingAuditLog:
    """Stand-in for an audit log that keeps its lines."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []
        self.full = False
        self.dropped = 0
        self.config = self
        self.refuses = True

    def write(self, line: bytes) -> bool:
        self.lines.append(json.loads(line))
        return True


@pytest.fixture
def router() -> ManagedRouter:
    return ManagedRouter()


@pytest.fixture
def recorder(router: ManagedRouter) -> RecordingAuditLog:
    made = RecordingAuditLog()
    router.core.audit._sinks["a"] = made  # type: ignore[assignment]
    return made


def test_create_line_shows_created_entity(router: ManagedRouter, recorder: RecordingAuditLog) -> None:
    connection = router.connection()
    recorder.lines.clear()
    router.ask("CREATE", {"prefix": "new", "distribution": "closest"}, connection.number, type=ADDRESS, name="n")
    (line,) = recorder.lines
    assert (line["event"], line["outcome"], line["connection"]) == ("management.change", "success", connection.number)
    assert (line["user"], line["remote"], line["listener"]) == ("anonymous", "10.0.0.1", "main")
    detail = line["detail"]
    assert (detail["type"], detail["name"], detail["status"], detail["origin"]) == (ADDRESS, "n", 201, "client")
    assert detail["after"]["prefix"] == "new"
    assert not {"before", "asked", "reason"} & detail.keys()


def test_delete_line_shows_dependent_entities(router: ManagedRouter, recorder: RecordingAuditLog) -> None:
    router.ask("DELETE", type=PREFIX + "router.config.exchange", name="E")
    (line,) = recorder.lines
    detail = line["detail"]
    assert (detail["type"], detail["before"]["address"]) == (PREFIX + "router.config.exchange", "ex")
    (binding,) = detail["also"]
    assert binding["before"]["bindingKey"] == "a.b"


def test_core_request_without_answer_is_a_line(router: ManagedRouter, recorder: RecordingAuditLog) -> None:
    """The core processes requests to its types even without a reply-to."""
    octets = request({"operation": "CREATE", "type": ADDRESS, "name": "n"}, {"prefix": "quiet"}, reply_to=None)
    assert router.raw(octets) == []
    assert [line["detail"]["after"]["prefix"] for line in recorder.lines] == ["quiet"]


def test_refused_request_line_shows_request(router: ManagedRouter, recorder: RecordingAuditLog) -> None:
    answer = router.ask("CREATE", {"distribution": "closest"}, type=ADDRESS, name="n")
    (line,) = recorder.lines
    assert line["outcome"] == "failure"
    assert (line["detail"]["status"], line["detail"]["reason"]) == answer.outcome
    assert line["detail"]["asked"] == {"distribution": "closest"}


@pytest.mark.parametrize("name", ["saslPassword", "proxyPassword", "password", "metricsToken", "saslPasword", "x"])
def test_hidden_and_unknown_attributes_are_masked(
    router: ManagedRouter, recorder: RecordingAuditLog, name: str
) -> None:
    router.ask("CREATE", {name: "s3cret", "host": "h"}, type=PREFIX + "nonsense", name="n")
    (line,) = recorder.lines
    assert line["detail"]["asked"] == {name: "*******", "host": "h"}
    assert "s3cret" not in json.dumps(recorder.lines)


def test_read_requests_have_lines_only_if_forbidden(router: ManagedRouter, recorder: RecordingAuditLog) -> None:
    connection = router.connection()
    recorder.lines.clear()
    router.ask("QUERY", connection=connection.number, entityType=PREFIX + "connection")
    router.ask("READ", connection=connection.number, type=PREFIX + "log", name="log/DEFAULT")
    assert recorder.lines == []
    rights = ManagementRights("none", closes=False)
    octets = request({"operation": "QUERY", "entityType": PREFIX + "connection"}, {})
    router.agent.handle(LocalMessage(1, connection.number, octets), rights)
    (line,) = recorder.lines
    assert (line["outcome"], line["detail"]["status"], line["detail"]["role"]) == ("denied", 403, "none")


def test_forbidden_requests_are_combined(router: ManagedRouter, recorder: RecordingAuditLog) -> None:
    connection = router.connection()
    recorder.lines.clear()
    rights = ManagementRights(READ, closes=False)
    for number in range(100):
        octets = request({"operation": f"NONSENSE-{number}", "name": "self"}, {})
        router.agent.handle(LocalMessage(1, connection.number, octets), rights)
    router.core.audit.trail.flush(everything=True)
    assert len(recorder.lines) < 20
    assert sum(line.get("repeated", 1) for line in recorder.lines) == 100


def test_changes_are_refused_while_log_is_full(router: ManagedRouter, recorder: RecordingAuditLog) -> None:
    recorder.full = True
    answer = router.ask("CREATE", {"prefix": "new"}, type=ADDRESS, name="n")
    assert answer.outcome == (500, "An audit log cannot be written, so requests for changes are refused")
    assert [row["name"] for row in router.query("router.config.address", "name") if row["name"] == "n"] == []
    assert router.ask("READ", type=PREFIX + "log", name="log/DEFAULT").status == 200


def test_long_request_is_cut(router: ManagedRouter, recorder: RecordingAuditLog) -> None:
    router.ask("CREATE", {"prefix": "x" * 100_000}, type=ADDRESS, name="n")
    (line,) = recorder.lines
    assert line["cut"] is True
    assert len(json.dumps(line)) < 5000


def test_answered_requests_are_dropped(router: ManagedRouter, recorder: RecordingAuditLog) -> None:
    for number in range(10):
        router.ask("CREATE", {"prefix": f"p{number}"}, type=ADDRESS, name=f"n{number}")
        router.ask("DELETE", type=ADDRESS, name=f"n{number}")
        router.ask("UPDATE", {}, type=ADDRESS, name=f"n{number}")
    assert len(recorder.lines) == 30
    assert not router.agent._audit._pending
