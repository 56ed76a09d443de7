"""Neighbourhood: events about reachable routers and the uplink."""

from types import SimpleNamespace
from typing import Any

from sluice.supervisor.history.neighbourhood import Neighbourhood


class FakeRouters:
    """Routers of a network of which only the ids of the reachable ones are known."""

    def __init__(self) -> None:
        self.reachable: list[str] = []

    def reachable_ids(self) -> list[str]:
        return self.reachable


def test_lost_and_found_routers_are_reported_once() -> None:
    routers: Any = FakeRouters()
    watched = Neighbourhood(routers, None)
    assert list(watched.changes()) == []
    routers.reachable = ["B", "A"]
    found = ("router found", "Router A is reachable"), ("router found", "Router B is reachable")
    assert list(watched.changes()) == [*found]
    assert list(watched.changes()) == []
    routers.reachable = ["B"]
    assert list(watched.changes()) == [("router lost", "Router A is not reachable")]


def test_change_of_uplink_is_reported() -> None:
    uplink: Any = SimpleNamespace(connection=None)
    watched = Neighbourhood(None, uplink)
    assert list(watched.changes()) == []
    uplink.connection = SimpleNamespace(container="A")
    assert list(watched.changes()) == [("router found", "The uplink is connected to A")]
    uplink.connection = SimpleNamespace(container="B")
    assert list(watched.changes()) == [("router found", "The uplink is connected to B")]
    uplink.connection = None
    assert list(watched.changes()) == [("router lost", "No uplink; it was connected to B")]


def test_router_without_network_has_no_events() -> None:
    assert list(Neighbourhood(None, None).changes()) == []
