"""Edge routers E, F and G, connected to each other; E and F also to interior router A (docs/internals/edge.md)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from tests.peer import message
from tests.peer.management import Management
from tests.system.bystanders.harness import clients_sections
from tests.system.edges import PEERS, EdgeNetwork, peer_edge, with_edges
from tests.system.fixtures import bodies
from tests.system.http import WEB, scrape
from tests.system.networks import CONVERGENCE
from tests.system.router import SETTINGS, RouterProcess, Section, poll

pytestmark = pytest.mark.adversarial

WORKER_COUNTS = (1, 3)
#: Number of addresses with bystander consumers at F: the pair from E to F, and the pair that uses only F.
ADDRESSES_OF_BYSTANDERS = 2
SCOPES: list[Section] = [
    *SETTINGS,
    WEB,
    ("address", {"prefix": "here", "scope": "local"}),
    ("address", {"prefix": "these", "scope": "site"}),
    ("address", {"prefix": "shared", "scope": "site", "distribution": "multicast"}),
]


@pytest.fixture(scope="module")
def _mesh(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EdgeNetwork]:
    site = EdgeNetwork()

    def start(name: str, sections: list[Section]) -> RouterProcess:
        router = site.routers[name] = RouterProcess(tmp_path_factory.mktemp(f"router{name}-"), sections, request.param)
        router.start()
        return router

    try:
        a = start("A", [*with_edges("A"), *SETTINGS])
        e = start("E", [*peer_edge("E", a), *SCOPES, *clients_sections()])
        f = start("F", [*peer_edge("F", a, to=[e.ports[PEERS]]), *SCOPES, *clients_sections()])
        start("G", [*peer_edge("G", to=[e.ports[PEERS], f.ports[PEERS]]), *SCOPES])
        for name in "EFG":
            site.view(name).wait_peers(*"EFG".replace(name, ""))
        for name in "EF":
            site.view("A").wait_consumers(f"H{name}", 1)
        site.start_bystanders("E", "F")
        yield site
    finally:
        site.stop()


@pytest.fixture
def mesh(_mesh: EdgeNetwork, request: pytest.FixtureRequest) -> Iterator[EdgeNetwork]:
    """Yield the routers, shared by a test module."""
    request.node.routers = list(_mesh.routers.values())
    yield _mesh
    _mesh.drop()
    _mesh.check()


PAIRS = [("E", "F"), ("F", "E"), ("G", "E"), ("E", "G")]


@pytest.mark.parametrize(("into", "out"), PAIRS, ids=[f"{into}-to-{out}" for into, out in PAIRS])
@pytest.mark.parametrize("prefix", ["balanced/", "closest/", "multicast/", "these/", "shared/"])
def test_messages_to_consumer_at_edge_peer_arrive_once(mesh: EdgeNetwork, into: str, out: str, prefix: str) -> None:
    address = mesh.fresh(prefix)
    receiver = mesh.connect(out).receiver(address, 100)
    mesh.view(into).wait_consumers(f"M0{address}", 1)
    sender = mesh.connect(into).sender(address, credit=False)
    sender.wait_credit(timeout=CONVERGENCE)
    numbers = [sender.send(message.message(number)) for number in range(20)]
    deliveries = receiver.receive(20)
    assert bodies(deliveries) == list(range(20))
    for delivery in deliveries:
        delivery.settle()
    assert {sender.outcome(number).name for number in numbers} == {"accepted"}
    receiver.session.peer.barrier()
    assert len(receiver.deliveries) == 20


def test_interior_of_higher_cost_is_not_used(mesh: EdgeNetwork) -> None:
    address = mesh.fresh("balanced/")
    receiver = mesh.connect("F").receiver(address, 100)
    mesh.view("A").wait_consumers(f"M0{address}", 1)
    sender = mesh.connect("E").sender(address, credit=False)
    sender.wait_credit(timeout=CONVERGENCE)
    mesh.view("E").wait_consumers(f"M0{address}", 2)  # F, and the uplink
    for number in range(10):
        sent = sender.send(message.message(number))
        receiver.next().settle()
        assert sender.outcome(sent).name == "accepted"
    row = mesh.view("A").address(f"M0{address}")
    assert row is not None
    assert row["deliveriesEgress"] == 0


@pytest.mark.parametrize("prefix", ["balanced/", "closest/"])
def test_local_consumers_are_preferred(mesh: EdgeNetwork, prefix: str) -> None:
    address = mesh.fresh(prefix)
    other = mesh.connect("F").receiver(address, 100)
    here = mesh.connect("E").receiver(address, 100)
    mesh.view("E").wait_consumers(f"M0{address}", 2)
    sender = mesh.connect("E").sender(address)
    for number in range(10):
        sent = sender.send(message.message(number))
        here.next().settle()
        assert sender.outcome(sent).name == "accepted"
    other.session.peer.barrier()
    assert not other.deliveries


@pytest.mark.parametrize("anonymous", [False, True], ids=["targeted", "anonymous"])
@pytest.mark.parametrize("prefix", ["multicast/", "shared/"])
def test_multicast_message_reaches_each_consumer_once(mesh: EdgeNetwork, prefix: str, anonymous: bool) -> None:
    """Clients of E and F could get second copies over the interior, and clients of G from both E and F."""
    address = mesh.fresh(prefix)
    places = "EEFFGA" if prefix == "multicast/" else "EEFFG"
    receivers = {(name, number): mesh.connect(name).receiver(address, 100) for number, name in enumerate(places)}
    others = {"E": 4, "F": 4, "G": 3}  # local clients, and two other edge routers
    if prefix == "multicast/":
        mesh.view("A").wait_consumers(f"M0{address}", 3)
    for name, consumers in others.items():
        mesh.view(name).wait_consumers(f"M0{address}", consumers)
    for into in "EFG":
        sender = mesh.connect(into).sender(None if anonymous else address)
        if prefix == "multicast/" and into != "G" and not anonymous:
            mesh.view(into).wait_consumers(f"M0{address}", others[into] + 1)
        numbers = [sender.send(message.message(number, to=address if anonymous else None)) for number in range(10)]
        for (name, _), receiver in receivers.items():
            if name == "A" and into == "G":
                continue  # no edge router forwards it to the interior
            deliveries = receiver.receive(10)
            assert sorted(bodies(deliveries)) == list(range(10)), f"from {into} to {name}"
            for delivery in deliveries:
                delivery.settle()
        assert {sender.outcome(number).name for number in numbers} == {"accepted"}
    for (name, _), receiver in receivers.items():
        receiver.session.peer.barrier()
        assert len(receiver.deliveries) == (20 if name == "A" else 30), name


def test_multicast_message_from_interior_reaches_each_consumer_once(mesh: EdgeNetwork) -> None:
    address = mesh.fresh("multicast/")
    receivers = [mesh.connect(name).receiver(address, 100) for name in "EEFA"]
    far = mesh.connect("G").receiver(address, 100)
    mesh.view("A").wait_consumers(f"M0{address}", 3)
    sender = mesh.connect("A").sender(address)
    number = sender.send(message.message("x"))
    for receiver in receivers:
        receiver.next().settle()
    assert sender.outcome(number).name == "accepted"
    for receiver in receivers:
        receiver.session.peer.barrier()
        assert len(receiver.deliveries) == 1
    far.session.peer.barrier()
    assert not far.deliveries, "an edge router passes nothing on"


def test_message_from_edge_peer_is_not_forwarded_further(mesh: EdgeNetwork) -> None:
    """The peer's consumer has left. The message is released although a third router has a consumer."""
    address = mesh.fresh("balanced/")
    client = mesh.connect("F")
    client.receiver(address, 10)
    mesh.view("G").wait_consumers(f"M0{address}", 1)
    sender = mesh.connect("G").sender(address, credit=False)
    sender.wait_credit(timeout=CONVERGENCE)
    client.drop()
    mesh.view("G").wait_consumers(f"M0{address}", 0)
    at_a = mesh.connect("A").receiver(address, 10)
    number = sender.send(message.message("x"))
    assert sender.outcome(number).name == "released"
    at_a.session.peer.barrier()
    assert not at_a.deliveries


def test_scopes_limit_announcements(mesh: EdgeNetwork) -> None:
    local, site = mesh.fresh("here/"), mesh.fresh("these/")
    client = mesh.connect("E")
    client.receiver(local, 10)
    client.receiver(site, 10)
    mesh.view("F").wait_consumers(f"M0{site}", 1)
    assert mesh.view("F").address(f"M0{local}") is None
    assert mesh.view("A").address(f"M0{site}") is None


def test_scope_changed_to_local_withdraws_consumers(mesh: EdgeNetwork) -> None:
    address = mesh.fresh("narrow/")
    client = mesh.connect("E")
    client.receiver(address, 10)
    mesh.connect("F").receiver(address, 10)
    for name in "EF":
        mesh.view(name).wait_consumers(f"M0{address}", 2)
    management = Management(mesh.connect("E"))
    management.create("router.config.address", "narrow", prefix="narrow", scope="local")
    mesh.view("F").wait_consumers(f"M0{address}", 1)
    mesh.view("E").wait_consumers(f"M0{address}", 1)
    management.delete("router.config.address", "narrow")
    mesh.view("F").wait_consumers(f"M0{address}", 2)


def test_request_to_edge_peer_is_answered(mesh: EdgeNetwork) -> None:
    """The reply address is generated, and only the client's edge router knows it."""
    address = mesh.fresh("balanced/")
    requests = mesh.connect("E").receiver(address, 10)
    client = mesh.connect("G")
    replies = client.receiver(dynamic=True, credit=10)
    mesh.view("G").wait_consumers(f"M0{address}", 1)
    sender = client.sender(address, credit=False)
    sender.wait_credit(timeout=CONVERGENCE)
    sender.send(message.message("request", reply_to=replies.address))
    delivery = requests.next()
    delivery.settle()
    server = mesh.connect("E")
    for answering in (server.sender(None), server.sender(replies.address)):
        to = replies.address if answering.target.get("address") is None else None
        number = answering.send(message.message("reply", to=to))
        assert message.body(replies.next().payload) == "reply"
        replies.deliveries[-1].settle()
        assert answering.outcome(number).name == "accepted"


def test_stream_crosses_inter_edge_connection(mesh: EdgeNetwork) -> None:
    address = mesh.fresh("balanced/")
    receiver = mesh.connect("F").receiver(address, 10)
    mesh.view("G").wait_consumers(f"M0{address}", 1)
    sender = mesh.connect("G").sender(address, credit=False)
    sender.wait_credit(timeout=CONVERGENCE)
    body = "x" * 600_000
    number = sender.send(message.message(body))
    delivery = receiver.next()
    assert message.body(delivery.payload) == body
    delivery.settle()
    assert sender.outcome(number).name == "accepted"


def test_multicast_stream_arrives_once(mesh: EdgeNetwork) -> None:
    address = mesh.fresh("multicast/")
    receivers = [mesh.connect(name).receiver(address, 10) for name in "EFG"]
    mesh.view("A").wait_consumers(f"M0{address}", 2)
    sender = mesh.connect("E").sender(address)
    mesh.view("E").wait_consumers(f"M0{address}", 4)
    body = "x" * 600_000
    for _ in range(2):
        number = sender.send(message.message(body))
        for receiver in receivers:
            delivery = receiver.next()
            assert message.body(delivery.payload) == body
            delivery.settle()
        assert sender.outcome(number).name == "accepted"
    for receiver in receivers:
        receiver.session.peer.barrier()
        assert len(receiver.deliveries) == 2


def test_explain_names_edge_peers(mesh: EdgeNetwork) -> None:
    address = mesh.fresh("balanced/")
    client = mesh.connect("F")
    client.receiver(address, 10)
    mesh.view("G").wait_consumers(f"M0{address}", 1)
    management = Management(mesh.connect("G"))
    for asked, finding in (
        (address, "There are consumers at edge router 'F' (cost 1)"),
        ("_edge/E/temp.x", "It is at edge router 'E' (cost 1): messages go there"),
    ):
        # The notification from the other edge router may arrive after the interior router's.
        poll(partial(_found, management, asked, finding), f"{asked}: {finding}", CONVERGENCE)


def _found(management: Management, address: str, finding: str) -> bool:
    body = management.call("EXPLAIN", address=address)
    return bool(body["reachable"]) and finding in body["findings"]


def test_metrics_name_edge_peers(mesh: EdgeNetwork) -> None:
    def shown(router: str, metric: str, **labels: str) -> float:
        return scrape(mesh.routers[router].ports["web"]).sum(f"sluice_edge_peer_{metric}", **labels)

    assert [shown("G", "connections", edge=edge) for edge in "EF"] == [1, 1]
    # A page may be slightly out of date, and consumers of earlier tests may still be leaving.
    own = ADDRESSES_OF_BYSTANDERS
    poll(lambda: shown("G", "addresses", edge="F", users="there") == own, "no other consumers at F", CONVERGENCE)
    address = mesh.fresh("balanced/")
    mesh.connect("F").receiver(address, 10)
    mesh.view("G").wait_consumers(f"M0{address}", 1)
    poll(lambda: shown("G", "addresses", edge="F", users="there") == own + 1, "a consumer at F", CONVERGENCE)
    poll(lambda: shown("F", "addresses", edge="G", users="here") == own + 1, "G has been told", CONVERGENCE)


def test_management_shows_inter_edge_connections(mesh: EdgeNetwork) -> None:
    rows = [row for row in mesh.view("G").query("connection") if row["role"] == "inter-edge"]
    assert {(row["container"], row["dir"], row["active"]) for row in rows} == {("E", "out", True), ("F", "out", True)}
    answer = Management(mesh.connect("G")).ask(
        "UPDATE", {"adminStatus": "deleted"}, type="org.apache.qpid.dispatch.connection", identity=rows[0]["identity"]
    )
    assert answer.status == 403
