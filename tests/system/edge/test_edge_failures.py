"""Failure of an edge router's uplink: loss of the interior router, or of the worker with the connection.

Specification: brokers-and-edge.md ED-3, ED-28.
"""

from __future__ import annotations

import os
import signal
import time

import pytest

from tests.peer import message
from tests.peer.peer import AmqpPeer
from tests.system.edge.relay import CuttableRelay
from tests.system.edges import EDGES, EdgeView, edge, with_edges
from tests.system.fixtures import Start
from tests.system.networks import CONVERGENCE, MessageFlow, connector
from tests.system.router import RouterProcess, poll

#: Number of addresses, each with a consumer.
ADDRESS_COUNT = 2000
#: Seconds until all addresses are announced elsewhere on a busy machine. The benchmark's limit is 1 s.
SWITCHED = 10.0
FLAPS = 3


@pytest.fixture
def interiors(start: Start, workers: int) -> tuple[RouterProcess, RouterProcess]:
    a = start(with_edges("A"), workers)
    return a, start(with_edges("B", a.ports["net"]), workers)


def uplink(router: RouterProcess) -> str | None:
    """Return the container id of the active uplink."""
    rows = [row for row in EdgeView(router).query("connection") if row["role"] == "edge" and row["active"]]
    return None if not rows else str(rows[0]["container"])


def test_standby_interior_router_takes_over(
    start: Start, workers: int, interiors: tuple[RouterProcess, RouterProcess], peers: list[AmqpPeer]
) -> None:
    a, b = interiors
    e = start(edge("E", a), workers)
    poll(lambda: uplink(e) == "A", "A is the uplink", CONVERGENCE)
    management = EdgeView(e)
    e.configure([*edge("E", a, b)])
    os.kill(e.pid, signal.SIGHUP)
    poll(lambda: len([r for r in management.query("connection") if r["role"] == "edge"]) == 2, "B is open", CONVERGENCE)
    assert uplink(e) == "A"
    flow = MessageFlow(e, b, "balanced/x")
    flow.wait_more()
    a.kill()
    poll(lambda: uplink(e) == "B", "B is the uplink", CONVERGENCE)
    flow.wait_more()
    flow.stop()
    EdgeView(b).wait_consumers("HE", 1)


def test_uplink_of_killed_worker_is_restored(start: Start, interiors: tuple[RouterProcess, RouterProcess]) -> None:
    a, b = interiors
    e = start(edge("E", a), 2)
    poll(lambda: uplink(e) == "A", "A is the uplink", CONVERGENCE)
    before = len(e.lines)
    for pid in e.worker_pids():
        os.kill(pid, signal.SIGKILL)
    e.wait_log(r"Edge connection \(id=\d+\) to interior established", CONVERGENCE, before)
    flow = MessageFlow(e, b, "balanced/x")
    flow.wait_more()
    flow.stop()


def test_isolated_edge_router_works_and_reconnects(
    start: Start, workers: int, interiors: tuple[RouterProcess, RouterProcess], peers: list[AmqpPeer]
) -> None:
    """Specification: brokers-and-edge.md ED-26, ED-27."""
    a, b = interiors
    a.kill()
    e = start(edge("E", b), workers)
    poll(lambda: uplink(e) == "B", "B is the uplink", CONVERGENCE)
    client = AmqpPeer.opened(e.port)
    peers.append(client)
    receiver = client.receiver("x", 10)
    EdgeView(b).wait_consumers("M0x", 1)
    port = b.ports[EDGES]
    b.kill()
    e.wait_log(r"Edge connection \(id=\d+\) to interior lost, no alternate connection available", CONVERGENCE)
    sender = client.sender("x")
    number = sender.send(message.message("alone"))
    receiver.next().settle()
    assert sender.outcome(number).name == "accepted"
    sections = [
        (kind, {**values, "port": port} if values.get("name") == EDGES else values) for kind, values in with_edges("B")
    ]
    again = start(sections, workers)
    EdgeView(again).wait_consumers("M0x", 1)
    other = AmqpPeer.opened(again.port)
    peers.append(other)
    sender = other.sender("x", credit=False)
    sender.wait_credit(timeout=CONVERGENCE)
    number = sender.send(message.message("again"))
    delivery = receiver.next()
    assert message.body(delivery.payload) == "again"
    delivery.settle()
    assert sender.outcome(number).name == "accepted"


@pytest.mark.long
def test_addresses_move_quickly_with_the_uplink(
    start: Start, workers: int, interiors: tuple[RouterProcess, RouterProcess], peers: list[AmqpPeer]
) -> None:
    a, b = interiors
    e = start(edge("E", a, b), workers)
    client = AmqpPeer.opened(e.port)
    peers.append(client)
    poll(lambda: uplink(e) is not None, "there is an uplink", CONVERGENCE)
    first, other = (a, b) if uplink(e) == "A" else (b, a)
    poll(lambda: len([r for r in EdgeView(e).query("connection") if r["role"] == "edge"]) == 2, "both", CONVERGENCE)
    names = [f"balanced/many.{number}" for number in range(ADDRESS_COUNT)]
    sessions = [client.begin() for _ in range(ADDRESS_COUNT // 100)]
    receivers = [sessions[number % len(sessions)].receiver(name, 1, wait=False) for number, name in enumerate(names)]
    for receiver in receivers:
        receiver.wait_attached(timeout=CONVERGENCE)
    poll(lambda: count_known(first, "M0balanced/many.") == ADDRESS_COUNT, "all are announced", CONVERGENCE)
    began = time.monotonic()
    first.kill()
    poll(lambda: count_known(other, "M0balanced/many.") == ADDRESS_COUNT, "all are announced again", CONVERGENCE)
    assert time.monotonic() - began < SWITCHED
    sending = AmqpPeer.opened(other.port)
    peers.append(sending)
    sender = sending.sender()
    numbers = [sender.send(message.message(name, to=name)) for name in names[::100]]
    for receiver, name in zip(receivers[::100], names[::100], strict=True):
        delivery = receiver.next()
        assert message.body(delivery.payload) == name
        delivery.settle()
    assert {sender.outcome(number).name for number in numbers} == {"accepted"}


def count_known(router: RouterProcess, prefix: str) -> int:
    """Return how many addresses with this prefix have a consumer at a router."""
    rows = EdgeView(router).query("router.address")
    return sum(row["key"].startswith(prefix) and bool(row["subscriberCount"]) for row in rows)


def test_flapping_connection_leaves_working_uplink(
    start: Start, workers: int, interiors: tuple[RouterProcess, RouterProcess], peers: list[AmqpPeer]
) -> None:
    """Each connection is cut as soon as it is the uplink, several times."""
    a, b = interiors
    with CuttableRelay(a.ports[EDGES]) as relay:
        e = start([*edge("E"), connector(relay.port, role="edge")], workers)
        lines = 0
        for _ in range(FLAPS):
            e.wait_log(r"Edge connection \(id=\d+\) to interior established", CONVERGENCE, lines)
            lines = len(e.lines)
            relay.cut()
            e.wait_log(r"Edge connection \(id=\d+\) to interior lost", CONVERGENCE, lines)
        flow = MessageFlow(e, b, "balanced/x")
        flow.wait_more()
        flow.stop()
        EdgeView(a).wait_consumers("HE", 1)
        e.wait_log(r"Edge connection \(id=\d+\) to interior established", CONVERGENCE, lines)
