"""EXPLAIN at an edge router: look-ups at the interior router, and traffic over the uplink."""

from __future__ import annotations

from typing import Any

import pytest

from supervisor.connections.connections import Connection
from tests.unit.supervisor.edge.world import CONFIGURATION, connector, open_interior
from tests.unit.supervisor.management.desk import Desk

SCOPED = "address {\n    prefix: here\n    scope: local\n}\n"


@pytest.fixture
def desk() -> Desk:
    return Desk(text=CONFIGURATION + SCOPED + connector("up"))


def explain(desk: Desk, address: str) -> dict[str, Any]:
    answer = desk.ask("EXPLAIN", address=address)
    assert answer.outcome == (200, "OK")
    body: dict[str, Any] = answer.body
    return body


def with_uplink(desk: Desk) -> Connection:
    return open_interior(desk.core, desk.workers[0], desk.configuration.connectors[0], "A")


def test_without_an_uplink(desk: Desk) -> None:
    body = explain(desk, "a")
    assert not body["reachable"]
    assert body["findings"][-1] == "No uplink: consumers at other routers are not known"
    body = explain(desk, "_topo/0/A/$management")
    assert (body["reachable"], body["verdict"]) == (False, "no uplink")
    assert body["findings"] == ["It is at another router, and this edge router has no uplink"]


def test_an_address_that_nobody_uses_here(desk: Desk) -> None:
    uplink = with_uplink(desk)
    body = explain(desk, "a")
    assert (body["reachable"], body["verdict"]) == (None, "not in use here")
    assert body["findings"][-1] == (
        "No producer is attached here. At the first attach, 'A' is queried for a link route; messages on anonymous links "
        f"without a consumer here go over the uplink to 'A' (connection {uplink.number})"
    )
    assert "uplink" not in " ".join(explain(desk, "$management")["findings"]), "the router's own"


def test_what_the_interior_has_said(desk: Desk) -> None:
    uplink = with_uplink(desk)
    desk.link(desk.connection(), "in", "a")
    assert desk.core.uplink is not None
    desk.core.uplink.lookups.give_up()
    desk.core.take_delta()
    way = f"the uplink to 'A' (connection {uplink.number})"
    body = explain(desk, "a")
    assert (body["reachable"], body["findings"][-1]) == (False, f"There is no consumer beyond {way}")
    attachment = desk.core.uplink.attachment
    assert attachment is not None
    attachment.proxies.tracked("M0a", reachable=True)
    body = explain(desk, "a")
    assert (body["reachable"], body["findings"][-1]) == (True, f"There are consumers beyond {way}")
    assert body["verdict"] == "reachable over the uplink"


def test_a_scope_that_is_not_the_network(desk: Desk) -> None:
    with_uplink(desk)
    finding = "Its scope is 'local': its messages do not use the uplink"
    assert explain(desk, "here/a")["findings"][-1] == finding


def test_what_is_at_another_router(desk: Desk) -> None:
    uplink = with_uplink(desk)
    for address in ("_topo/0/B/$management", "_edge/F/x"):
        body = explain(desk, address)
        assert (body["reachable"], body["verdict"]) == (True, "goes over the uplink")
        finding = body["findings"][0]
        assert finding == f"It is at another router: messages go over the uplink to 'A' (connection {uplink.number})"
