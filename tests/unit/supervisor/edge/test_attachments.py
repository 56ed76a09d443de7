"""Attachments to interior routers: which connections form one, and whose messages reach it."""

from __future__ import annotations

from typing import Any

import pytest

from sluice.router.control.edge_properties import EDGE
from tests.unit.supervisor.edge.edge_router import EdgeRouter, connector


@pytest.fixture
def edge() -> EdgeRouter:
    return EdgeRouter(connector("up"), connector("other"))


def test_tracking_of_standby_connection_is_ignored(edge: EdgeRouter) -> None:
    edge.attach(edge.client(), "in", "b")
    edge.interior("A")
    other = edge.interior("B", "other")
    edge.track(other, "M0b", True)
    assert edge.record("M0b").consumers is None


@pytest.mark.parametrize("properties", [{}, {EDGE: "text"}, {EDGE: True}], ids=["dispatch", "text", "flag"])
def test_dispatch_interior_gets_no_bundle(bundle: EdgeRouter, properties: dict[str, Any]) -> None:
    bundle.attach(bundle.client(), "out", "a")
    first, second = (bundle.interior("A", **properties) for _ in range(2))
    assert bundle.proxies(first, "in") == ["a"]
    assert bundle.uplink.states() == {"active": 1, "waiting": 1}
    bundle.close(first)
    assert bundle.proxies(second, "in") == ["a"]
