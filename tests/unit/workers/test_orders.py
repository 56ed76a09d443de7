"""Dispatch of the supervisor's orders to handlers."""

from typing import Any, cast

import pytest

from sluice.router.control import messages as control
from sluice.workers.orders import CONNECTION_ORDERS, OrderHandlers

CONNECTION = 7
CLOSE = control.Close(CONNECTION, "amqp:connection:forced", "text")


@pytest.fixture
def clients() -> dict[int, Any]:
    """Connections by number. Handlers only pass them on."""
    return {CONNECTION: object()}


@pytest.fixture
def orders(clients: dict[int, Any]) -> OrderHandlers:
    return OrderHandlers(clients)


def test_order_about_connection_is_handled_with_it(orders: OrderHandlers, clients: dict[int, Any]) -> None:
    handled: list[tuple[object, control.Close]] = []
    orders.of_connections.on(control.Close, lambda client, order: handled.append((client, order)))
    orders.handle(CLOSE, None)
    assert handled == [(clients[CONNECTION], CLOSE)]


def test_order_about_ended_connection_is_dropped(orders: OrderHandlers, clients: dict[int, Any]) -> None:
    handled: list[control.Close] = []
    orders.of_connections.on(control.Close, lambda client, order: handled.append(order))
    del clients[CONNECTION]
    orders.handle(CLOSE, None)
    assert handled == []


def test_order_without_connection_is_handled_with_octets(orders: OrderHandlers) -> None:
    handled: list[tuple[bytes | None, control.RulesGone]] = []
    orders.others.on(control.RulesGone, lambda octets, order: handled.append((octets, order)))
    order = control.RulesGone(3)
    orders.handle(order, b"octets")
    assert handled == [(b"octets", order)]


def test_missing_handler_is_found_at_start(orders: OrderHandlers) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        orders.check_complete()


def test_orders_about_connections_name_their_connection() -> None:
    """`connection_of` finds the connection of an order by its field `conn`."""
    for kind in CONNECTION_ORDERS:
        assert "conn" in cast("Any", kind).__struct_fields__, kind.__name__
