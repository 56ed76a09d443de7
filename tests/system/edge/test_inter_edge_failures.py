"""Connected edge routers during the loss of routers and of connections between them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.peer import message
from tests.peer.peer import AmqpPeer
from tests.system.edge.relay import CuttableRelay
from tests.system.edges import EDGES, PEERS, EdgeView, edge, peer_edge, with_edges
from tests.system.fixtures import Start
from tests.system.networks import CONVERGENCE, MessageFlow, connector
from tests.system.router import SETTINGS, RouterProcess, Section, listener, poll

WORKER_COUNTS = (1, 3)


class EdgeTriangle:
    """Interior router A with edge routers E and F; F is connected to E through a relay."""

    def __init__(self, start: Start, workers: int) -> None:
        self._start, self._workers = start, workers
        self.a = start([*with_edges("A"), *SETTINGS], workers)
        self.port = self.a.ports[EDGES]
        self.e = start([*peer_edge("E", self.a), *SETTINGS], workers)
        self.relay = CuttableRelay(self.e.ports[PEERS])
        self.f = start([*peer_edge("F", self.a, to=[self.relay.port]), *SETTINGS], workers)
        self.at_e, self.at_f = EdgeView(self.e), EdgeView(self.f)
        self.wait()

    def wait(self) -> None:
        """Wait until all routers are connected."""
        for view, other in ((self.at_e, "F"), (self.at_f, "E")):
            view.wait_peers(other)
        for name in "EF":
            EdgeView(self.a).wait_consumers(f"H{name}", 1)

    def restart_interior(self) -> None:
        sections: list[Section] = [
            (kind, {**values, "port": self.port} if values.get("name") == EDGES else values)
            for kind, values in with_edges("A")
        ]
        self.a = self._start([*sections, *SETTINGS], self._workers)
        self.wait()


@pytest.fixture
def triangle(start: Start, workers: int) -> Iterator[EdgeTriangle]:
    made = EdgeTriangle(start, workers)
    with made.relay:
        yield made


@pytest.mark.parametrize("prefix", ["balanced/", "closest/", "multicast/"])
def test_killed_interior_interrupts_no_messages(triangle: EdgeTriangle, prefix: str) -> None:
    """Messages continue all the time, and each arrives once."""
    key = f"M0{prefix}x"
    flow = MessageFlow(triangle.e, triangle.f, f"{prefix}x")
    triangle.at_e.wait_consumers(key, 2)  # F, and the uplink
    flow.wait_more()
    before = list(flow.others)
    triangle.a.kill()
    flow.wait_more(100)
    triangle.restart_interior()
    triangle.at_e.wait_consumers(key, 2)
    flow.wait_more(100)
    flow.stop()
    assert flow.others == before, "the connection between the two was there all the time"


def test_multicast_during_interior_restarts_arrives_once(triangle: EdgeTriangle, peers: list[AmqpPeer]) -> None:
    """Presettled messages at full speed to consumers of both edge routers."""
    address = "multicast/x"
    at_e, at_f = AmqpPeer.opened(triangle.e.port), AmqpPeer.opened(triangle.f.port)
    peers += [at_e, at_f]
    receivers = [peer.receiver(address, 100_000) for peer in (at_e, at_f, at_f)]
    triangle.at_e.wait_consumers(f"M0{address}", 2)
    EdgeView(triangle.a).wait_consumers(f"M0{address}", 2)
    client = AmqpPeer.opened(triangle.e.port)
    peers.append(client)
    sender = client.sender(address)
    triangle.at_e.wait_consumers(f"M0{address}", 3)
    sent = 0

    def send_until(condition: str, met: bool) -> None:
        """Send until E has an uplink (`met`) or has none."""
        nonlocal sent

        def over() -> bool:
            nonlocal sent
            for _ in range(20):
                sender.wait_credit(timeout=CONVERGENCE)
                sender.send(message.message(sent), settled=True)
                sent += 1
            rows = [row for row in triangle.at_e.query("connection") if row["role"] == "edge"]
            return bool(rows) is met

        poll(over, condition, CONVERGENCE)

    for _ in range(2):
        triangle.a.kill()
        send_until("E has no uplink", False)
        triangle.restart_interior()
        send_until("E has an uplink", True)
        EdgeView(triangle.a).wait_consumers(f"M0{address}", 2)
        send_until("E still has it", True)
    last = message.message(sent)
    sender.send(last, settled=True)
    for receiver in receivers:
        numbers: list[int] = []
        while not numbers or numbers[-1] != sent:
            receiver.session.peer.barrier()
            numbers += [message.body(each.payload) for each in receiver.deliveries[len(numbers) :]]
        assert numbers == list(range(sent + 1))


@pytest.mark.parametrize("prefix", ["balanced/", "multicast/"])
def test_lost_inter_edge_connection_moves_messages(triangle: EdgeTriangle, prefix: str) -> None:
    """The interior takes over: no accepted message is lost, and no message arrives twice."""
    flow = MessageFlow(triangle.e, triangle.f, f"{prefix}x")
    flow.wait_more()
    for _ in range(3):
        triangle.relay.cut()
        flow.wait_more()
        triangle.wait()
        triangle.at_e.wait_consumers(f"M0{prefix}x", 2)
        flow.wait_more()
    flow.stop(late=True)


def test_killed_edge_router_withdraws_addresses(
    triangle: EdgeTriangle, start: Start, workers: int, peers: list[AmqpPeer]
) -> None:
    """The addresses of a killed edge router are withdrawn, and its restarted successor is used."""
    at_f = AmqpPeer.opened(triangle.f.port)
    peers.append(at_f)
    at_f.receiver("balanced/x", 10)
    triangle.at_e.wait_consumers("M0balanced/x", 1)
    client = AmqpPeer.opened(triangle.e.port)
    peers.append(client)
    sender = client.sender("balanced/x", credit=False)
    sender.wait_credit(timeout=CONVERGENCE)
    triangle.f.kill()
    triangle.at_e.wait_peers()
    poll(lambda: triangle.at_e.consumers("M0balanced/x") == 0, "its addresses, too", CONVERGENCE)
    assert triangle.at_e.address("HF") is None
    number = sender.send(message.message("lost"))
    assert sender.outcome(number).name == "released"
    triangle.f = start([*peer_edge("F", triangle.a, to=[triangle.relay.port]), *SETTINGS], workers)
    triangle.at_f = EdgeView(triangle.f)
    triangle.wait()
    flow = MessageFlow(triangle.e, triangle.f, "balanced/x")
    flow.wait_more()
    flow.stop(late=True)


def test_parallel_inter_edge_connections_share_addresses(start: Start, workers: int, peers: list[AmqpPeer]) -> None:
    """Each router connects to the other, once with two connections, and an address uses one of the three."""
    a = start([*with_edges("A"), *SETTINGS], workers)
    with CuttableRelay(0) as later:
        e = start([*peer_edge("E", a, to=[later.port]), *SETTINGS], workers)
        twice = connector(e.ports[PEERS], role="inter-edge", parallelConnections=2)
        f = start([*edge("F", a), listener(PEERS, role="inter-edge"), twice, *SETTINGS], workers)
        later.redirect(f.ports[PEERS])
        at_e = EdgeView(e)
        at_e.wait_peers("F", "F", "F")
        client = AmqpPeer.opened(f.port)
        peers.append(client)
        for number in range(1, 6):  # further addresses on the same connections
            client.receiver(f"multicast/{number}")
            at_e.wait_consumers(f"M0multicast/{number}", 1)
        flow = MessageFlow(e, f, "multicast/0")
        flow.wait_more()
        later.cut()
        at_e.wait_peers("F", "F")
        at_e.wait_consumers("HF", 1)
        flow.wait_more()
        at_e.wait_peers("F", "F", "F")
        flow.wait_more()
        flow.stop(late=True)


def test_client_at_inter_edge_listener_is_refused(start: Start, workers: int, peers: list[AmqpPeer]) -> None:
    e = start(peer_edge("E"), workers)
    client = AmqpPeer(e.ports[PEERS])
    peers.append(client)
    client.open()
    error = client.expect_close()
    assert error is not None
    assert error[0] == "amqp:not-allowed"
    assert "inter-edge" in str(error[1])
    e.wait_log(r"ROUTER_CORE \(warning\) \[C\d+\] Connection with \S+ refused: .* needs a Sluice edge router")


def test_connection_to_itself_is_refused(start: Start, workers: int) -> None:
    with CuttableRelay(0) as relay:
        e: RouterProcess = start(peer_edge("E", to=[relay.port]), workers)
        relay.redirect(e.ports[PEERS])
        e.wait_log(r"This connection of role inter-edge leads from the router to itself", CONVERGENCE)
        assert EdgeView(e).peers() == []
