"""Termini of every kind, attached by clients of edge router E, with the container at any router of the network."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.peer import message
from tests.peer.container import accept, refuse
from tests.peer.frames import ACCEPTED, coordinator, source, target
from tests.peer.management import Management
from tests.peer.peer import AmqpPeer
from tests.peer.route_container import RouteContainer
from tests.peer.types import Described, Map, Symbol, UInt, ULong
from tests.system.edges import BROKERS, EdgeNetwork, edge, with_edges
from tests.system.networks import CONVERGENCE
from tests.system.router import SETTINGS, RouterProcess, Section, poll

WORKER_COUNTS = (1, 3)
DECLARED = Described(ULong(0x33), [b"txn-1"])
ENLISTED = Described(ULong(0x34), [b"txn-1"])
ENLISTED_ACCEPTED = Described(ULong(0x34), [b"txn-1", ACCEPTED])
NO_COORDINATOR = (
    "amqp:precondition-failed",
    "The router can't coordinate transactions by itself, a linkRoute to a coordinator must be configured to use"
    " transactions.",
)
NO_ROUTE = ("qd:no-route-to-dest", "No route to the destination node")
#: Link routes of all routers but E, which finds them by look-up.
ROUTES: list[Section] = [
    ("linkRoute", {"name": f"{prefix}.{direction}", "prefix": prefix, "direction": direction, "containerId": "broker"})
    for prefix, direction in (("$coordinator", "in"), ("tx", "in"), ("tx", "out"))
]
#: Routers that the container connects to.
PLACES = ("A", "B", "F")


@pytest.fixture(scope="module")
def _network(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EdgeNetwork]:
    created = EdgeNetwork()

    def start(name: str, sections: list[Section]) -> RouterProcess:
        router = created.routers[name] = RouterProcess(
            tmp_path_factory.mktemp(f"router{name}-"), sections, request.param
        )
        router.start()
        return router

    try:
        a = start("A", [*with_edges("A"), *SETTINGS, *ROUTES])
        b = start("B", [*with_edges("B", a.ports["net"]), *SETTINGS, *ROUTES])
        start("E", [*edge("E", a), *SETTINGS])
        start("F", [*edge("F", b), *SETTINGS, *ROUTES])
        created.wait_reached("E", "F")
        yield created
    finally:
        created.stop()


@pytest.fixture
def network(_network: EdgeNetwork, request: pytest.FixtureRequest) -> Iterator[EdgeNetwork]:
    """Yield interior routers A and B, edge routers E (of A) and F (of B), shared by this module."""
    request.node.routers = list(_network.routers.values())
    yield _network
    _network.drop()


def broker_at(network: EdgeNetwork, peers: list[AmqpPeer], place: str) -> RouteContainer:
    """Connect a container to a router once the previous one is forgotten, and wait until A has a path to it."""
    view = network.view("A")

    def ways() -> int:
        row = view.address("C$coordinator")
        return 0 if row is None else int(row["containerCount"] + row["remoteCount"])

    poll(lambda: not ways(), "the container of the test before is forgotten", CONVERGENCE)
    broker = RouteContainer.connected(network.routers[place].ports[BROKERS])
    peers.append(broker)
    poll(ways, f"A knows the container at {place}", CONVERGENCE)
    return broker


def accept_routed_link(broker: RouteContainer, answer: bool = True) -> Any:
    """Return the next link that reaches the container, accepted with credit."""
    end: Any = broker.link_attached(answer=False, timeout=CONVERGENCE)
    if answer:
        accept(end)
        if not end.remote.fields["role"]:
            end.flow(10)
    return end


@pytest.mark.parametrize("place", PLACES)
def test_transactions_are_relayed_to_container(network: EdgeNetwork, peers: list[AmqpPeer], place: str) -> None:
    broker = broker_at(network, peers, place)
    client = network.connect("E")
    wanted = coordinator(["amqp:local-transactions"])
    control = client.sender(wait=False, target=wanted)
    end = accept_routed_link(broker)
    assert end.remote.target == wanted
    control.wait_attached()
    control.wait_credit()
    declare = control.send(message.message("declare"))
    end.next().settle(DECLARED)
    assert control.outcome(declare).state == DECLARED
    sender = client.session.sender("tx.q", wait=False)
    work = accept_routed_link(broker)
    assert work.session is end.session, "a transaction is one of a session"
    sender.wait_credit()
    number = sender.send(message.message("work"), state=ENLISTED)
    delivery = work.next()
    assert delivery.state == ENLISTED
    delivery.settle(ENLISTED_ACCEPTED)
    assert sender.outcome(number).state == ENLISTED_ACCEPTED
    broker.drop()
    for link in (control, sender):
        assert link.wait_detached() == ("qd:routed-link-lost", "Connectivity to the peer container was lost")


def test_coordinator_with_absent_broker_is_refused(network: EdgeNetwork, peers: list[AmqpPeer]) -> None:
    broker_at(network, peers, "A").drop()
    client = network.connect("E")

    def refusal() -> tuple[str, str | None] | None:
        refused = client.sender(wait=False, target=coordinator())
        found: tuple[str, str | None] | None = refused.wait_detached()
        return found

    poll(lambda: refusal() == NO_ROUTE, "the container is forgotten", CONVERGENCE)


def test_coordinator_refusal_by_broker_is_relayed(network: EdgeNetwork, peers: list[AmqpPeer]) -> None:
    broker = broker_at(network, peers, "A")
    control = network.connect("E").sender(wait=False, target=coordinator())
    refuse(accept_routed_link(broker, answer=False), "amqp:not-implemented", "no transactions")
    assert control.wait_attached().target is None
    assert control.wait_detached() == ("amqp:not-implemented", "no transactions")


def test_coordinator_without_link_route_is_refused(network: EdgeNetwork) -> None:
    agent = Management(network.connect("A"))
    agent.delete("router.config.linkRoute", "$coordinator.in")
    try:
        # B and F have link routes, but no containers: A is not notified of them.
        control = network.connect("E").sender(wait=False, target=coordinator())
        assert control.wait_attached().target is None
        assert control.wait_detached() == NO_COORDINATOR
    finally:
        wanted = {"prefix": "$coordinator", "direction": "in", "containerId": "broker"}
        agent.create("router.config.linkRoute", "$coordinator.in", **wanted)


@pytest.mark.parametrize("place", PLACES)
def test_terminus_fields_reach_the_container(network: EdgeNetwork, peers: list[AmqpPeer], place: str) -> None:
    broker = broker_at(network, peers, place)
    client = network.connect("E")
    wanted = source("tx.q", durable=UInt(2), expiry_policy=Symbol("never"), capabilities=[Symbol("shared")])
    receiver = client.receiver(wait=False, source=wanted)
    end = accept_routed_link(broker)
    assert end.remote.source.value == wanted.value
    receiver.wait_attached()
    client.drop()
    end.wait_detached()
    assert not end.detached.closed, "a durable subscription outlives its client"
    broker.drop()


@pytest.mark.parametrize("role", ["sender", "receiver"])
def test_dynamic_node_belongs_to_edge_router(network: EdgeNetwork, role: str) -> None:
    client, other = network.connect("E"), network.connect("B")
    if role == "receiver":
        receiver = client.receiver(source=source(dynamic=True))
        text = receiver.wait_attached().source.value[0]
        assert text.startswith("amqp:/_edge/E/temp.")
        sender = other.sender(text)
    else:
        sender = client.sender(target=target(dynamic=True), credit=False)
        text = sender.wait_attached().target.value[0]
        assert text.startswith("amqp:/_$temp.")
        receiver = other.receiver(text)
        sender.wait_credit(timeout=CONVERGENCE)
    receiver.flow(10)
    number = sender.send(message.message("x"))
    delivery = receiver.next()
    assert message.body(delivery.payload) == "x"
    delivery.settle()
    assert sender.outcome(number).name == "accepted"


def test_dynamic_node_of_interior_link_route_is_refused(network: EdgeNetwork, peers: list[AmqpPeer]) -> None:
    broker_at(network, peers, "A")
    wanted = Map([(Symbol("x-opt-qd.address"), "tx.new")])
    nodes = source(dynamic=True, dynamic_node_properties=wanted)
    receiver = network.connect("E").receiver(wait=False, source=nodes)
    assert receiver.wait_detached() == NO_ROUTE


def test_management_and_anonymous_senders_work_at_edge(network: EdgeNetwork) -> None:
    client = network.connect("E")
    assert Management(client).query("router", "id") == [{"id": "E"}]
    receiver = network.connect("B").receiver("plain", 10)
    network.wait_reachable(client, "plain")
    sender = client.sender(target=target())
    number = sender.send(message.message("x", to="plain"))
    receiver.next().settle()
    assert sender.outcome(number).name == "accepted"
