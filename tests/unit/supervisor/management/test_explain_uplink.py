"""EXPLAIN at an edge router: look-ups at the interior router, and traffic over the uplink."""

from __future__ import annotations

from typing import Any

import pytest

from sluice.supervisor.connections.connections import RegisteredConnection
from tests.unit.supervisor.edge.edge_router import CONFIGURATION, connector, open_interior
from tests.unit.supervisor.management.managed_router import ManagedRouter

SCOPED = "address {\n    prefix: here\n    scope: local\n}\n"


@pytest.fixture
def router() -> ManagedRouter:
    return ManagedRouter(text=CONFIGURATION + SCOPED + connector("up"))


def explain(router: ManagedRouter, address: str) -> dict[str, Any]:
    answer = router.ask("EXPLAIN", address=address)
    assert answer.outcome == (200, "OK")
    body: dict[str, Any] = answer.body
    return body


def open_uplink(router: ManagedRouter) -> RegisteredConnection:
    return open_interior(router.core, router.workers[0], router.configuration.connectors[0], "A")


def test_edge_router_without_uplink_is_explained(router: ManagedRouter) -> None:
    body = explain(router, "a")
    assert not body["reachable"]
    assert body["findings"][-1] == "No uplink: consumers at other routers are not known"
    body = explain(router, "_topo/0/A/$management")
    assert (body["reachable"], body["verdict"]) == (False, "no uplink")
    assert body["findings"] == ["It is at another router, and this edge router has no uplink"]


def test_unused_address_at_edge_is_explained(router: ManagedRouter) -> None:
    uplink = open_uplink(router)
    body = explain(router, "a")
    assert (body["reachable"], body["verdict"]) == (None, "not in use here")
    assert body["findings"][-1] == (
        "No producer is attached here. At the first attach, 'A' is queried for a link route; messages on anonymous "
        f"links without a consumer here go over the uplink to 'A' (connection {uplink.number})"
    )
    assert "uplink" not in " ".join(explain(router, "$management")["findings"]), "an address of the router itself"


def test_consumers_beyond_uplink_are_explained(router: ManagedRouter) -> None:
    uplink = open_uplink(router)
    router.link(router.connection(), "in", "a")
    assert router.core.uplink is not None
    router.core.uplink.lookups.give_up()
    router.core.take_delta()
    route = f"the uplink to 'A' (connection {uplink.number})"
    body = explain(router, "a")
    assert (body["reachable"], body["findings"][-1]) == (False, f"There is no consumer beyond {route}")
    attachment = router.core.uplink.attachment
    assert attachment is not None
    attachment.proxies.tracked("M0a", reachable=True)
    body = explain(router, "a")
    assert (body["reachable"], body["findings"][-1]) == (True, f"There are consumers beyond {route}")
    assert body["verdict"] == "reachable over the uplink"


def test_local_scope_is_explained(router: ManagedRouter) -> None:
    open_uplink(router)
    finding = "Its scope is 'local': its messages do not use the uplink"
    assert explain(router, "here/a")["findings"][-1] == finding


def test_address_beyond_uplink_is_explained(router: ManagedRouter) -> None:
    uplink = open_uplink(router)
    for address in ("_topo/0/B/$management", "_edge/F/x"):
        body = explain(router, address)
        assert (body["reachable"], body["verdict"]) == (True, "goes over the uplink")
        finding = body["findings"][0]
        assert finding == f"It is at another router: messages go over the uplink to 'A' (connection {uplink.number})"
