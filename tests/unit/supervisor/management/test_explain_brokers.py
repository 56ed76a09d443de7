"""EXPLAIN for addresses of link routes and auto links, with and without their broker."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.supervisor.management.desk import CONFIGURATION, Desk

BROKER = """
connector {
    name: broker
    host: 127.0.0.1
    port: 1
    role: route-container
}
linkRoute {
    prefix: legacy
    direction: in
    connection: broker
}
linkRoute {
    prefix: legacy
    direction: out
    connection: broker
}
linkRoute {
    prefix: served
    direction: in
    connection: tenants
}
linkRoute {
    prefix: read
    direction: out
    connection: broker
}
autoLink {
    name: jobs
    address: way.jobs
    direction: out
    connection: broker
}
"""


@pytest.fixture
def desk() -> Desk:
    return Desk(text=CONFIGURATION + BROKER)


def explain(desk: Desk, address: str) -> dict[str, Any]:
    answer = desk.ask("EXPLAIN", address=address)
    assert answer.outcome == (200, "OK")
    body: dict[str, Any] = answer.body
    return body


def test_a_link_route_without_its_broker(desk: Desk) -> None:
    body = explain(desk, "legacy.x")
    assert (body["reachable"], body["verdict"]) == (False, "no container")
    assert body["findings"] == [
        "Links of senders are refused: no container of its link route is connected",
        "Links of receivers are refused: no container of its link route is connected",
    ]


def test_a_link_route_of_one_direction(desk: Desk) -> None:
    """Senders are served as at any other address."""
    body = explain(desk, "read.x")
    assert body["findings"][-1] == "Links of receivers are refused: no container of its link route is connected"
    desk.link(desk.connection(), "in", "read.y")
    body = explain(desk, "read.y")
    assert (body["reachable"], body["verdict"]) == (False, "no consumer")


def test_a_link_route_with_its_broker(desk: Desk) -> None:
    assert not explain(desk, "served.x")["reachable"]
    desk.connection(listener=1)
    body = explain(desk, "served.x")
    assert (body["reachable"], body["verdict"]) == (True, "link-routed")
    assert body["findings"] == ["Links of senders go to a container, by a link route"]


def test_an_auto_link_without_its_broker(desk: Desk) -> None:
    desk.link(desk.connection(), "in", "way.jobs")
    body = explain(desk, "way.jobs")
    assert (body["reachable"], body["verdict"]) == (False, "no consumer; an auto link does not work")
    assert body["findings"][-1] == "Auto link 'jobs' (out, connection broker) is inactive"


def test_addresses_of_nobody_else(desk: Desk) -> None:
    assert len(explain(desk, "other")["findings"]) == 1
    assert explain(desk, "$management")["findings"] == ["The router itself consumes its messages"]
