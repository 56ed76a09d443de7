"""Edge routers E (at interior router A) and F (at B): behaviour for clients, and management (brokers-and-edge.md 9)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.peer import message
from tests.peer.container import accept
from tests.peer.frames import source, target
from tests.peer.management import PREFIX, Management, ManagementStatusError
from tests.peer.peer import AmqpPeer
from tests.peer.route_container import RouteContainer
from tests.peer.types import Symbol
from tests.system.bystanders.harness import clients_sections
from tests.system.edges import BROKERS, EdgeNetwork, edge, with_edges
from tests.system.networks import CONVERGENCE
from tests.system.router import SETTINGS, RouterProcess, Section, poll
from tests.system.tools import run

pytestmark = pytest.mark.adversarial

WORKER_COUNTS = (1, 3)
#: Octets of a body, and of its part sent first, which suffices to make the message stream.
STREAM = 600_000
STREAM_BEGUN = 300_000
#: Number of messages, larger than the number that routers exchange among themselves meanwhile.
MANY = 200

EXTRA: list[Section] = [
    *SETTINGS,
    ("address", {"prefix": "wp", "waypoint": True}),
    ("address", {"prefix": "fb", "enableFallback": True}),
]
ROUTE: list[Section] = [
    ("linkRoute", {"prefix": "lr", "direction": direction, "containerId": "broker"}) for direction in ("in", "out")
]


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
        a = start("A", [*with_edges("A"), *EXTRA, *ROUTE])
        b = start("B", [*with_edges("B", a.ports["net"]), *EXTRA])
        start("E", [*edge("E", a), *EXTRA, *clients_sections()])
        route: Section = "linkRoute", {"prefix": "elr", "direction": "in", "containerId": "broker"}
        start("F", [*edge("F", b), *EXTRA, route, *clients_sections()])
        created.wait_reached("E", "F")
        created.start_bystanders("E", "F")
        yield created
    finally:
        created.stop()


@pytest.fixture
def network(_network: EdgeNetwork, request: pytest.FixtureRequest) -> Iterator[EdgeNetwork]:
    """Yield the routers A, B, E and F, shared by a test module."""
    request.node.routers = list(_network.routers.values())
    yield _network
    _network.drop()
    _network.check()


PLACES = [("E", "E"), ("E", "A"), ("A", "E"), ("E", "B"), ("B", "E"), ("E", "F")]


@pytest.mark.parametrize(("into", "out"), PLACES, ids=[f"{into}-to-{out}" for into, out in PLACES])
@pytest.mark.parametrize("prefix", ["balanced/", "closest/", "multicast/"])
def test_messages_to_remote_consumer_arrive_once(network: EdgeNetwork, into: str, out: str, prefix: str) -> None:
    address = network.fresh(prefix)
    receiver = network.connect(out).receiver(address, 100)
    sender = network.connect(into).sender(address, credit=False)
    sender.wait_credit(timeout=CONVERGENCE)
    numbers = [sender.send(message.message(number)) for number in range(20)]
    deliveries = receiver.receive(20)
    assert [message.body(each.payload) for each in deliveries] == list(range(20))
    for delivery in deliveries:
        delivery.settle()
    assert {sender.outcome(number).name for number in numbers} == {"accepted"}


# brokers-and-edge.md ED-12.
@pytest.mark.parametrize(("into", "out"), PLACES, ids=[f"{into}-to-{out}" for into, out in PLACES])
def test_anonymous_sender_reaches_remote_consumer(network: EdgeNetwork, into: str, out: str) -> None:
    address = network.fresh("balanced/")
    receiver = network.connect(out).receiver(address, 10)
    peer = network.connect(into)
    sender = peer.sender()
    network.wait_reachable(peer, address)
    number = sender.send(message.message("x", to=address))
    receiver.next().settle()
    assert sender.outcome(number).name == "accepted"


# brokers-and-edge.md ED-13.
@pytest.mark.parametrize("anonymous", [False, True], ids=["targeted", "anonymous"])
def test_multicast_message_reaches_each_consumer_once(network: EdgeNetwork, anonymous: bool) -> None:
    address = network.fresh("multicast/")
    receivers = [network.connect(name).receiver(address, 10) for name in "EEFAB"]
    network.view("A").wait_remote(f"M0{address}", "B")
    network.view("B").wait_remote(f"M0{address}", "A")
    for name in "AB":
        network.view(name).wait_consumers(f"M0{address}", 2)
    for into, consumers in (("E", 3), ("F", 2), ("A", 2), ("B", 2)):
        sender = network.connect(into).sender(None if anonymous else address)
        if not anonymous:
            network.view(into).wait_consumers(f"M0{address}", consumers)
        number = sender.send(message.message(into, to=address if anonymous else None))
        for receiver in receivers:
            delivery = receiver.next()
            assert message.body(delivery.payload) == into
            delivery.settle()
        assert sender.outcome(number).name == "accepted"
    for receiver in receivers:
        receiver.session.peer.barrier()
        assert len(receiver.deliveries) == 4


# brokers-and-edge.md ED-10.
def test_credit_comes_with_consumer_and_its_loss_releases_messages(network: EdgeNetwork) -> None:
    address = network.fresh("balanced/")
    sender = network.connect("E").sender(address, credit=False)
    sender.session.peer.barrier()
    assert sender.credit == 0
    receiver = network.connect("B").receiver(address, 10)
    assert sender.wait_credit(timeout=CONVERGENCE) == 250
    receiver.detach()
    network.view("E").wait_consumers(f"M0{address}", 0)
    number = sender.send(message.message("x"))
    assert sender.outcome(number).name == "released"


def test_interior_counts_edge_router_as_one_consumer(network: EdgeNetwork) -> None:
    address = network.fresh("balanced/")
    first, second = (network.connect("E").receiver(address, 1) for _ in range(2))
    network.view("A").wait_consumers(f"M0{address}", 1)
    first.detach()
    second.detach()
    network.view("A").wait_consumers(f"M0{address}", 0)


def test_deliveries_from_edge_are_counted_separately(network: EdgeNetwork) -> None:
    name = "deliveriesIngressEdge"

    def counted() -> list[int]:
        return [network.view(router).query("router", name)[0][name] for router in "EABF"]

    address = network.fresh("balanced/")
    receiver = network.connect("F").receiver(address, MANY)
    sender = network.connect("E").sender(address, credit=False)
    sender.wait_credit(timeout=CONVERGENCE)
    before = counted()
    for number in range(MANY):
        sender.send(message.message(number), settled=True)
        receiver.next()
    crossed = [after - one for after, one in zip(counted(), before, strict=True)]
    # Heartbeats and other internal messages use these connections as well.
    assert [each >= MANY for each in crossed] == [False, True, False, True], crossed


def test_requests_from_each_router_are_answered(network: EdgeNetwork) -> None:
    server = network.connect("F")
    address = network.fresh("balanced/")
    requests = server.receiver(address, 10)
    answers = server.sender()
    for name in "EAB":
        peer = network.connect(name)
        replies = peer.receiver(dynamic=True, credit=10)
        form = "amqp:/_edge/E/temp." if name == "E" else f"amqp:/_topo/0/{name}/temp."
        assert replies.address.startswith(form)
        sender = peer.sender(address, credit=False)
        sender.wait_credit(timeout=CONVERGENCE)
        sender.send(message.message("question", reply_to=replies.address), settled=True)
        question = requests.next()
        question.settle()
        answers.send(message.message("answer", to=replies.address), settled=True)
        assert message.body(replies.next().payload) == "answer"


# brokers-and-edge.md ED-23.
def test_management_works_to_and_from_edge_routers(network: EdgeNetwork) -> None:
    for name in "EABF":
        for other, address in (
            ("E", "amqp:/_edge/E/$management"),
            ("F", "amqp:/_edge/F/$management"),
            ("A", "amqp:/_topo/0/A/$management"),
            ("B", "amqp:/_topo/0/B/$management"),
        ):
            rows = Management(network.connect(name), address).query("router")
            assert [row["id"] for row in rows] == [other]


@pytest.mark.parametrize("option", ["-r", "-d"])
def test_tools_reach_known_routers_and_name_unknown_ones(network: EdgeNetwork, option: str) -> None:
    known = {"-r": "AB", "-d": "EF"}[option]
    for at in "EA":
        port = network.routers[at].port
        for router in known:
            done = run("manage", port, option, router, "query", "--type=router", "id")
            assert json.loads(done.out) == [{"id": router}], (at, router, done)
        done = run("stat", port, "-t", "1000", option, "NOPE")
        assert (done.code, done.out) == (1, "UnknownRouter: router 'NOPE' is not in the network\n"), at


def test_connection_link_route_over_uplink_is_refused(network: EdgeNetwork) -> None:
    """The edge router knows only its uplink, so the route would capture messages of its own clients there."""
    kind = PREFIX + "router.connection.linkRoute"
    for name in "AF":
        management = Management(network.connect(name), "amqp:/_edge/E/$management")
        with pytest.raises(ManagementStatusError, match="Parent connection no longer exists"):
            management.call("CREATE", {"pattern": "q-bob.#", "direction": "in"}, type=kind)
        assert management.query("router.connection.linkRoute") == []


def test_explain_follows_uplink_and_downlink(network: EdgeNetwork) -> None:
    address = network.fresh("balanced/")
    assert run("explain", network.routers["E"].port, address).code == 3, "nobody is there"
    network.connect("F").receiver(address, 10)
    network.view("B").wait_consumers(f"M0{address}", 1)
    network.view("A").wait_remote(f"M0{address}", "B")
    done = run("explain", network.routers["E"].port, address)
    assert done.code == 0
    assert "Path: E -> A -> B -> F\n" in done.out
    assert "--- Router F\n" in done.out
    down = run("explain", network.routers["A"].port, address)
    assert down.code == 0
    assert "Path: A -> B -> F\n" in down.out


def test_management_shows_edge_connections_and_addresses(network: EdgeNetwork) -> None:
    (there,) = [row for row in network.view("A").query("connection") if row["role"] == "edge"]
    assert (there["container"], there["dir"], there["active"]) == ("E", "in", True)
    (here,) = [row for row in network.view("E").query("connection") if row["role"] == "edge"]
    assert (here["container"], here["dir"], here["active"]) == ("A", "out", True)
    network.view("A").wait_consumers("HE", 1)
    network.view("B").wait_remote("HE", "A")
    kinds = [row["linkType"] for row in network.view("A").query("router.link") if row["owningAddr"] == "HE"]
    assert kinds == ["edge-downlink"]
    keys = {row["key"] for row in network.view("E").query("router.address")}
    assert {"L_edge", "M0_$qd.edge_heartbeat", "M0$management", "L$management"} <= keys
    assert network.view("E").query("router.node") == []


# brokers-and-edge.md ED-11.
def test_fallback_consumer_at_interior_serves_edge(network: EdgeNetwork) -> None:
    address = network.fresh("fb/")
    fallback = network.connect("A").receiver(None, 10, source=source(address, capabilities=Symbol("qd.fallback")))
    sender = network.connect("E").sender(address, credit=False)
    sender.wait_credit(timeout=CONVERGENCE)
    number = sender.send(message.message("x"))
    fallback.next().settle()
    assert sender.outcome(number).name == "accepted"


@pytest.mark.parametrize("at", ["E", "A"])
def test_waypoint_at_either_side_passes_messages(network: EdgeNetwork, at: str) -> None:
    """A consumer and a producer at edge routers, and a waypoint at E or A (brokers-and-edge.md ED-11)."""
    address = network.fresh("wp/")
    out = network.connect("F").receiver(address, 10)
    peer = network.connect(at)
    intake = peer.receiver(None, 10, source=source(address, capabilities=Symbol("qd.waypoint")))
    outlet = peer.sender(None, credit=False, target=target(address, capabilities=Symbol("qd.waypoint")))
    sender = network.connect("E").sender(address, credit=False)
    sender.wait_credit(timeout=CONVERGENCE)
    outlet.wait_credit(timeout=CONVERGENCE)
    sender.send(message.message("x"), settled=True)
    assert message.body(intake.next().payload) == "x"
    assert not out.deliveries
    outlet.send(message.message("y"), settled=True)
    assert message.body(out.next().payload) == "y"


def test_large_message_crosses_the_uplink(network: EdgeNetwork) -> None:
    address = network.fresh("balanced/")
    receiver = network.connect("B").receiver(address, 10)
    sender = network.connect("E").sender(address, credit=False)
    sender.wait_credit(timeout=CONVERGENCE)
    body = "x" * 2_000_000
    number = sender.send(message.message(body))
    delivery = receiver.next()
    assert message.body(delivery.payload) == body
    delivery.settle()
    assert sender.outcome(number).name == "accepted"


# brokers-and-edge.md ED-22.
def test_interior_link_route_serves_edge_clients(network: EdgeNetwork, peers: list[AmqpPeer]) -> None:
    client = network.connect("E", container_id="client")
    refused = client.sender("lr.q", wait=False)
    assert refused.wait_detached() == ("qd:no-route-to-dest", "No route to the destination node")
    broker = RouteContainer.connected(network.routers["A"].ports[BROKERS])
    peers.append(broker)
    network.view("A").wait_containers("Clr", 1)
    sender = client.session.sender("lr.q", wait=False, name="mine")
    link: Any = broker.link_attached(answer=False)
    assert link.name == "mine@E"
    accept(link)
    link.flow(10)
    sender.wait_attached()
    sender.wait_credit()
    number = sender.send(message.message("x"))
    link.next().settle()
    assert sender.outcome(number).name == "accepted"
    broker.drop()
    assert sender.wait_detached() == ("qd:routed-link-lost", "Connectivity to the peer container was lost")


# brokers-and-edge.md ED-19 to ED-22; inter-router.md 14.7.
def test_container_at_edge_serves_clients_everywhere(network: EdgeNetwork, peers: list[AmqpPeer]) -> None:
    broker = RouteContainer.connected(network.routers["F"].ports[BROKERS])
    peers.append(broker)
    network.view("B").wait_containers("Celr", 1)
    network.view("A").wait_remote("Celr", "B")
    for name, ending in (("B", "@c@B"), ("A", "@c@B"), ("E", "@E@B"), ("F", "@c")):
        client = network.connect(name, container_id="c")
        sender = client.sender("elr.q", wait=False, name=f"from{name}")
        link: Any = broker.link_attached(answer=False, timeout=CONVERGENCE)
        assert link.name == f"from{name}{ending}"
        accept(link)
        link.flow(10)
        sender.wait_attached()
        sender.wait_credit()
        number = sender.send(message.message("x"))
        link.next().settle()
        assert sender.outcome(number).name == "accepted"
    broker.drop()
    poll(lambda: not network.view("B").containers("Celr"), "the interior forgets the link route", CONVERGENCE)


@pytest.mark.parametrize(("into", "out"), [("E", "A"), ("A", "E"), ("E", "F")], ids=["up", "down", "both"])
def test_stalled_stream_delays_no_other_message(network: EdgeNetwork, into: str, out: str) -> None:
    address = network.fresh("balanced/")
    receivers = [network.connect(out).receiver(address, 10) for _ in range(2)]
    slow, sender = (
        network.connect(into).sender(address, credit=False),
        network.connect(into).sender(address, credit=False),
    )
    slow.wait_credit(timeout=CONVERGENCE)
    sender.wait_credit(timeout=CONVERGENCE)
    encoded = message.message("x" * STREAM)
    stream = slow.send(encoded[:STREAM_BEGUN], more=True)

    def begun() -> bool:
        for each in receivers:
            each.session.peer.barrier()
        return any(each.deliveries for each in receivers)

    poll(begun, "the stream has begun to arrive", CONVERGENCE)
    taken, other = receivers if receivers[0].deliveries else receivers[::-1]
    for number in range(5):
        small = sender.send(message.message(number))
        delivery = other.next()
        assert message.body(delivery.payload) == number
        delivery.settle()
        assert sender.outcome(small).name == "accepted"
    slow.send(encoded[STREAM_BEGUN:])
    delivery = taken.next(timeout=CONVERGENCE)
    assert message.body(delivery.payload) == "x" * STREAM
    delivery.settle()
    assert slow.outcome(stream).name == "accepted"
