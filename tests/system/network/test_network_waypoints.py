"""Auto links, waypoints, chains and fallback that are spread over several routers (brokers-and-edge.md 7, 8)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.peer import message
from tests.peer.container import Container, ScriptedBroker
from tests.peer.frames import source
from tests.peer.links import PeerReceiver, PeerSender
from tests.peer.peer import AmqpPeer
from tests.system.fixtures import Start
from tests.system.links.test_autolinks import auto_link, links
from tests.system.network.broker_network import BrokerNetwork
from tests.system.router import Section

WAYPOINT: Section = ("address", {"prefix": "q", "waypoint": True})
BOTH = (auto_link("out"), auto_link("in"))


@pytest.fixture
def network(start: Start, workers: int, peers: list[AmqpPeer]) -> BrokerNetwork:
    return BrokerNetwork(start, workers, peers)


def start_chain(network: BrokerNetwork, names: str, everywhere: list[Section], **own: list[Section]) -> None:
    """Start routers in a row; every router has the sections `everywhere`."""
    network.start_chain(names, {name: [*everywhere, *own.get(name, [])] for name in names})


def send_through(sender: PeerSender, receiver: PeerReceiver, body: str) -> bytes:
    """Send a message that is accepted end to end; return the payload that arrived."""
    sender.wait_credit()
    number = sender.send(message.message(body))
    delivery = receiver.next()
    assert message.body(delivery.payload) == body
    delivery.settle()
    assert sender.outcome(number).name == "accepted"
    return delivery.payload


def test_waypoint_at_another_router_stores_and_returns(network: BrokerNetwork) -> None:
    start_chain(network, "ABC", [WAYPOINT], C=list(BOTH))
    for client in network.clients("A"):
        sender = client.sender("q.1", credit=False)
        client.barrier()
        assert sender.credit == 0, "no consumer"
        broker = network.broker("C")
        found = links(broker)
        found["out"].flow(100)
        for name in "AB":
            network.wait_announced(name, "M0q.1", "C")
            receiver = network.client(name).receiver("q.1", credit=10)
            network.wait_announced("C", "M1q.1", name)
            for number in range(3):
                stored = send_through(sender, found["out"], f"message {number}")
                receiver.peer.barrier()
                assert receiver.deliveries == [], "never directly"
                assert message.section_of(stored, message.MESSAGE_ANNOTATIONS) is None
            for number in range(3):
                send_through(found["in"], receiver, f"back {number}")
            receiver.peer.drop()
            network.wait_announced("C", "M1q.1")
        broker.drop()
        network.wait_announced("A", "M0q.1")
        client.drop()


def test_waypoint_chain_over_three_routers_visits_each_broker(network: BrokerNetwork) -> None:
    chain: list[Section] = [("address", {"prefix": "q", "ingressPhase": 0, "egressPhase": 3})]

    def stage(phase: int, container: str) -> list[Section]:
        place = {"containerId": container}
        return [auto_link("out", phase=phase, **place), auto_link("in", phase=phase + 1, **place)]

    start_chain(network, "ABC", chain, C=stage(0, "first"), A=stage(1, "second"), B=stage(2, "third"))
    places = (("C", "first"), ("A", "second"), ("B", "third"))
    stages = [links(network.broker(name, container)) for name, container in places]
    for stage_ in stages:
        stage_["out"].flow(100)
    for key, there, others in (("M0q.1", "C", "AB"), ("M1q.1", "A", "BC"), ("M2q.1", "B", "AC")):
        for name in others:
            network.wait_announced(name, key, there)
    for name in "ABC":
        receiver = network.client(name).receiver("q.1", credit=10)
        for other in "ABC".replace(name, ""):
            network.wait_announced(other, "M3q.1", name)
        for producing in "ABC":
            sender: Any = network.client(producing).sender("q.1")
            for number, stage_ in enumerate(stages):
                send_through(sender, stage_["out"], f"{producing} {number}")
                sender = stage_["in"]
            send_through(sender, receiver, f"{producing} to {name}")
        receiver.peer.drop()
        for other in "ABC".replace(name, ""):
            network.wait_announced(other, "M3q.1")


def test_waypoint_sharded_over_two_routers_uses_both(network: BrokerNetwork) -> None:
    start_chain(network, "ABC", [WAYPOINT], A=list(BOTH), C=list(BOTH))
    shards = [links(network.broker(name)) for name in "AC"]
    for shard in shards:
        shard["out"].flow(100)
    network.wait_announced("B", "M0q.1", "A", "C")
    client = network.client("B")
    receiver = client.receiver("q.1", credit=100)
    network.wait_announced("A", "M1q.1", "B")
    network.wait_announced("C", "M1q.1", "B")
    sender = client.sender("q.1")
    sent = [sender.send(message.message(number)) for number in range(20)]
    taken = [shard["out"].receive(10) for shard in shards]
    for delivery in [each for some in taken for each in some]:
        delivery.settle()
    assert {sender.outcome(number).name for number in sent} == {"accepted"}
    for shard in shards:
        shard["in"].wait_credit()
        number = shard["in"].send(message.message("from a shard"))
        receiver.next().settle()
        assert shard["in"].outcome(number).name == "accepted"


def test_broker_gets_credit_for_consumers_of_other_routers(network: BrokerNetwork) -> None:
    start_chain(network, "AB", [WAYPOINT], B=[auto_link("in")])
    sender = links(network.broker("B"), 1)["in"]
    first = network.client("A").receiver("q.1", credit=1)
    send_through(sender, first, "soon")
    first.send_detach()
    sender.peer.until(lambda: sender.credit == 0, "the credit is taken back")
    assert sender.request(message.message("early")).name == "released", "the message was in flight"
    receiver = network.client("A").receiver("q.1", credit=1)
    send_through(sender, receiver, "late")


def test_fallback_at_another_router_is_used_without_primary(network: BrokerNetwork) -> None:
    spare: list[Section] = [("address", {"prefix": "q", "enableFallback": True})]
    start_chain(network, "ABC", spare, C=[auto_link("out", fallback=True)])
    out = links(network.broker("C"), 1)["out"]
    out.flow(100)
    for name in "AB":
        network.wait_announced(name, "MFq.1", "C")
    sender = network.client("A").sender("q.1")
    send_through(sender, out, "to the spare")
    primary = network.client("B").receiver("q.1", credit=10)
    network.wait_announced("A", "M0q.1", "B")
    send_through(sender, primary, "to the primary")
    here = network.client("A").receiver("q.1", credit=10)
    primary.detach()
    network.wait_announced("A", "M0q.1")
    send_through(sender, here, "to the primary here")
    here.detach()
    send_through(sender, out, "to the spare again")
    other = network.client("B").receiver(source=source("q.1", capabilities="qd.fallback"), credit=10)
    network.wait_announced("A", "MFq.1", "B", "C")
    send_through(network.client("B").sender("q.1"), other, "to the spare that is near")


def test_connector_to_broker_serves_clients_of_another_router(network: BrokerNetwork) -> None:
    broker = ScriptedBroker()
    network.peers.append(broker)  # type: ignore[arg-type]
    broker.drop = broker.close  # type: ignore[attr-defined]
    place = {"name": "broker", "host": "127.0.0.1", "port": broker.port, "role": "route-container"}
    queue = [auto_link(way, connection="broker") for way in ("out", "in")]
    route: Section = ("linkRoute", {"prefix": "r", "direction": "in", "connection": "broker"})
    network.add("A", (), [WAYPOINT])
    network.add("B", "A", [WAYPOINT, ("connector", place), *queue, route])
    container: Container = broker.serve()
    found = links(container)
    found["out"].flow(10)
    network.wait_converged()
    network.wait_announced("A", "M0q.1", "B")
    network.wait_announced("A", "Cr", "B")
    receiver = network.client("A").receiver("q.1", credit=10)
    network.wait_announced("B", "M1q.1", "A")
    send_through(network.client("A").sender("q.1"), found["out"], "there")
    send_through(found["in"], receiver, "back")
    sender = network.client("A").sender("r.x", wait=False)
    container.session_begun()
    end = container.link_attached()
    assert isinstance(end, PeerReceiver)
    sender.wait_attached()
    end.flow(1)
    send_through(sender, end, "on a link of its own")
