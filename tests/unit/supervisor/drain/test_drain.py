"""Drain of a router: order, rate and conditions of closing connections, and the time limit."""

import pytest

from sluice.router.control.messages import Close, Denied, Opened, WithdrawCredit
from sluice.supervisor.drain.drain import CLOSE_SECONDS
from sluice.supervisor.drain.leaving import QUIET_SECONDS
from tests.unit.supervisor.drain.draining_router import DrainingRouter

ROLES = """
router {
    id: QDR
    workerThreads: 1
}
listener {
    port: 1
}
listener {
    port: 2
    role: route-container
}
"""


@pytest.fixture
def router() -> DrainingRouter:
    return DrainingRouter()


def test_drain_without_connections_ends_at_once(router: DrainingRouter) -> None:
    begun = router.drain.begin(60, 10, "SIGTERM")
    assert (begun.connections, begun.seconds, begun.per_second) == (0, 60, 10)
    assert router.drain.active
    assert router.calls == ["acceptor", "connectors"]
    router.pass_time(0.2)
    assert router.ends == 1
    assert router.lines()[0] == "SIGTERM: draining 0 connections, 10 a second, for at most 60 seconds"


def test_idle_connections_leave_in_order_at_rate(router: DrainingRouter) -> None:
    numbers = [router.open() for _ in range(30)]
    router.drain.begin(60, 10, "x")
    router.pass_time(1.25 + QUIET_SECONDS)
    assert 8 <= len(router.closed) <= 13
    router.pass_time(3)
    assert router.closed == numbers
    assert router.sent(WithdrawCredit) == numbers
    assert router.ends == 0, "the clients have not closed yet"
    for number in numbers:
        router.close(0, number)
    router.pass_time(0.5)
    assert router.ends == 1


def test_rate_is_raised_if_half_of_time_is_not_enough(router: DrainingRouter) -> None:
    for _ in range(100):
        router.open()
    assert router.drain.begin(10, 5, "x").per_second == 20


@pytest.mark.parametrize("what", ["held", "undelivered"])
def test_connection_with_deliveries_in_flight_stays(router: DrainingRouter, what: str) -> None:
    conn = router.open()
    link = router.attach(0, conn, "out", "a")
    router.settle()
    router.link_counters(0, link)[what] = 1
    router.drain.begin(60, 100, "x")
    router.pass_time(5)
    assert router.closed == []
    assert router.sent(WithdrawCredit) == [conn]
    router.link_counters(0, link)[what] = 0
    router.pass_time(2 * QUIET_SECONDS)
    assert router.closed == [conn]


def test_connection_with_recent_deliveries_stays(router: DrainingRouter) -> None:
    conn = router.open()
    link = router.attach(0, conn, "in", "a")
    router.settle()
    router.drain.begin(60, 100, "x")
    for _ in range(20):
        router.link_counters(0, link)["deliveries"] += 1
        router.pass_time(0.1)
    assert router.closed == []
    router.pass_time(2 * QUIET_SECONDS)
    assert router.closed == [conn]


def test_consumer_leaves_its_address_before_its_connection_is_closed(router: DrainingRouter) -> None:
    conn, other = router.open(), router.open()
    link = router.attach(0, conn, "out", "a")
    router.attach(0, other, "in", "a")
    router.settle()
    record = router.core.table.records["M0a"]
    assert len(record.consumers or ()) == 1
    router.link_counters(0, link)["held"] = 1
    router.drain.begin(60, 1, "x")
    router.pass_time(1.1 + QUIET_SECONDS)
    assert not record.consumers
    assert router.replicas[0].table.consumers[record.id] == []
    assert conn in router.core.connections.opened
    router.close(0, conn)
    router.settle()
    assert router.core.table.records.get("M0a") is record, "it has a producer"
    router.close(0, other)
    router.settle()
    assert "M0a" not in router.core.table.records


def test_brokers_leave_after_clients() -> None:
    router = DrainingRouter(text=ROLES)
    broker, client = router.open(listener=1), router.open()
    router.drain.begin(60, 100, "x")
    router.pass_time(3)
    assert router.closed == [client]
    router.close(0, client)
    router.pass_time(2 * QUIET_SECONDS)
    assert router.closed == [client, broker]


def test_management_client_leaves_last(router: DrainingRouter) -> None:
    observer, client = router.open(), router.open()
    router.attach(0, observer, "in", "$management")
    router.settle()
    router.drain.begin(60, 100, "x")
    router.pass_time(3)
    assert router.closed == [client]
    router.close(0, client)
    router.pass_time(2 * QUIET_SECONDS)
    assert router.closed == [client, observer]


def test_opens_are_denied_during_drain(router: DrainingRouter) -> None:
    worker = router.replicas[0].worker
    number = router.connect(0)
    router.drain.begin(60, 100, "x")
    late = Opened(conn=number, container="c", hostname=None, user=None, properties={}, tls=None)
    router.core.receive(worker, late)
    router.flush()
    assert router.sent(Denied) == [number]


def test_connections_left_at_deadline_are_closed_by_force(router: DrainingRouter) -> None:
    conn = router.open()
    link = router.attach(0, conn, "out", "a")
    router.settle()
    router.link_counters(0, link)["held"] = 3
    router.drain.begin(5, 100, "x")
    router.pass_time(4.9)
    assert router.closed == []
    router.pass_time(0.2)
    assert router.closed == [conn]
    assert "closing 1 connection with 3 deliveries not settled" in router.lines()[-1]
    assert router.ends == 0
    router.pass_time(CLOSE_SECONDS)
    assert router.ends == 1, "whether the worker has closed it or not"
    assert router.closed == [conn]


def test_close_names_another_router(router: DrainingRouter) -> None:
    router.open()
    router.drain.begin(60, 100, "x")
    router.pass_time(2 * QUIET_SECONDS)
    (order,) = [answer for answer in router.replicas[0].answers if isinstance(answer, Close)]
    assert (order.condition, order.redirect) == ("amqp:connection:forced", True)


def test_second_begin_changes_nothing(router: DrainingRouter) -> None:
    router.open()
    first = router.drain.begin(60, 10, "x")
    assert router.drain.begin(5, 100, "y") == first
    assert router.calls == ["acceptor", "connectors"]


def test_stopped_drain_closes_nothing(router: DrainingRouter) -> None:
    router.open()
    router.drain.begin(60, 10, "x")
    router.drain.stop()
    router.pass_time(5)
    assert router.closed == []


def test_producers_of_address_lose_credit_before_its_last_consumer_leaves(router: DrainingRouter) -> None:
    """The producer's connection leaves later, since it came later."""
    consuming, other, producing = router.open(), router.open(), router.open()
    router.attach(0, consuming, "out", "a")
    router.attach(0, other, "out", "b")
    router.attach(0, producing, "out", "b")
    producers = {name: router.attach(0, producing, "in", name) for name in ("a", "b")}
    router.settle()
    record = router.core.table.records["M0a"]
    router.drain.begin(60, 1, "x")
    router.pass_time(1.05)
    orders = [answer for answer in router.replicas[0].answers if isinstance(answer, WithdrawCredit)]
    assert orders == [WithdrawCredit(consuming), WithdrawCredit(producing, producers["a"])]
    assert record.consumers, "messages under way find the consumer"
    router.pass_time(0.1 + QUIET_SECONDS)
    assert not record.consumers
    orders = [answer for answer in router.replicas[0].answers if isinstance(answer, WithdrawCredit)]
    assert orders[2:] == [WithdrawCredit(other)], "another consumer of this address is still there"
