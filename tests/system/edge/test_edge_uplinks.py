"""An edge router with several active uplinks (docs/internals/edge.md)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.peer import message
from tests.peer.container import ScriptedBroker
from tests.peer.links import PeerReceiver
from tests.peer.management import Management
from tests.peer.neighbour import properties
from tests.peer.peer import AmqpPeer
from tests.peer.route_container import RouteContainer
from tests.system.edge.relay import CuttableRelay
from tests.system.edges import BROKERS, EDGES, EdgeView, with_edges
from tests.system.fixtures import Start
from tests.system.networks import CONVERGENCE, MessageFlow, connector
from tests.system.router import SETTINGS, RouterProcess, Section, listener, poll

WORKER_COUNTS = (1, 3)
ALL: Section = ("router", {"mode": "edge", "id": "E", "uplinks": "all"})


def link_route(prefix: str) -> Section:
    return "linkRoute", {"prefix": prefix, "direction": "in", "containerId": "broker"}


class TwoUplinkNetwork:
    """Interior routers A and B, and edge router E connected to both. A has the lower cost, and is behind a relay."""

    def __init__(self, start: Start, workers: int, relay: CuttableRelay, a: RouterProcess, b: RouterProcess) -> None:
        self.relay, self.a, self.b = relay, a, b
        # The uplink of higher cost comes first in the configuration.
        places = [connector(b.ports[EDGES], role="edge", cost=2), connector(relay.port, role="edge")]
        brokers = listener(BROKERS, role="route-container")
        self.e = start([ALL, listener(), brokers, link_route("elr"), *places, *SETTINGS], workers)
        self.at_a, self.at_b, self.at_e = EdgeView(a), EdgeView(b), EdgeView(self.e)

    def wait_at(self, bearer: RouterProcess) -> None:
        """Wait until only this router has the edge router's consumers, and the network knows."""
        here, there = (self.at_a, self.at_b) if bearer is self.a else (self.at_b, self.at_a)
        here.wait_consumers("HE", 1)
        there.wait_consumers("HE", 0)
        there.wait_remote("HE", "A" if bearer is self.a else "B")

    def uplinks(self) -> dict[str, bool]:
        """Return whether each connection to an interior router is active, by container id."""
        rows = [row for row in self.at_e.query("connection") if row["role"] == "edge"]
        return {row["container"]: row["active"] for row in rows}


@pytest.fixture
def network(start: Start, workers: int) -> Iterator[TwoUplinkNetwork]:
    a = start([*with_edges("A"), *SETTINGS], workers)
    b = start([*with_edges("B", a.ports["net"]), link_route("lr"), *SETTINGS], workers)
    EdgeView(b).wait_nodes(A=1)
    with CuttableRelay(a.ports[EDGES]) as relay:
        made = TwoUplinkNetwork(start, workers, relay, a, b)
        made.wait_at(a)
        yield made


def test_uplinks_are_used_and_consumers_counted_once(network: TwoUplinkNetwork, peers: list[AmqpPeer]) -> None:
    poll(lambda: network.uplinks() == {"A": True, "B": True}, "both are in use", CONVERGENCE)
    here, at_a, at_b = (AmqpPeer.opened(router.port) for router in (network.e, network.a, network.b))
    peers += [here, at_a, at_b]
    receivers = [here.receiver("multicast/m", 10), here.receiver("balanced/x", 10)]
    for key in ("M0multicast/m", "M0balanced/x"):
        network.at_b.wait_remote(key, "A")
        assert (network.at_a.consumers(key), network.at_b.consumers(key)) == (1, 0)
    for peer in (at_a, at_b):
        for receiver, name in zip(receivers, ("multicast/m", "balanced/x"), strict=True):
            sender = peer.sender(name, credit=False)
            sender.wait_credit(timeout=CONVERGENCE)
            number = sender.send(message.message(name))
            delivery = receiver.next()
            assert message.body(delivery.payload) == name
            delivery.settle()
            assert sender.outcome(number).name == "accepted"
    here.barrier()
    assert [len(receiver.deliveries) for receiver in receivers] == [2, 2], "each message once"


def test_edge_producers_reach_each_consumer_once(network: TwoUplinkNetwork, peers: list[AmqpPeer]) -> None:
    here, at_a, at_b = (AmqpPeer.opened(router.port) for router in (network.e, network.a, network.b))
    peers += [here, at_a, at_b]
    receivers = [peer.receiver("multicast/m", 10) for peer in (here, at_a, at_b)]
    network.at_b.wait_remote("M0multicast/m", "A")
    network.at_a.wait_remote("M0multicast/m", "B")
    targeted, anonymous = here.sender("multicast/m"), here.sender()
    network.at_e.wait_consumers("M0multicast/m", 2)  # the client, and one of the uplinks
    for sender, to in ((targeted, None), (anonymous, "multicast/m")):
        number = sender.send(message.message("x", to=to))
        for receiver in receivers:
            receiver.next().settle()
        assert sender.outcome(number).name == "accepted"
    for peer, receiver in zip((here, at_a, at_b), receivers, strict=True):
        peer.barrier()
        assert len(receiver.deliveries) == 2, "each message once"


def test_lost_bearer_moves_traffic_and_returns(network: TwoUplinkNetwork) -> None:
    """Traffic moves twice. No accepted message is lost, and no message arrives twice."""
    flows = [
        MessageFlow(network.e, network.b, "balanced/up"),
        MessageFlow(network.b, network.e, "balanced/down"),
        MessageFlow(network.a, network.e, "balanced/near"),
    ]
    for flow in flows:
        flow.wait_more()
    network.relay.cut()
    network.e.wait_log(r"Edge connection \(id=\d+\) to interior lost, activating alternate id=\d+", CONVERGENCE)
    for flow in flows:
        flow.wait_more()
    network.wait_at(network.a)  # the connector reconnects within the time
    for flow in flows:
        flow.wait_more()
        before = len(flow.others)
        flow.wait_more(5)
        assert len(flow.others) == before
    for flow in flows:
        flow.stop(late=True)
    for key in ("M0balanced/down", "M0balanced/near"):
        network.at_b.wait_consumers(key, 0)


def test_killed_bearer_moves_traffic(network: TwoUplinkNetwork, peers: list[AmqpPeer]) -> None:
    flows = [MessageFlow(network.e, network.b, "balanced/up"), MessageFlow(network.b, network.e, "balanced/down")]
    for flow in flows:
        flow.wait_more()
    network.a.kill()
    for flow in flows:
        flow.wait_more()
    for flow in flows:
        flow.stop(late=True)
    network.at_b.wait_consumers("HE", 1)


def test_link_routes_move_with_the_uplink(network: TwoUplinkNetwork, peers: list[AmqpPeer]) -> None:
    """Link routes of a container at the edge router are announced to the bearer, which also answers look-ups."""
    near, far = (RouteContainer.connected(router.ports[BROKERS]) for router in (network.e, network.b))
    client, other = AmqpPeer.opened(network.e.port), AmqpPeer.opened(network.b.port)
    peers += [near, far, client, other]
    network.at_a.wait_containers("Celr", 1)
    network.at_a.wait_remote("Clr", "B")
    assert network.at_b.containers("Celr") == 0
    network.a.kill()
    network.at_b.wait_containers("Celr", 1)
    for peer, address, broker in ((client, "lr.q", far), (other, "elr.q", near)):
        sender = peer.sender(address, wait=False)
        link = broker.link_attached(timeout=CONVERGENCE)
        assert isinstance(link, PeerReceiver)
        link.flow(10)
        sender.wait_attached()
        sender.wait_credit()
        number = sender.send(message.message("x"))
        link.next().settle()
        assert sender.outcome(number).name == "accepted"


def test_multicast_during_bearer_change_arrives_once(network: TwoUplinkNetwork, peers: list[AmqpPeer]) -> None:
    here, at_b = AmqpPeer.opened(network.e.port), AmqpPeer.opened(network.b.port)
    peers += [here, at_b]
    receiver, second = here.receiver("multicast/m", 10_000), at_b.receiver("multicast/m", 10_000)
    network.at_b.wait_remote("M0multicast/m", "A")
    sender = at_b.sender("multicast/m")
    sent = 0

    def send_and_count_at_b(consumers: int) -> bool:
        """Send another message, and return whether B counts that many consumers."""
        nonlocal sent
        sender.wait_credit()
        sender.send(message.message(sent), settled=True)
        sent += 1
        return network.at_b.consumers("M0multicast/m") == consumers

    assert not send_and_count_at_b(2)
    network.relay.cut()
    poll(lambda: send_and_count_at_b(2), "B has it", CONVERGENCE)
    assert send_and_count_at_b(2)
    poll(lambda: send_and_count_at_b(1), "A has it again", CONVERGENCE)
    network.at_b.wait_remote("M0multicast/m", "A")
    assert send_and_count_at_b(1)
    last = sent - 1
    poll(lambda: bodies(receiver)[-1:] == [last], "the last one arrives", CONVERGENCE)
    poll(lambda: len(bodies(second)) == sent, "all arrive at a consumer that is not concerned", CONVERGENCE)
    assert bodies(second) == list(range(sent))
    assert bodies(receiver) == sorted(set(bodies(receiver))), "each once, in order"


def bodies(receiver: PeerReceiver) -> list[int]:
    """Return the bodies received so far."""
    receiver.session.peer.barrier()
    return [message.body(delivery.payload) for delivery in receiver.deliveries]


# An interior router of 1.19 among the uplinks


@pytest.fixture
def old() -> Iterator[ScriptedBroker]:
    broker = ScriptedBroker()
    yield broker
    broker.close()


def test_dispatch_router_among_uplinks_stays_standby(
    start: Start, workers: int, old: ScriptedBroker, peers: list[AmqpPeer]
) -> None:
    a = start(with_edges("A"), workers)
    e = start([ALL, listener(), connector(a.ports[EDGES], role="edge", cost=2)], workers)
    EdgeView(a).wait_consumers("HE", 1)
    management = Management(AmqpPeer.opened(e.port))
    peers.append(management.peer)
    management.create("connector", "old", host="127.0.0.1", port=str(old.port), role="edge")
    other = old.serve(CONVERGENCE, container_id="OLD", properties=properties())
    peers.append(other)

    def uplinks() -> dict[str, bool]:
        return {row["container"]: row["active"] for row in EdgeView(e).query("connection") if row["role"] == "edge"}

    poll(lambda: uplinks() == {"A": True, "OLD": False}, "it waits", CONVERGENCE)
    a.kill()
    poll(lambda: uplinks() == {"OLD": True}, "it is the uplink", CONVERGENCE)
    attached: list[Any] = [other.link_attached(answer=False).remote for _ in range(8)]
    termini = [each.fields[end] for each in attached for end in ("source", "target")]
    names = [None if each is None or not each.value else each.value[0] for each in termini]
    assert "_$qd.edge_heartbeat" in names
    assert not any("sluice" in str(name) for name in names)
