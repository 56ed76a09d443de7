"""Events about connectors."""

from types import SimpleNamespace
from typing import Any

from sluice.supervisor.history.connector_changes import ConnectorChanges


def state(name: str, up: bool, error: str = "") -> Any:
    return SimpleNamespace(name=name), SimpleNamespace(up=up, error=error)


def test_lost_and_found_connectors_are_reported_once() -> None:
    watched = ConnectorChanges()
    assert list(watched.take([state("a", True), state("b", False)])) == [], "b has not failed yet"
    down = ("connector down", "Connector 'b' is down: refused")
    assert list(watched.take([state("a", True), state("b", False, "refused")])) == [down]
    assert list(watched.take([state("a", True), state("b", False, "timed out")])) == []
    assert list(watched.take([state("b", True)])) == [("connector up", "Connector 'b' is up again")]
    assert list(watched.take([state("b", True)])) == []


def test_deleted_connector_is_forgotten() -> None:
    watched = ConnectorChanges()
    assert len(list(watched.take([state("a", False, "refused")]))) == 1
    assert list(watched.take([])) == []
    assert len(list(watched.take([state("a", False, "refused")]))) == 1
