"""Networks that lose connections and routers, and recover."""

from __future__ import annotations

import os
import signal

import psutil
import pytest

from tests.peer import message
from tests.peer.management import Management
from tests.peer.peer import AmqpPeer
from tests.system.fixtures import Start, bodies
from tests.system.networks import CONVERGENCE, MessageFlow, RouterView, connector, interior, ports
from tests.system.router import RouterProcess, poll


@pytest.fixture
def triangle(start: Start, workers: int) -> tuple[RouterProcess, RouterProcess, RouterProcess]:
    """Three routers, each connected to both others, after convergence."""
    a, b = ports(2)
    routers = (
        start(interior("A", a), workers),
        start(interior("B", b, [a]), workers),
        start(interior("C", None, [a, b]), workers),
    )
    for router, others in zip(routers, ("BC", "AC", "AB"), strict=True):
        RouterView(router).wait_nodes(**dict.fromkeys(others, 1))
    return routers


def delete_connector(router: RouterProcess, name: str) -> None:
    peer = AmqpPeer.opened(router.port)
    try:
        Management(peer).delete("connector", name)
    finally:
        peer.drop()


def create_connector(router: RouterProcess, attributes: dict[str, object]) -> None:
    peer = AmqpPeer.opened(router.port)
    try:
        more = {name: value for name, value in attributes.items() if name != "name"}
        Management(peer).create("connector", str(attributes["name"]), **more)
    finally:
        peer.drop()


def test_lost_connection_is_routed_around(triangle: tuple[RouterProcess, RouterProcess, RouterProcess]) -> None:
    a, b, _ = triangle
    flow = MessageFlow(a, b, "orders")
    try:
        flow.wait_more()
        delete_connector(b, f"to{a.ports['net']}")
        RouterView(a).wait_nodes(B=2, C=1)
        assert RouterView(a).nodes()["B"]["nextHop"] == "C"
        flow.wait_more()
    finally:
        flow.stop()


def test_killed_router_rejoins_after_restart(triangle: tuple[RouterProcess, RouterProcess, RouterProcess]) -> None:
    a, b, c = triangle
    delete_connector(b, f"to{a.ports['net']}")
    RouterView(a).wait_nodes(B=2, C=1)
    flow = MessageFlow(a, b, "orders")
    try:
        flow.wait_more()
        c.kill()
        poll(lambda: RouterView(a).nodes()["B"]["cost"] is None, "A has no way to B", CONVERGENCE)
        c.start()
        RouterView(a).wait_nodes(B=2, C=1)
        RouterView(c).wait_nodes(A=1, B=1)
        flow.wait_more()
    finally:
        flow.stop()


def test_restarted_router_announces_only_new_addresses(start: Start, workers: int) -> None:
    (port,) = ports(1)
    a = start(interior("A", port), workers)
    b = start(interior("B", None, [port]), workers)
    at_a = RouterView(a)
    at_a.wait_nodes(B=1)
    first = AmqpPeer.opened(b.port)
    first.receiver("before", 10)
    at_a.wait_remote("M0before", "B")
    instance = at_a.nodes()["B"]["instance"]
    b.kill()
    b.start()
    second = AmqpPeer.opened(b.port)
    receiver = second.receiver("after", 10)
    at_a.wait_remote("M0after", "B")
    at_a.wait_remote("M0before")
    assert at_a.nodes()["B"]["instance"] != instance
    sender = AmqpPeer.opened(a.port).sender("after")
    number = sender.send(message.message("x"))
    receiver.next().settle()
    assert sender.outcome(number).name == "accepted"


def wait_chain_converged(a: RouterProcess, b: RouterProcess, c: RouterProcess, d: RouterProcess) -> None:
    """Wait until the chain from A to D has converged and all routers have the consumer at D in their tables."""
    RouterView(a).wait_nodes(B=1, C=2, D=3)
    RouterView(b).wait_nodes(A=1, C=1, D=2)
    RouterView(c).wait_nodes(A=2, B=1, D=1)
    # Before D has computed its radius, D releases messages that come over more hops.
    RouterView(d).wait_nodes(A=3, B=2, C=1)
    for router in (a, b, c):
        RouterView(router).wait_remote("M0far", "D")


def remote_count(router: RouterProcess, key: str) -> int:
    """Return the `remoteCount` of an address; 0 if there is no row."""
    row = RouterView(router).address(key)
    return 0 if row is None else int(row["remoteCount"])


def test_partitioned_network_recovers_after_reconnect(start: Start, workers: int) -> None:
    a_port, b_port, c_port = ports(3)
    a = start(interior("A", a_port), workers)
    b = start(interior("B", b_port, [a_port]), workers)
    c = start(interior("C", c_port), workers)
    d = start(interior("D", None, [c_port]), workers)
    RouterView(a).wait_nodes(B=1)
    RouterView(d).wait_nodes(C=1)
    receiver = AmqpPeer.opened(d.port).receiver("far", 10)
    bridge = connector(c_port)[1]
    create_connector(b, bridge)
    wait_chain_converged(a, b, c, d)
    sender = AmqpPeer.opened(a.port).sender("far")
    number = sender.send(message.message("one"))
    receiver.next().settle()
    assert sender.outcome(number).name == "accepted"
    delete_connector(b, bridge["name"])
    RouterView(a).wait_nodes(B=1, C=None, D=None)
    poll(lambda: remote_count(a, "M0far") == 0, "A counts no destination that it cannot reach")
    number = sender.send(message.message("lost"))
    assert sender.outcome(number).name == "released"
    create_connector(b, bridge)
    wait_chain_converged(a, b, c, d)
    poll(lambda: remote_count(a, "M0far") == 1, "A counts the destination again")
    number = sender.send(message.message("two"))
    receiver.next().settle()
    assert sender.outcome(number).name == "accepted"
    assert bodies(receiver.deliveries) == ["one", "two"]


def test_silent_neighbour_becomes_unreachable(start: Start) -> None:
    (port,) = ports(1)
    a = start(interior("A", port, helloMaxAgeSeconds=3), 1)
    b = start(interior("B", None, [port]), 1)
    RouterView(a).wait_nodes(B=1)
    stopped = [process.pid for process in b.family()]
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    try:
        poll(lambda: RouterView(a).nodes()["B"]["cost"] is None, "A gives B up", CONVERGENCE)
    finally:
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
    RouterView(a).wait_nodes(B=1)


def connection_owner(router: RouterProcess, port: int) -> int:
    """Return the pid of the process that owns the connection accepted on `port`."""
    for process in router.family():
        for connection in process.net_connections("tcp"):
            if connection.laddr.port == port and connection.status == psutil.CONN_ESTABLISHED:
                return int(process.pid)
    raise AssertionError(f"nobody has a connection to port {port}")


def test_killed_worker_loses_only_its_inter_router_connection(start: Start) -> None:
    (port,) = ports(1)
    a = start(interior("A", port), 3)
    b = start(interior("B", None, [port]), 3)
    RouterView(a).wait_nodes(B=1)
    victim = connection_owner(a, port)
    flow = MessageFlow(a, b, "orders")
    try:
        flow.wait_more()
        assert a.worker_of(flow.sender_peer.socket.getsockname()[1]) != victim
        os.kill(victim, signal.SIGKILL)
        poll(lambda: victim not in a.worker_pids(), "the worker is gone")
        flow.wait_more()
    finally:
        flow.stop()
    poll(lambda: len(a.worker_pids()) == 3, "another worker has taken its place")
    RouterView(a).wait_nodes(B=1)
    receiver = AmqpPeer.opened(b.port).receiver("all", 100)
    RouterView(a).wait_remote("M0all", "B")
    senders = {}
    for _ in range(30):
        peer = AmqpPeer.opened(a.port)
        senders[a.worker_of(peer.socket.getsockname()[1])] = peer.sender("all")
        # Leave the loop early: these peers send no heartbeats, and the router closes silent connections.
        if len(senders) == 3:
            break
    assert len(senders) == 3, "clients are with all workers, the new one too"
    for sender in senders.values():
        number = sender.send(message.message("x"))
        receiver.next().settle()
        assert sender.outcome(number).name == "accepted"


def test_second_router_with_same_id_is_logged_and_ignored(start: Start, workers: int) -> None:
    """In the network A - B - A the second A is ignored, and the first A keeps working."""
    (port,) = ports(1)
    b = start(interior("B", port), workers)
    first = start(interior("A", None, [port]), workers)
    RouterView(b).wait_nodes(A=1)
    flow = MessageFlow(b, first, "balanced/twice")
    try:
        second = start(interior("A", None, [port]), workers)
        b.wait_log(r"ROUTER_HELLO \(critical\) Detected two routers with the id A", CONVERGENCE)
        elsewhere = AmqpPeer.opened(second.port)
        elsewhere.receiver("balanced/elsewhere", 10)
        RouterView(b).wait_remote("M0balanced/twice", "A")
        flow.wait_more()
        assert RouterView(b).address("M0balanced/elsewhere") is None
    finally:
        flow.stop()
    assert flow.others == []
    first.stop()
    RouterView(b).wait_remote("M0balanced/elsewhere", "A")
    elsewhere.drop()
