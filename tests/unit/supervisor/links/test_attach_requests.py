"""Attach requests: refusals, tenants, and requests that end before they are decided."""

from __future__ import annotations

import pytest

from sluice.router.amqp.errors import INVALID_FIELD
from sluice.router.control import messages
from sluice.supervisor.links.attach_requests import ESCAPES_TEXT
from tests.unit.supervisor.core_with_replicas import CoreWithReplicas
from tests.unit.supervisor.edge.edge_router import EdgeRouter, connector
from tests.unit.supervisor.harness import attach, configuration_text

UNAVAILABLE = configuration_text(1) + "address {\n    pattern: none/#\n    distribution: unavailable\n}\n"


@pytest.fixture
def router() -> CoreWithReplicas:
    return CoreWithReplicas(1, UNAVAILABLE)


@pytest.fixture
def edge() -> EdgeRouter:
    return EdgeRouter(connector("up"))


def refusals(router: CoreWithReplicas) -> list[messages.Refused]:
    router.flush()
    return [answer for answer in router.replicas[0].answers if isinstance(answer, messages.Refused)]


def answers(edge: EdgeRouter, number: int) -> list[str]:
    """Return the kinds of the answers to an attach."""
    kinds = (messages.Attached, messages.Refused, messages.Postponed)
    return [type(order).__name__ for order in edge.orders if isinstance(order, kinds) and order.link == number]


@pytest.mark.parametrize("field", ["address", "dynamic_address"])
def test_address_that_escapes_its_tenant_is_refused(router: CoreWithReplicas, field: str) -> None:
    """Another router would read red/x:/blue/orders, which is left of it, as an address of tenant blue."""
    addresses = {"address": None, "dynamic_address": None, field: "amqp:/x:/blue/orders"}
    conn = router.connect(0)
    message = attach(
        1, "out", addresses["address"], conn=conn, tenant="red/", dynamic_address=addresses["dynamic_address"]
    )
    router.core.receive(router.replicas[0].worker, message)
    (refused,) = refusals(router)
    assert (refused.link, refused.condition, refused.description) == (1, INVALID_FIELD, ESCAPES_TEXT)
    assert len(router.core.links) == 0


def test_escaping_address_without_tenant_is_accepted(router: CoreWithReplicas) -> None:
    router.attach(0, router.connect(0), "out", "amqp:/x:/blue/orders")
    assert refusals(router) == []
    assert len(router.core.links) == 1


def test_refused_attach_registers_no_link(router: CoreWithReplicas) -> None:
    conn = router.connect(0)
    router.attach(0, conn, "out", "none/x")
    (refused,) = refusals(router)
    assert refused.condition == "amqp:not-found"
    assert len(router.core.links) == 0
    assert router.replicas[0].worker.connections[conn].links == {}


def test_attach_of_closed_connection_is_ignored(router: CoreWithReplicas) -> None:
    router.attach(0, 999, "out", "a")
    router.flush()
    assert router.replicas[0].answers == []
    assert len(router.core.links) == 0


def test_attach_during_look_up_is_postponed_and_then_answered(edge: EdgeRouter) -> None:
    interior, client = edge.interior("A"), edge.client()
    number = edge.attach_pending(client, "out", "a")
    assert answers(edge, number) == ["Postponed"]
    edge.answer(interior)
    assert answers(edge, number) == ["Postponed", "Attached"]


def test_detach_during_look_up_withdraws_the_request(edge: EdgeRouter) -> None:
    interior, client = edge.interior("A"), edge.client()
    number = edge.attach_pending(client, "out", "a")
    edge.detach(client, number)
    edge.answer(interior)
    assert answers(edge, number) == ["Postponed"]
    assert client.links == {}


def test_connection_closed_during_look_up_gets_no_answer(edge: EdgeRouter) -> None:
    interior, client = edge.interior("A"), edge.client()
    number = edge.attach_pending(client, "out", "a")
    edge.close(client)
    edge.answer(interior)
    assert answers(edge, number) == ["Postponed"]
    assert "M0a" not in edge.core.table.records
