"""EXPLAIN for addresses of link routes and auto links, with and without their broker."""

from __future__ import annotations

from typing import Any

import pytest

from sluice.router.control.messages import Closed
from tests.unit.supervisor.management.managed_router import CONFIGURATION, ManagedRouter

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
def router() -> ManagedRouter:
    return ManagedRouter(text=CONFIGURATION + BROKER)


def explain(router: ManagedRouter, address: str) -> dict[str, Any]:
    answer = router.ask("EXPLAIN", address=address)
    assert answer.outcome == (200, "OK")
    body: dict[str, Any] = answer.body
    return body


def test_link_route_without_broker_is_explained(router: ManagedRouter) -> None:
    body = explain(router, "legacy.x")
    assert (body["reachable"], body["verdict"]) == (False, "no container")
    assert body["findings"] == [
        "Links of senders are refused: no container of its link route is connected",
        "Links of receivers are refused: no container of its link route is connected",
    ]


def test_link_route_of_one_direction_is_explained(router: ManagedRouter) -> None:
    """Senders are served as at any other address."""
    body = explain(router, "read.x")
    assert body["findings"][-1] == "Links of receivers are refused: no container of its link route is connected"
    router.link(router.connection(), "in", "read.y")
    body = explain(router, "read.y")
    assert (body["reachable"], body["verdict"]) == (False, "no consumer")


def test_link_route_with_broker_is_reachable(router: ManagedRouter) -> None:
    assert not explain(router, "served.x")["reachable"]
    router.connection(listener=1)
    body = explain(router, "served.x")
    assert (body["reachable"], body["verdict"]) == (True, "link-routed")
    assert body["findings"] == ["Links of senders go to a container, by a link route"]


def test_auto_link_without_broker_is_explained(router: ManagedRouter) -> None:
    router.link(router.connection(), "in", "way.jobs")
    body = explain(router, "way.jobs")
    assert (body["reachable"], body["verdict"]) == (False, "no consumer; an auto link does not work")
    assert body["findings"][0] == "Auto link 'jobs' (out, connection broker) is inactive", "the reason for the rest"


@pytest.mark.parametrize("up", [False, True])
def test_findings_name_reason_of_connector(router: ManagedRouter, monkeypatch: pytest.MonkeyPatch, up: bool) -> None:
    state = {"up": up, "attempts": 2, "stateSeconds": 12, "downReason": None if up else "Connection refused"}
    monkeypatch.setattr(router.core, "live_attributes", lambda config: state)
    reason = "" if up else ": connector broker has been down for 12 s (Connection refused)"
    findings = explain(router, "legacy.x")["findings"]
    assert [text.partition(" is connected")[2] for text in findings] == [reason, reason]
    found = explain(router, "way.jobs")["findings"][0]
    assert found == f"Auto link 'jobs' (out, connection broker) is inactive{reason}"


def test_findings_name_end_of_last_connection(router: ManagedRouter) -> None:
    connection = router.connection(listener=1)
    router.core.receive(router.workers[0], Closed(conn=connection.number, error=("amqp:not-allowed", "go away")))
    finding = explain(router, "served.x")["findings"][0]
    assert finding.endswith("no container of its link route is connected: amqp:not-allowed go away")


def test_findings_count_refused_links(router: ManagedRouter) -> None:
    router.connection(listener=1)
    address = router.core.link_routes.match("in", "served.x")
    assert address is not None
    address.attempts = 2
    address.refused("amqp:not-found no queue")
    finding = explain(router, "served.x")["findings"][0]
    assert finding.endswith("; 1 of 2 were refused or ended with an error: amqp:not-found no queue")


def test_unrouted_addresses_mention_no_broker(router: ManagedRouter) -> None:
    assert len(explain(router, "other")["findings"]) == 1
    assert explain(router, "$management")["findings"] == ["The router itself consumes its messages"]
