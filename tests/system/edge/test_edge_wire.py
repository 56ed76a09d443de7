"""Frames of edge connections, with a scripted router as the peer (inter-router.md 14)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.peer import message
from tests.peer.container import Container, ScriptedBroker, accept
from tests.peer.frames import source, target
from tests.peer.links import PeerReceiver, PeerSender
from tests.peer.management import Management
from tests.peer.neighbour import properties
from tests.peer.peer import AmqpPeer
from tests.peer.types import Int, Symbol
from tests.peer.wire import TIMEOUT
from tests.system.edges import EDGES, EdgeView, with_edges
from tests.system.fixtures import Start
from tests.system.http import WEB, wait_page
from tests.system.networks import CONVERGENCE
from tests.system.router import SETTINGS, RouterProcess, Section, listener, poll

pytestmark = pytest.mark.adversarial

#: Seconds, less than an edge router waits for the reply to a look-up.
LOOKUP_REPLY_TIME = 2.5
DOWNLINK = "qd.router-edge-downlink"
NO_LINK_ROUTE = "sluice.no-link-route"
#: Leading octets of messages from router {0}: its router annotations (inter-router.md 16.11).
ANNOTATIONS_OF = (
    "005372c13004a310782d6f70742d71642e696e6772657373a103302f{0}a30e782d6f70742d71642e7472616365c00601a103302f{0}"
)
HEADER = "005370d0000000050000000142"


def link_fields(link: PeerSender | PeerReceiver) -> Any:
    """Return the fields of the attach of the router under test."""
    assert link.remote is not None
    return link.remote.fields


def router_annotations(router: str) -> str:
    return ANNOTATIONS_OF.format(router.encode().hex())


# --- interior router with a scripted edge router ---


class EdgePeer:
    """The connection and links of an edge router of 1.19."""

    def __init__(self, port: int, name: str = "E", **fields: Any) -> None:
        self.peer = AmqpPeer.opened(port, **{"container_id": name, "properties": properties(), **fields})
        first, second = self.peer.begin(), self.peer.begin()
        self.anonymous = first.sender(None, source=source(None), target=target(None))
        self.downlink = first.receiver(
            None,
            250,
            source=source(name, capabilities=Symbol(DOWNLINK)),
            target=target(None, capabilities=Symbol(DOWNLINK)),
        )
        self.tracking = second.receiver("_$qd.edge_addr_tracking", 32)
        self.answers = second.receiver(None, 250, source=source(None, dynamic=True))
        self.lookup = second.sender("_$qd.addr_lookup")
        self.heartbeat = second.sender("_$qd.edge_heartbeat")
        self.first = first


@pytest.fixture
def interior(start: Start, workers: int) -> RouterProcess:
    routes: list[Section] = [("linkRoute", {"prefix": "lr", "direction": "in", "containerId": "broker"})]
    return start([*with_edges("A"), *routes, *SETTINGS, WEB], workers)


@pytest.fixture
def scripted(interior: RouterProcess, peers: list[AmqpPeer]) -> EdgePeer:
    edge = EdgePeer(interior.ports[EDGES])
    peers.append(edge.peer)
    return edge


# inter-router.md 14.3.
def test_interior_router_grants_credit_and_reports_version(interior: RouterProcess, scripted: EdgePeer) -> None:
    assert scripted.anonymous.wait_credit() == 250
    assert scripted.lookup.wait_credit() == 32
    assert scripted.heartbeat.wait_credit() == 2
    assert scripted.answers.address.startswith("amqp:/_topo/0/A/temp.")
    remote: Any = scripted.peer.remote_open
    assert dict(remote.properties.pairs)[Symbol("qd.annotations-version")] == 1
    assert EdgeView(interior).consumers("HE") == 1


@pytest.mark.parametrize(
    ("mark", "warned"), [(None, False), ("0123", False), ("4567", True)], ids=["1.19", "same process", "other process"]
)
def test_edge_routers_sharing_an_id_are_logged(
    interior: RouterProcess, peers: list[AmqpPeer], mark: str | None, warned: bool
) -> None:
    """Several connections of one edge router count once. Edge routers of 1.19 are identified by their host."""
    for each in (None if mark is None else "0123", mark, mark):
        more: dict[str, Any] = {} if each is None else {"sluice.edge": each}
        peers.append(EdgePeer(interior.ports[EDGES], "TWIN", properties=properties(**more)).peer)
    warning = r"\[C\d+\] Edge router 'TWIN' at 127\.0\.0\.1:\d+ has the same id as the one at 127\.0\.0\.1:\d+ "
    if warned:
        interior.wait_log(rf"ROUTER_CORE \(warning\) {warning}")
    assert len(re.findall(warning, interior.log)) == int(warned)


# brokers-and-edge.md ED-9; inter-router.md 14.4.
def test_tracking_messages_follow_remote_consumers(
    interior: RouterProcess, scripted: EdgePeer, peers: list[AmqpPeer]
) -> None:
    sender = scripted.first.sender("bal.3", credit=False)
    assert sender.wait_credit() == 250, "whether there are consumers or not"
    client = AmqpPeer.opened(interior.port)
    peers.append(client)
    receiver = client.receiver("bal.3", 1)
    told = scripted.tracking.next()
    assert told.settled
    assert told.payload.hex() == HEADER + router_annotations("A") + "005377d00000000e00000002a1074d3062616c2e3341"
    receiver.detach()
    assert message.body(scripted.tracking.next().payload) == ["M0bal.3", False]
    own = scripted.first.receiver("bal.3", 10)
    again = client.receiver("bal.3", 1)
    assert message.body(scripted.tracking.next().payload) == ["M0bal.3", True], "not of its own consumer"
    again.detach()
    assert message.body(scripted.tracking.next().payload) == ["M0bal.3", False]
    number = sender.send(message.message("x"))
    assert sender.outcome(number).name == "released", "it does not come back"
    assert not own.deliveries


# brokers-and-edge.md ED-17; inter-router.md 14.5.
def test_lookups_are_answered_by_interior(interior: RouterProcess, scripted: EdgePeer) -> None:
    def ask(body: Any, **about: Any) -> tuple[dict[str, Any], Any]:
        scripted.lookup.send(
            message.properties(reply_to=scripted.answers.address, correlation_id="c")
            + message.application_properties({"version": 1, "opcode": 1, **about})
            + message.value(body),
            settled=True,
        )
        payload = scripted.answers.next().payload
        return message.section_of(payload, message.APPLICATION_PROPERTIES), message.body(payload)

    assert ask(["bal.2", False]) == ({"version": 1, "opcode": 1, "status": 3}, [False, False])
    assert ask(["lr.x", True]) == ({"version": 1, "opcode": 1, "status": 0}, [True, False])
    assert ask(["lr.x", False])[0]["status"] == 3
    assert ask("nonsense")[0]["status"] == 4
    assert ask(["lr.x", True], opcode=3)[0]["status"] == 2
    several = ask(["lr.x", True, "lr.x", False, "bal.2", True], opcode=2)
    assert several == ({"version": 1, "opcode": 2, "status": 0}, bytes((1, 0, 0)))
    assert ask(["lr.x", True, "lr.x"], opcode=2)[0]["status"] == 4
    for nonsense in (b"", b"\x00\x53\x77", message.value(None)):
        scripted.lookup.send(nonsense, settled=True)
    assert ask(["bal.2", False])[0]["status"] == 3


# brokers-and-edge.md ED-5.
def test_messages_to_and_from_edge_router_arrive(
    interior: RouterProcess, scripted: EdgePeer, peers: list[AmqpPeer]
) -> None:
    client = AmqpPeer.opened(interior.port)
    peers.append(client)
    replies = client.receiver(dynamic=True, credit=10)
    client.sender("_edge/E/$management").send(message.message("x", reply_to=replies.address), settled=True)
    delivery = scripted.downlink.next()
    annotations = message.section_of(delivery.payload, message.MESSAGE_ANNOTATIONS)
    assert annotations == {"x-opt-qd.to": "_edge/E/$management", "x-opt-qd.ingress": "0/A", "x-opt-qd.trace": ["0/A"]}
    scripted.anonymous.send(message.message("answer", to=replies.address), settled=True)
    assert message.body(replies.next().payload) == "answer"


# brokers-and-edge.md ED-6; inter-router.md 14.6.
def test_missing_heartbeats_end_connection(interior: RouterProcess, scripted: EdgePeer) -> None:
    for _ in range(2):
        scripted.heartbeat.send(message.value(0), settled=True)
    missed = "sluice_edge_router_heartbeats_missed_total"
    wait_page(interior.ports["web"], "the first one is missing", **{missed: 1, "sluice_edge_router_connections": 1})
    interior.wait_log(r"ROUTER_CORE \(info\) \[C\d+\] Lost heartbeat from container E, closing connection", 30.0)
    poll(lambda: EdgeView(interior).consumers("HE") == 0, "HE has gone")


def test_edge_id_used_twice_balances_messages(
    interior: RouterProcess, scripted: EdgePeer, peers: list[AmqpPeer]
) -> None:
    other = EdgePeer(interior.ports[EDGES])
    peers.append(other.peer)
    view = EdgeView(interior)
    view.wait_consumers("HE", 2)
    client = AmqpPeer.opened(interior.port)
    peers.append(client)
    sender = client.sender("_edge/E/x")
    for number in range(4):
        sender.send(message.message(number))
    taken = [message.body(each.downlink.next().payload) for each in (scripted, other) for _ in range(2)]
    assert sorted(taken) == [0, 1, 2, 3]
    other.peer.drop()
    view.wait_consumers("HE", 1)


def test_edge_services_refuse_clients(interior: RouterProcess, peers: list[AmqpPeer]) -> None:
    """Specification: brokers-and-edge.md ED-30."""
    client = AmqpPeer.opened(interior.port)
    peers.append(client)
    receiver = client.receiver("_$qd.edge_addr_tracking", wait=False)
    assert receiver.wait_detached() is None
    for service in ("_$qd.addr_lookup", "_$qd.sluice.uplinks"):
        sender = client.sender(service, wait=False)
        assert sender.wait_detached() is None
    assert client.sender("_$qd.edge_heartbeat").wait_credit() == 2


def test_uplink_protocol_moves_consumers_between_uplinks(interior: RouterProcess, peers: list[AmqpPeer]) -> None:
    """Specification: docs/internals/edge.md."""
    more: dict[str, Any] = {"sluice.edge": "0123", "sluice.uplinks": True}
    edge = EdgePeer(interior.ports[EDGES], properties=properties(**more))
    peers.append(edge.peer)
    remote: Any = edge.peer.remote_open
    assert dict(remote.properties.pairs)[Symbol("sluice.edge")] == 4
    view = EdgeView(interior)
    one, every = edge.first.receiver("balanced/x", 10), edge.first.receiver("multicast/m", 10)
    consumers = ("HE", "M0balanced/x", "M0multicast/m")
    assert [view.consumers(key) for key in consumers] == [0, 0, 0]
    uplinks = edge.first.sender("_$qd.sluice.uplinks", credit=False)
    assert uplinks.wait_credit() == 8
    for bad in (message.value(None), message.value([1, "A", True]), message.value(["A"]), b""):
        uplinks.send(bad, settled=True)
    answers = []
    for octets, counts in (
        ("000000130000000352 07d00000000700000001a1014142", [1, 1, 0]),  # A, and other uplinks still have consumers
        ("000000130000000352 08d00000000700000001a1014141", [1, 1, 1]),
        ("000000130000000352 09d00000000700000001a1014241", [0, 0, 0]),  # B
    ):
        uplinks.send(bytes.fromhex(HEADER + "005377d0" + octets.replace(" ", "")), settled=True)
        answers.append(edge.tracking.next().payload.hex())
        assert [view.consumers(key) for key in consumers] == counts
    value = HEADER + router_annotations("A") + "005377d0000000070000000252"
    assert answers == [f"{value}0741", f"{value}0841", f"{value}0942"]
    assert not one.deliveries
    assert not every.deliveries


def test_early_sender_bypasses_link_route(interior: RouterProcess, scripted: EdgePeer, peers: list[AmqpPeer]) -> None:
    """Specification: docs/internals/edge.md, "The first message"."""
    view = EdgeView(interior)
    early = scripted.first.sender("lr.x", target=target("lr.x", capabilities=Symbol(NO_LINK_ROUTE)), credit=False)
    assert early.wait_credit() == 250
    assert view.address("M0lr.x") is not None
    usual = scripted.first.sender("lr.y", wait=False)
    assert usual.wait_detached() == ("qd:no-route-to-dest", "No route to the destination node")
    client = AmqpPeer.opened(interior.port)
    peers.append(client)
    bold = client.sender("lr.z", target=target("lr.z", capabilities=Symbol(NO_LINK_ROUTE)), wait=False)
    assert bold.wait_detached() == ("qd:no-route-to-dest", "No route to the destination node"), "no edge router"
    early.detach()
    poll(lambda: view.address("M0lr.x") is None, "the address is gone")


def test_client_at_edge_listener_is_served(interior: RouterProcess, peers: list[AmqpPeer]) -> None:
    """Specification: brokers-and-edge.md ED-29."""
    client, other = AmqpPeer.opened(interior.ports[EDGES]), AmqpPeer.opened(interior.port)
    peers += [client, other]
    receiver = client.receiver("a", 10)
    sender = other.sender("a")
    number = sender.send(message.message("x"))
    receiver.next().settle()
    assert sender.outcome(number).name == "accepted"
    assert Management(client).query("router")[0]["id"] == "A"


# --- edge router with a scripted interior router ---


class ScriptedInterior:
    """A scripted interior router for one edge router."""

    def __init__(self, broker: ScriptedBroker, **fields: Any) -> None:
        self.broker = broker
        given = {"container_id": "A", "properties": properties(), **fields}
        self.peer: Container = broker.serve(CONVERGENCE, **given)
        self.links: list[PeerSender | PeerReceiver] = []
        for number in range(8):
            link = self.peer.link_attached(answer=False)
            if isinstance(link, PeerSender) and link_fields(link)["source"].value[4:5] == [True]:
                accept(link, source=source(f"amqp:/_topo/0/A/temp.{number}", dynamic=True))
            else:
                accept(link)
            self.links.append(link)
        self.links.sort(
            key=lambda link: 0 if link.remote is None else link.remote.channel
        )  # stable: links of one session stay in order
        self.anonymous, self.downlink, self.tracking, self.management, self.management_answers = self.links[:5]
        self.lookup, self.lookup_answers, self.heartbeat = self.links[5:]
        for link, credit in zip(self.links, (250, 0, 0, 250, 0, 32, 0, 2), strict=True):
            if isinstance(link, PeerReceiver):
                link.flow(credit)

    def track(self, key: str, reachable: bool) -> None:
        self.tracking.send(message.value([key, reachable]), settled=True)  # type: ignore[union-attr]

    def next_lookup(self, timeout: float = TIMEOUT) -> tuple[Any, list[Any]]:
        """Return correlation-id and body of the next look-up."""
        payload = self.lookup.next(timeout=timeout).payload  # type: ignore[union-attr]
        return message.section_of(payload, message.PROPERTIES)[5], message.body(payload)

    def answer(self, correlation_id: Any, status: int, body: Any, version: int = 1) -> None:
        self.lookup_answers.send(  # type: ignore[union-attr]
            message.properties(correlation_id=correlation_id)
            + message.application_properties({"version": version, "opcode": 1, "status": status})
            + message.value(body),
            settled=True,
        )

    def wait_lookup_by(self, router: RouterProcess) -> None:
        """Attach until the router sends a look-up: by then it has processed the replies to its own attaches."""
        client = AmqpPeer.opened(router.port)
        sender: PeerSender | None = None

        def lookup_arrived() -> bool:
            nonlocal sender
            if sender is None or sender.remote is not None:
                sender = client.sender("$management", wait=False, credit=False)
            client.barrier()
            try:
                correlation_id, _ = self.next_lookup(timeout=0.05)
            except AssertionError:
                return False  # the attach may have been decided without a look-up
            self.answer(correlation_id, 3, [False, False])
            return True

        poll(lookup_arrived, "the router sends a look-up", CONVERGENCE)
        assert sender is not None
        sender.wait_attached()
        client.drop()

    def deny_lookup(self) -> None:
        """Answer the next look-up: no link route matches the address."""
        self.answer(self.next_lookup()[0], 3, [False, False])


@pytest.fixture
def brokers() -> Iterator[Callable[[], ScriptedBroker]]:
    made: list[ScriptedBroker] = []

    def make() -> ScriptedBroker:
        broker = ScriptedBroker()
        made.append(broker)
        return broker

    yield make
    for broker in made:
        broker.close()


@pytest.fixture
def make_edge(
    start: Start, workers: int, brokers: Callable[[], ScriptedBroker], peers: list[AmqpPeer]
) -> Callable[..., tuple[RouterProcess, ScriptedInterior]]:
    """Return a function that starts an edge router with its interior router, whose open has the given properties."""

    def make(**more: Any) -> tuple[RouterProcess, ScriptedInterior]:
        broker = brokers()
        place = {"name": "up", "host": "127.0.0.1", "port": broker.port, "role": "edge"}
        router = start([("router", {"mode": "edge", "id": "E"}), listener(), WEB, ("connector", place)], workers)
        interior = ScriptedInterior(broker, properties=properties(**more))
        peers.append(interior.peer)
        return router, interior

    return make


@pytest.fixture
def edge(make_edge: Callable[..., tuple[RouterProcess, ScriptedInterior]]) -> tuple[RouterProcess, ScriptedInterior]:
    return make_edge()


# brokers-and-edge.md ED-4; inter-router.md 14.1.
def test_edge_router_attaches_eight_links(edge: tuple[RouterProcess, ScriptedInterior]) -> None:
    _, interior = edge
    attaches: list[Any] = [each.remote for each in interior.links]
    links = [(each.channel, each.role, each.fields["source"], each.fields["target"]) for each in attaches]
    addresses = [
        (channel, role, None if a is None else a.value[0], None if b is None else b.value[0])
        for channel, role, a, b in links
    ]
    assert addresses == [
        (0, False, None, None),
        (0, True, "E", None),
        (1, True, "_$qd.edge_addr_tracking", None),
        (1, False, None, "$management"),
        (1, True, None, None),
        (1, False, None, "_$qd.addr_lookup"),
        (1, True, None, None),
        (1, False, None, "_$qd.edge_heartbeat"),
    ]
    assert links[1][2].value[10] == links[1][3].value[6] == Symbol(DOWNLINK)
    for link, credit in ((interior.tracking, 32), (interior.management_answers, 100), (interior.lookup_answers, 250)):
        assert isinstance(link, PeerSender)
        assert link.wait_credit() == credit
    beat = interior.heartbeat.next()  # type: ignore[union-attr]
    assert beat.payload.hex() == router_annotations("E") + "0053775400"
    assert interior.heartbeat.next(timeout=CONVERGENCE).payload.hex().endswith("5401")  # type: ignore[union-attr]


# brokers-and-edge.md ED-7, ED-8; inter-router.md 14.2.
def test_proxy_link_follows_tracking_messages(
    edge: tuple[RouterProcess, ScriptedInterior], peers: list[AmqpPeer]
) -> None:
    router, interior = edge
    interior.wait_lookup_by(router)
    client = AmqpPeer.opened(router.port)
    peers.append(client)
    sender = client.sender("a.c", credit=False, wait=False)
    interior.deny_lookup()
    sender.wait_attached()
    proxy = interior.peer.link_attached(answer=False)
    assert isinstance(proxy, PeerReceiver)
    assert link_fields(proxy)["target"].value[0] == "a.c"
    accept(proxy)
    proxy.flow(250)
    client.barrier()
    assert sender.credit == 0
    for nonsense in (b"", b"\x00", message.value(None), message.value(["M0a.c"]), message.value(["M0other", True])):
        interior.tracking.send(nonsense, settled=True)  # type: ignore[union-attr]
    interior.track("M0a.c", True)
    sender.wait_credit()
    number = sender.send(message.message("x"))
    delivery = proxy.next()
    assert message.section_of(delivery.payload, message.MESSAGE_ANNOTATIONS) == {"x-opt-qd.to": "a.c"}
    delivery.settle()
    assert sender.outcome(number).name == "accepted"
    interior.track("M0a.c", False)
    poll(lambda: EdgeView(router).consumers("M0a.c") == 0, "the link is used no more")
    number = sender.send(message.message("x"))
    assert sender.outcome(number).name == "released"
    sender.send_detach()
    assert proxy.wait_detached() is None


@pytest.mark.parametrize("answer", ["nothing", "link route"])
def test_early_proxy_waits_for_lookup_reply(
    make_edge: Callable[..., tuple[RouterProcess, ScriptedInterior]], peers: list[AmqpPeer], answer: str
) -> None:
    """Specification: docs/internals/edge.md, "The first message"."""
    router, interior = make_edge(**{"sluice.edge": Int(3)})
    interior.wait_lookup_by(router)
    client = AmqpPeer.opened(router.port)
    peers.append(client)
    sender = client.sender("a.c", credit=False, wait=False)
    early = interior.peer.link_attached(answer=False)
    assert isinstance(early, PeerReceiver)
    assert link_fields(early)["target"].value == [
        "a.c",
        0,
        Symbol("link-detach"),
        0,
        False,
        None,
        Symbol(NO_LINK_ROUTE),
    ]
    accept(early)
    early.flow(250)
    correlation_id, body = interior.next_lookup()
    assert body == ["a.c", True]
    assert sender.remote is None
    if answer == "nothing":
        interior.track("M0a.c", True)
        interior.answer(correlation_id, 3, [False, False])
        sender.wait_attached()
        sender.wait_credit()
        number = sender.send(message.message("x"))
        early.next().settle()
        assert sender.outcome(number).name == "accepted"
        return
    interior.answer(correlation_id, 0, [True, True])
    link = interior.peer.link_attached(name=sender.name)
    assert isinstance(link, PeerReceiver)
    assert early.wait_detached() is None
    sender.wait_attached()
    link.flow(1)
    number = sender.send(message.message("x"))
    link.next().settle()
    assert sender.outcome(number).name == "accepted"
    assert EdgeView(router).address("M0a.c") is None


# brokers-and-edge.md ED-18.
@pytest.mark.parametrize("answer", ["none", "link route", "without container", "another version", "malformed"])
def test_lookup_reply_decides_attach(
    edge: tuple[RouterProcess, ScriptedInterior], peers: list[AmqpPeer], answer: str
) -> None:
    router, interior = edge
    interior.wait_lookup_by(router)
    client = AmqpPeer.opened(router.port)
    peers.append(client)
    sender = client.sender("lr.x", wait=False, credit=False)
    correlation_id, body = interior.next_lookup()
    assert body == ["lr.x", True]
    if answer == "link route":
        interior.answer(correlation_id, 0, [True, True])
        link = interior.peer.link_attached()
        assert link_fields(link)["name"] == sender.name
        sender.wait_attached()
    elif answer == "without container":
        interior.answer(correlation_id, 0, [True, False])
        assert sender.wait_detached() == ("qd:no-route-to-dest", "No route to the destination node")
    elif answer in ("another version", "malformed"):
        if answer == "malformed":
            interior.answer(correlation_id, 0, "nonsense")
        else:
            interior.answer(correlation_id, 0, [True, True], version=2)
        sender.wait_attached(timeout=LOOKUP_REPLY_TIME)
        page = wait_page(router.ports["web"], "it is counted", sluice_edge_lookups_unanswered_total=1)
        assert page.sum("sluice_edge_lookups_waiting") == 0
        assert page.sum("sluice_edge_uplinks", state="active") == 1
        assert page.sum("sluice_edge_uplink_changes_total", change="activated") == 1
        assert page.sum("sluice_edge_addresses", users="producers") == 1
    else:
        interior.answer("another", 0, [True, True])
        sender.wait_attached(timeout=CONVERGENCE)
        interior.answer(correlation_id, 0, [True, True])  # after the time-out
        client.barrier()


def test_edge_router_without_uplink_serves_clients(start: Start, workers: int, peers: list[AmqpPeer]) -> None:
    """Specification: brokers-and-edge.md ED-26."""
    router = start([("router", {"mode": "edge", "id": "E"}), listener()], workers)
    client = AmqpPeer.opened(router.port)
    peers.append(client)
    receiver = client.receiver("a", 10)
    sender = client.sender("a")
    number = sender.send(message.message("x"))
    receiver.next().settle()
    assert sender.outcome(number).name == "accepted"
    assert client.receiver(dynamic=True).address.startswith("amqp:/_edge/E/temp.")
    anonymous = client.sender()
    assert anonymous.outcome(anonymous.send(message.message("x", to="nowhere"))).name == "released"
    beyond = client.sender("_topo/0/A/$management")
    assert beyond.outcome(beyond.send(message.message("x"))).name == "released"


def test_alternate_connection_becomes_uplink(
    start: Start, workers: int, brokers: Callable[[], ScriptedBroker], peers: list[AmqpPeer]
) -> None:
    """Specification: brokers-and-edge.md ED-2, ED-3, ED-28."""
    first, second = brokers(), brokers()
    place = {"name": "first", "host": "127.0.0.1", "port": first.port, "role": "edge"}
    sections: list[Section] = [("router", {"mode": "edge", "id": "E"}), listener()]
    router = start([*sections, ("connector", place)], workers)
    one = ScriptedInterior(first)
    peers.append(one.peer)
    management = Management(AmqpPeer.opened(router.port))
    peers.append(management.peer)
    management.create("connector", "second", host="127.0.0.1", port=str(second.port), role="edge")
    other = second.serve(CONVERGENCE, container_id="B", properties=properties())
    peers.append(other)
    router.wait_log(r"container_id=B")
    client = AmqpPeer.opened(router.port)
    peers.append(client)
    receiver = client.receiver("a", 10, wait=False)
    one.deny_lookup()
    receiver.wait_attached()
    assert link_fields(one.peer.link_attached())["source"].value[0] == "a"
    one.peer.drop()
    router.wait_log(r"Edge connection \(id=\d+\) to interior lost, activating alternate id=\d+")
    seen = [other.link_attached(answer=False) for _ in range(9)]
    assert "a" in [link_fields(link)["source"].value[0] for link in seen if link_fields(link)["source"] is not None]
