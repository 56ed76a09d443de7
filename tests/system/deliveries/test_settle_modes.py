"""Attach field rcv-settle-mode at both ends: order of settlement, and its notification (routing-semantics.md 9.2, A-1;
decision 0061)."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from proton import Message
from proton.utils import BlockingConnection

from tests.peer import message
from tests.peer.frames import ACCEPTED, RELEASED, modified, rejected, state_name
from tests.peer.links import PeerDelivery, PeerOutcome, PeerReceiver, PeerSender
from tests.peer.types import Described
from tests.system.edges import EdgeNetwork, edge, with_edges
from tests.system.fixtures import FIRST, SECOND
from tests.system.networks import CONVERGENCE
from tests.system.router import SETTINGS, RouterProcess, Section

WORKER_COUNTS = (1, 3)
STATES: dict[str, Described] = {
    "accepted": ACCEPTED,
    "rejected": rejected("my:condition", "a description"),
    "released": RELEASED,
    "modified": modified(True, True),
}
#: Routers of the producer and of the consumer. A and B are interior routers, E and F edge routers connected to them.
PLACES = [("A", "A"), ("A", "B"), ("E", "E"), ("E", "A"), ("A", "E"), ("E", "F")]
NAMES = ["-".join(place) for place in PLACES]
BURST = 300


@pytest.fixture(scope="module")
def _network(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EdgeNetwork]:
    site = EdgeNetwork()

    def start(name: str, sections: list[Section]) -> RouterProcess:
        router = site.routers[name] = RouterProcess(
            tmp_path_factory.mktemp(f"router{name}-"), [*sections, *SETTINGS], request.param
        )
        router.start()
        return router

    try:
        a = start("A", with_edges("A"))
        b = start("B", with_edges("B", a.ports["net"]))
        start("E", edge("E", a))
        start("F", edge("F", b))
        site.wait_reached("E", "F")
        yield site
    finally:
        for router in site.routers.values():
            router.stop()


@pytest.fixture
def network(_network: EdgeNetwork, request: pytest.FixtureRequest) -> Iterator[EdgeNetwork]:
    """Routers A, B, E and F, shared by the module."""
    request.node.routers = list(_network.routers.values())
    yield _network
    _network.drop()


def attach_ends(
    network: EdgeNetwork, place: tuple[str, str], into: int, out: int, credit: int = 10
) -> tuple[PeerSender, PeerReceiver]:
    """Attach a sender with mode `into` and a receiver with mode `out` to a new address."""
    address = network.fresh("balanced/")
    receiver = network.connect(place[1]).receiver(address, credit, rcv_settle_mode=out)
    sender = network.connect(place[0]).sender(address, credit=False, rcv_settle_mode=into)
    sender.wait_credit(timeout=CONVERGENCE)
    return sender, receiver


def wait_settled(receiver: PeerReceiver, delivery: PeerDelivery) -> PeerOutcome:
    """Wait until the router has settled towards the consumer, and return the outcome."""
    settled = receiver.session.remote_settled
    receiver.peer.until(lambda: delivery.id in settled and settled[delivery.id].settled, "settlement at the consumer")
    return settled[delivery.id]


def test_attach_is_answered_with_the_same_modes(network: EdgeNetwork) -> None:
    for mode in (FIRST, SECOND):
        for link in attach_ends(network, ("A", "A"), mode, mode):
            assert link.remote is not None
            assert (link.remote.rcv_settle_mode or 0) == mode


@pytest.mark.parametrize("name", STATES)
@pytest.mark.parametrize("place", PLACES, ids=NAMES)
def test_consumer_second_producer_first(network: EdgeNetwork, place: tuple[str, str], name: str) -> None:
    """The router settles towards both ends when the outcome arrives."""
    sender, receiver = attach_ends(network, place, FIRST, SECOND)
    before = sender.wait_credit()
    number = sender.send(message.message("x"))
    delivery = receiver.next()
    delivery.settle(STATES[name], settled=False)
    outcome = sender.outcome(number)
    assert outcome.name == name
    if name == "rejected":
        assert outcome.error == ("my:condition", "a description")
    assert wait_settled(receiver, delivery).name in (name, None if name in ("rejected", "modified") else name)
    sender.wait_credit(before)


@pytest.mark.parametrize("name", STATES)
@pytest.mark.parametrize("place", PLACES, ids=NAMES)
def test_consumer_second_producer_second(network: EdgeNetwork, place: tuple[str, str], name: str) -> None:
    """The router relays the outcome and the settlement: the producer settles first, then the consumer is notified."""
    sender, receiver = attach_ends(network, place, SECOND, SECOND)
    number = sender.send(message.message("x"))
    delivery = receiver.next()
    delivery.settle(STATES[name], settled=False)
    outcome = sender.outcome(number, settled=False)
    sender.peer.barrier()
    receiver.peer.barrier()
    assert (outcome.name, outcome.settled) == (name, False)
    assert delivery.id not in receiver.session.remote_settled
    sender.settle(number, STATES[name])
    assert wait_settled(receiver, delivery).name == name


@pytest.mark.parametrize("mode", [FIRST, SECOND], ids=["first", "second"])
@pytest.mark.parametrize("name", STATES)
@pytest.mark.parametrize("place", PLACES, ids=NAMES)
def test_consumer_first_ends_the_delivery(network: EdgeNetwork, place: tuple[str, str], name: str, mode: int) -> None:
    """A consumer that settles at once ends the delivery in both modes of the producer."""
    sender, receiver = attach_ends(network, place, mode, FIRST)
    number = sender.send(message.message("x"))
    receiver.next().settle(STATES[name])
    assert sender.outcome(number).name == name


@pytest.mark.parametrize("place", PLACES, ids=NAMES)
def test_burst_to_second_mode_consumer_settles_each_delivery_once(network: EdgeNetwork, place: tuple[str, str]) -> None:
    sender, receiver = attach_ends(network, place, FIRST, SECOND, credit=BURST)
    numbers = []
    for number in range(BURST):
        sender.wait_credit()
        numbers.append(sender.send(message.message(number)))
        if len(numbers) % 100 == 0:
            deliveries = receiver.receive(100)
            receiver.session.disposition(deliveries[0].id, deliveries[-1].id, ACCEPTED, settled=False)
    for number in numbers:
        outcome = sender.outcome(number)
        assert outcome.name == "accepted"
        assert len([step for step in outcome.steps if step[1]]) == 1, "settled twice"
    for delivery in receiver.deliveries:
        assert wait_settled(receiver, delivery).name == "accepted"


@pytest.mark.parametrize("place", PLACES, ids=NAMES)
def test_multicast_consumer_in_second_mode_is_settled(network: EdgeNetwork, place: tuple[str, str]) -> None:
    """Outcome and settlement are sent when all consumers have an outcome."""
    address = network.fresh("multicast/")
    second = network.connect(place[1]).receiver(address, 10, rcv_settle_mode=SECOND)
    others = [network.connect(place[1]).receiver(address, 10) for _ in range(2)]
    sender = network.connect(place[0]).sender(address, credit=False)
    sender.wait_credit(timeout=CONVERGENCE)
    number = sender.send(message.message("x"))
    delivery = second.next()
    delivery.settle(ACCEPTED, settled=False)
    for other in others:
        other.next().settle()
    assert sender.outcome(number).name == "accepted"
    assert wait_settled(second, delivery).name in (None, "accepted")


@pytest.mark.parametrize("place", PLACES, ids=NAMES)
def test_producer_lost_before_its_settlement_gives_modified(network: EdgeNetwork, place: tuple[str, str]) -> None:
    """After its relayed outcome the consumer gets `modified`, because its settlement reaches no producer."""
    sender, receiver = attach_ends(network, place, SECOND, SECOND)
    number = sender.send(message.message("x"))
    delivery = receiver.next()
    delivery.settle(ACCEPTED, settled=False)
    sender.outcome(number, settled=False)
    sender.peer.drop()
    assert wait_settled(receiver, delivery).name == "modified"


@pytest.mark.parametrize("mode", [FIRST, SECOND], ids=["first", "second"])
@pytest.mark.parametrize("place", PLACES, ids=NAMES)
def test_producer_lost_before_the_outcome_leaves_it_accepted(
    network: EdgeNetwork, place: tuple[str, str], mode: int
) -> None:
    """Without a producer the outcome is settled when it arrives."""
    sender, receiver = attach_ends(network, place, mode, SECOND)
    sender.send(message.message("x"))
    delivery = receiver.next()
    sender.detach()
    delivery.settle(ACCEPTED, settled=False)
    assert wait_settled(receiver, delivery).name == "accepted"


@pytest.mark.parametrize("place", PLACES, ids=NAMES)
def test_outcome_before_the_last_octet_is_settled_at_the_end(network: EdgeNetwork, place: tuple[str, str]) -> None:
    sender, receiver = attach_ends(network, place, FIRST, SECOND)
    part = message.data(bytes(400_000))
    number = sender.send(part, more=True)
    delivery = receiver.next(complete=False)
    delivery.settle(ACCEPTED, settled=False)
    assert not sender.outcome(number, settled=False).settled
    sender.send(message.data(b"end"))
    assert sender.outcome(number).name == "accepted"
    receiver.peer.until(lambda: delivery.complete, "the last octet")
    receiver.peer.until(
        lambda: delivery.settled or delivery.id in receiver.session.remote_settled, "settlement at the consumer"
    )


def test_second_settlement_by_consumer_is_absorbed(network: EdgeNetwork) -> None:
    """A second settlement by a consumer whose delivery is settled already is absorbed."""
    sender, receiver = attach_ends(network, ("A", "A"), FIRST, SECOND)
    number = sender.send(message.message("x"))
    delivery = receiver.next()
    delivery.settle(ACCEPTED, settled=False)
    wait_settled(receiver, delivery)
    delivery.settle(RELEASED)
    receiver.peer.barrier()
    assert sender.outcome(number).name == "accepted"
    assert [state_name(state) for state, _settled in sender.outcome(number).steps] == ["accepted"]


@pytest.mark.parametrize("place", [("A", "A"), ("A", "B")], ids=["A-A", "A-B"])
def test_blocking_sender_of_proton_returns_after_settlement(network: EdgeNetwork, place: tuple[str, str]) -> None:
    """Proton's BlockingSender returns from `send` once the delivery is settled."""
    address = network.fresh("balanced/")
    receiver = network.connect(place[1]).receiver(address, 10, rcv_settle_mode=SECOND)
    connection = BlockingConnection(
        f"127.0.0.1:{network.routers[place[0]].port}", timeout=CONVERGENCE, allowed_mechs="ANONYMOUS"
    )
    try:
        sender = connection.create_sender(address)
        returned = threading.Thread(target=lambda: sender.send(Message(body="x"), timeout=CONVERGENCE))
        returned.start()
        delivery = receiver.next(CONVERGENCE)
        delivery.settle(ACCEPTED, settled=False)
        assert wait_settled(receiver, delivery).name == "accepted"
        returned.join(CONVERGENCE)
        assert not returned.is_alive()
    finally:
        connection.close()
