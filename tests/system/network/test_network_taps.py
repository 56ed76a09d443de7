"""Taps in networks: the router to which a sender is connected makes the only copy (docs/user/tap.md)."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from tests.peer import message
from tests.peer.links import PeerReceiver
from tests.peer.management import Management
from tests.peer.message import annotation
from tests.peer.peer import AmqpPeer
from tests.system.edges import EdgeNetwork, edge, with_edges
from tests.system.fixtures import Start, bodies
from tests.system.networks import CONVERGENCE, MessageFlow, RouterView, TwoRouterNetwork, interior, ports
from tests.system.router import SETTINGS, RouterProcess, Section, poll

WORKER_COUNTS = (1, 3)
TAP = "router.config.tap"
TAPS: list[Section] = [
    ("tap", {"name": "copies", "pattern": "copied/#", "address": "taps/copied"}),
    ("tap", {"name": "musts", "pattern": "must/#", "address": "taps/must", "mode": "required"}),
]
COUNT = 50
#: Octets of messages that are routed before they are complete: their copies are stored, or forwarded as they arrive.
STREAMED = (300_000, 2_000_000)
#: Seconds for which the consumer of copies reads before it accepts what has arrived.
PAUSE = 0.05


@pytest.fixture(scope="module")
def _two_routers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TwoRouterNetwork]:
    """Yield routers A and B, which form a network and have the same taps."""
    (port,) = ports(1)
    routers = []
    for name, listens, to in (("A", port, ()), ("B", None, (port,))):
        sections = [*interior(name, listens, to), *SETTINGS, *TAPS]
        router = RouterProcess(tmp_path_factory.mktemp(f"router{name}{request.param}-"), sections, request.param)
        routers.append(router)
        router.start()
    network = TwoRouterNetwork(*routers)
    try:
        network.at_a.wait_nodes(B=1)
        network.at_b.wait_nodes(A=1)
        yield network
    finally:
        for router in routers:
            router.stop()


@pytest.fixture
def tapped(_two_routers: TwoRouterNetwork, request: pytest.FixtureRequest) -> Iterator[TwoRouterNetwork]:
    request.node.routers = [_two_routers.a, _two_routers.b]
    yield _two_routers
    _two_routers.drop()


def counted(router: RouterProcess, name: str, counter: str = "selectedCount") -> int:
    """Return a counter of a tap at a router."""
    (row,) = (row for row in RouterView(router).query(TAP) if row["name"] == name)
    return int(row[counter])


@pytest.mark.parametrize("prefix", ["copied", "must"])
@pytest.mark.parametrize("consumer_at", ["a", "b"])
@pytest.mark.parametrize("tap_at", ["a", "b"])
def test_message_is_copied_once_where_it_enters(
    tapped: TwoRouterNetwork, prefix: str, consumer_at: str, tap_at: str
) -> None:
    name = {"copied": "copies", "must": "musts"}[prefix]
    address, copies = tapped.fresh(f"{prefix}/"), {"copied": "taps/copied", "must": "taps/must"}[prefix]
    before = counted(tapped.a, name), counted(tapped.b, name)
    tap = tapped.connect(getattr(tapped, tap_at)).receiver(copies, 200)
    consumer = tapped.connect(getattr(tapped, consumer_at)).receiver(address, 200)
    for at in ("a", "b"):
        view = getattr(tapped, f"at_{at}")
        for key, where in ((address, consumer_at), (copies, tap_at)):
            view.wait_remote(f"M0{key}", *([] if where == at else [where.upper()]))
    sender = tapped.connect(tapped.a).sender(address, credit=False)
    sender.wait_credit(timeout=CONVERGENCE)
    numbers = [sender.send(message.message(number)) for number in range(COUNT)]
    originals, received = consumer.receive(COUNT), tap.receive(COUNT)
    assert bodies(originals) == bodies(received) == list(range(COUNT))
    assert {annotation(copy.payload, "x-opt-sluice.address") for copy in received} == {address}
    for delivery in (*originals, *received):
        delivery.settle()
    assert {sender.outcome(number).name for number in numbers} == {"accepted"}
    poll(lambda: counted(tapped.a, name) == before[0] + COUNT, "all messages were selected at A")
    assert counted(tapped.b, name) == before[1]
    tap.peer.barrier()
    assert len(tap.deliveries) == COUNT


@pytest.mark.parametrize("size", STREAMED)
@pytest.mark.parametrize("prefix", ["copied", "must"])
@pytest.mark.parametrize("tap_at", ["a", "b"])
def test_streamed_message_is_copied_once_where_it_enters(
    tapped: TwoRouterNetwork, prefix: str, tap_at: str, size: int
) -> None:
    name = {"copied": "copies", "must": "musts"}[prefix]
    address, copies = tapped.fresh(f"{prefix}/"), {"copied": "taps/copied", "must": "taps/must"}[prefix]
    before = counted(tapped.a, name), counted(tapped.b, name)
    tap = tapped.connect(getattr(tapped, tap_at)).receiver(copies, 10)
    consumer = tapped.connect(tapped.b).receiver(address, 10)
    tapped.at_a.wait_remote(f"M0{address}", "B")
    for at in ("a", "b"):
        getattr(tapped, f"at_{at}").wait_remote(f"M0{copies}", *([] if at == tap_at else [tap_at.upper()]))
    sender = tapped.connect(tapped.a).sender(address, credit=False)
    sender.wait_credit(timeout=CONVERGENCE)
    for _ in range(3):
        number = sender.send(message.message("x" * size))
        original, copy = consumer.next(), tap.next()
        assert message.body(original.payload) == message.body(copy.payload) == "x" * size
        assert annotation(copy.payload, "x-opt-sluice.address") == address
        original.settle()
        if prefix == "must":
            original.link.peer.barrier()
            sender.peer.barrier()
            assert number not in sender.session.outcomes
        copy.settle()
        assert sender.outcome(number).name == "accepted"
    poll(lambda: counted(tapped.a, name) == before[0] + 3, "all messages were selected at A")
    assert counted(tapped.b, name) == before[1]
    tap.peer.barrier()
    assert len(tap.deliveries) == 3


@pytest.mark.parametrize("prefix", ["copied", "must"])
def test_streamed_message_aborted_by_its_producer_is_aborted_beyond_a_hop(
    tapped: TwoRouterNetwork, prefix: str
) -> None:
    address, copies = tapped.fresh(f"{prefix}/"), {"copied": "taps/copied", "must": "taps/must"}[prefix]
    tap, consumer = (tapped.connect(tapped.b).receiver(name, 10) for name in (copies, address))
    for key in (address, copies):
        tapped.at_a.wait_remote(f"M0{key}", "B")
    sender = tapped.connect(tapped.a).sender(address, credit=False)
    sender.wait_credit(timeout=CONVERGENCE)
    sender.send(message.message("x" * STREAMED[-1])[:-100], more=True)
    for receiver in (consumer, tap):
        assert not receiver.next(complete=False).complete
    sender.peer.drop()
    consumer.peer.until(lambda: consumer.deliveries[0].aborted, "the message is aborted")
    tap.peer.until(lambda: tap.deliveries[0].aborted, "its copy is aborted")


def test_required_copy_lost_beyond_a_hop_modifies_the_message(tapped: TwoRouterNetwork) -> None:
    address = tapped.fresh("must/")
    consumer = tapped.connect(tapped.a).receiver(address, 10)
    sender = tapped.connect(tapped.a).sender(address, credit=False)
    tap = tapped.connect(tapped.b).receiver("taps/must", 10)
    sender.wait_credit(timeout=CONVERGENCE)
    number = sender.send(message.message("m"))
    consumer.next().settle()
    tap.next()
    tap.peer.drop()
    assert sender.outcome(number).name == "modified"
    tapped.at_a.wait_remote("M0taps/must")
    assert sender.request(message.message("n")).name == "released"


@pytest.fixture(scope="module")
def _network(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EdgeNetwork]:
    """Yield interior router A with edge router E, which have the same taps."""
    network = EdgeNetwork()

    def start(name: str, sections: list[Section]) -> RouterProcess:
        directory = tmp_path_factory.mktemp(f"router{name}-")
        router = network.routers[name] = RouterProcess(directory, sections, request.param)
        router.start()
        return router

    try:
        a = start("A", [*with_edges("A"), *SETTINGS, *TAPS])
        start("E", [*edge("E", a), *SETTINGS, *TAPS])
        network.wait_reached("E")
        yield network
    finally:
        network.stop()


@pytest.fixture
def edges(_network: EdgeNetwork, request: pytest.FixtureRequest) -> EdgeNetwork:
    request.node.routers = list(_network.routers.values())
    return _network


@pytest.mark.parametrize("prefix", ["copied", "must"])
@pytest.mark.parametrize("consumer_at", ["A", "E"])
@pytest.mark.parametrize("tap_at", ["A", "E"])
def test_edge_router_copies_messages_of_its_clients(
    edges: EdgeNetwork, prefix: str, consumer_at: str, tap_at: str
) -> None:
    name = {"copied": "copies", "must": "musts"}[prefix]
    address, copies = f"{prefix}/{consumer_at}{tap_at}", {"copied": "taps/copied", "must": "taps/must"}[prefix]
    a, e = edges.routers["A"], edges.routers["E"]
    before = counted(a, name), counted(e, name)
    peers: list[AmqpPeer] = []

    def connect(router: RouterProcess) -> AmqpPeer:
        peers.append(AmqpPeer.opened(router.port))
        return peers[-1]

    def receiver(at: str, of: str) -> PeerReceiver:
        return connect(edges.routers[at]).receiver(of, 200)

    tap, consumer = receiver(tap_at, copies), receiver(consumer_at, address)
    sender = connect(e).sender(address, credit=False)
    sender.wait_credit(timeout=CONVERGENCE)
    numbers = []
    # The first copies may be missed until the edge router has heard of the consumer at its interior router.
    poll(lambda: reaches(e, copies), "copies have a way", CONVERGENCE)
    for number in range(COUNT):
        numbers.append(sender.send(message.message(number)))
    originals, received = consumer.receive(COUNT), tap.receive(COUNT)
    assert bodies(originals) == bodies(received) == list(range(COUNT))
    for delivery in (*originals, *received):
        delivery.settle()
    assert {sender.outcome(number).name for number in numbers} == {"accepted"}
    poll(lambda: counted(e, name) == before[1] + COUNT, "all messages were selected at E")
    assert counted(a, name) == before[0]
    for peer in peers:
        peer.drop()


@pytest.mark.parametrize("size", STREAMED)
@pytest.mark.parametrize("prefix", ["copied", "must"])
@pytest.mark.parametrize("consumer_at", ["A", "E"])
@pytest.mark.parametrize("anonymous", [True, False])
def test_edge_router_copies_streamed_messages_of_its_clients(
    edges: EdgeNetwork, prefix: str, consumer_at: str, size: int, anonymous: bool
) -> None:
    name = {"copied": "copies", "must": "musts"}[prefix]
    address, copies = edges.fresh(f"{prefix}/"), {"copied": "taps/copied", "must": "taps/must"}[prefix]
    a, e = edges.routers["A"], edges.routers["E"]
    before = counted(a, name), counted(e, name)
    tap, consumer = edges.connect("A").receiver(copies, 10), edges.connect(consumer_at).receiver(address, 10)
    sender = edges.connect("E").sender(None if anonymous else address, credit=False)
    sender.wait_credit(timeout=CONVERGENCE)
    poll(lambda: reaches(e, copies), "copies have a way", CONVERGENCE)
    number = sender.send(message.properties(to=address) + message.value("x" * size))
    original, copy = consumer.next(), tap.next()
    assert message.body(original.payload) == message.body(copy.payload) == "x" * size
    assert annotation(copy.payload, "x-opt-sluice.address") == address
    original.settle()
    if prefix == "must":
        original.link.peer.barrier()
        sender.peer.barrier()
        assert number not in sender.session.outcomes
    copy.settle()
    assert sender.outcome(number).name == "accepted"
    poll(lambda: counted(e, name) == before[1] + 1, "the message was selected at E")
    assert counted(a, name) == before[0]
    edges.drop()


@pytest.mark.parametrize("prefix", ["copied", "must"])
def test_edge_router_copies_messages_to_addresses_it_does_not_know(edges: EdgeNetwork, prefix: str) -> None:
    """A sender without a target names an address that only the interior router knows."""
    name = {"copied": "copies", "must": "musts"}[prefix]
    address, copies = edges.fresh(f"{prefix}/"), {"copied": "taps/copied", "must": "taps/must"}[prefix]
    before = counted(edges.routers["E"], name)
    tap, consumer = edges.connect("E").receiver(copies, 10), edges.connect("A").receiver(address, 10)
    sender = edges.connect("E").sender()
    number = sender.send(message.message("m", to=address))
    original, copy = consumer.next(), tap.next()
    assert annotation(copy.payload, "x-opt-sluice.address") == address
    original.settle()
    if prefix == "must":
        original.link.peer.barrier()
        sender.peer.barrier()
        assert number not in sender.session.outcomes
    copy.settle()
    assert sender.outcome(number).name == "accepted"
    poll(lambda: counted(edges.routers["E"], name) == before + 1, "the message was selected at E")
    assert RouterView(edges.routers["E"]).address(f"M0{address}") is None
    edges.drop()


def reaches(router: RouterProcess, address: str) -> bool:
    """Return True if a router has a consumer of an address, which may be the link to its interior router."""
    row = RouterView(router).address(f"M0{address}")
    return row is not None and row["subscriberCount"] > 0


def test_taps_change_under_load_without_losing_a_message(start: Start, workers: int) -> None:
    """Reloads add, change and remove taps. Each accepted message arrives once, in order; copies never twice."""
    (port,) = ports(1)
    without: list[Section] = [*interior("A", port), *SETTINGS]
    changes: list[list[Section]] = [
        [*without, ("tap", {"name": "t", "pattern": "load/#", "address": "taps/load"})],
        [*without, ("tap", {"name": "t", "pattern": "*/n", "address": "taps/load", "mode": "required"})],
        [*without, ("tap", {"name": "t", "pattern": "load/n", "address": "taps/other"})],
        without,
    ]
    a = start(without, workers)
    b = start([*interior("B", None, (port,)), *SETTINGS], workers)
    RouterView(a).wait_nodes(B=1)
    peer = AmqpPeer.opened(a.port)
    taps = [peer.receiver(address, 1000) for address in ("taps/load", "taps/other")]
    stop = threading.Event()
    copies: list[int] = []

    def take() -> None:
        while not stop.is_set():
            peer.idle_until(time.monotonic() + PAUSE)
            for tap in taps:
                while tap.taken < len(tap.deliveries) and tap.deliveries[tap.taken].complete:
                    delivery = tap.next()
                    copies.append(message.body(delivery.payload))
                    delivery.settle()
                    tap.flow(1000)

    taking = threading.Thread(target=take)
    taking.start()
    flow = MessageFlow(a, b, "load/n")
    management = Management(AmqpPeer.opened(a.port))
    flow.wait_more()
    for _ in range(3):
        for sections in changes:
            a.configure(sections)
            management.call("RELOAD")
            flow.wait_more()
    flow.stop()
    assert not flow.others, "no message was refused"
    stop.set()
    taking.join(CONVERGENCE)
    assert len(set(copies)) == len(copies)
    assert len(copies) > COUNT
    peer.drop()
    management.peer.drop()
