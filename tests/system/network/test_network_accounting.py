"""Accounting in networks: each delivery of a client ends in one counted way, over several routers and link routes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial

import pytest

from tests.peer import message
from tests.peer.container import Container
from tests.peer.frames import RELEASED
from tests.peer.links import PeerReceiver, PeerSender
from tests.peer.management import Management
from tests.peer.peer import AmqpPeer
from tests.system.counters import Counters
from tests.system.fixtures import Start
from tests.system.links.test_link_routes import BOTH, KIND, receiving, sending
from tests.system.network.broker_network import BrokerNetwork
from tests.system.router import poll

COUNT = 5
LINK_ROUTES = ("ingress", "egress", "transit")
LONG_TAG = b"t" * 33  # AMQP allows 32 octets for a delivery tag
STREAM = message.data(bytes(400_000))


@pytest.fixture
def network(start: Start, workers: int, peers: list[AmqpPeer]) -> BrokerNetwork:
    return BrokerNetwork(start, workers, peers)


@pytest.fixture
def open_counters(network: BrokerNetwork) -> Iterator[Callable[[str], Counters]]:
    """Return a function that opens the counters of a router."""
    with ExitStack() as stack:
        yield lambda name: stack.enter_context(Counters(network.routers[name]))


def test_link_route_delivery_to_a_router_counts_as_transit(
    network: BrokerNetwork, open_counters: Callable[[str], Counters]
) -> None:
    network.start_chain("ABC", {"C": BOTH})
    broker = network.broker("C")
    for name in "AB":
        for key in ("Cq", "Dq"):
            network.wait_announced(name, key, "C")
    client = network.client("A")
    sender, end = sending(broker, client)
    receiver, back = receiving(broker, client)
    counters = {name: open_counters(name) for name in "ABC"}
    before = {name: counters[name].totals() for name in "ABC"}
    send_settled_one_by_one(sender, end)
    expected = {name: dict.fromkeys(LINK_ROUTES, 0) for name in "ABC"}
    for name, way in (("A", "transit"), ("B", "transit"), ("C", "egress")):
        expected[name]["ingress"] += COUNT
        expected[name][way] += COUNT
    check_growth(counters, before, expected)
    send_settled_one_by_one(back, receiver)
    for name, way in (("C", "transit"), ("B", "transit"), ("A", "egress")):
        expected[name]["ingress"] += COUNT
        expected[name][way] += COUNT
    check_growth(counters, before, expected)


def send_settled_one_by_one(sender: PeerSender, receiver: PeerReceiver) -> None:
    """Send COUNT deliveries and settle each before the next."""
    for number in range(COUNT):
        sent = sender.send(message.message(number))
        receiver.next().settle()
        assert sender.outcome(sent).name == "accepted"


def check_growth(
    counters: dict[str, Counters], before: dict[str, dict[str, int]], expected: dict[str, dict[str, int]]
) -> None:
    for name, wanted in expected.items():
        grown = counters[name].wait_balance(before[name])
        assert {way: grown[way] for way in LINK_ROUTES} == wanted, name


def test_ingress_counts_only_at_the_first_router(
    network: BrokerNetwork, open_counters: Callable[[str], Counters]
) -> None:
    network.start_chain("AB")
    receiver = network.client("B").receiver("a", 100)
    sender = network.client("A").sender("a", wait=True)
    network.wait_announced("A", "M0a", "B")
    counters = {name: open_counters(name) for name in "AB"}
    before = {name: counters[name].totals() for name in "AB"}
    numbers = [sender.send(message.message(number)) for number in range(2 * COUNT)]
    for _ in range(COUNT):
        sender.send(message.message("settled"), settled=True)
    deliveries = receiver.receive(3 * COUNT)
    for delivery in deliveries[:COUNT]:
        delivery.settle()
    for delivery in deliveries[COUNT : 2 * COUNT]:
        delivery.settle(RELEASED)
    assert {sender.outcome(number).name for number in numbers[:COUNT]} == {"accepted"}
    assert {sender.outcome(number).name for number in numbers[COUNT:]} == {"released"}
    # Send a streamed message that its producer does not finish.
    sender.send(STREAM[:200_000], more=True)
    receiver.next(complete=False)
    sender.peer.drop()
    grown = counters["A"].wait_balance(before["A"])
    ends = ("ended_accepted", "ended_released", "presettled", "dropped.producerLost")
    assert [grown[name] for name in ("ingress", "transit", *ends)] == [3 * COUNT + 1] * 2 + [COUNT] * 3 + [1]
    grown = counters["B"].wait_balance(before["B"])
    assert [grown[name] for name in ("ingress", "egress", *ends)] == [0, 3 * COUNT + 1, 0, 0, 0, 0]
    # Dispatch 1.19 counts these at the egress router, too.
    assert (grown["accepted"], grown["released"]) == (COUNT, COUNT)


@pytest.mark.parametrize("names", ["AB", "ABC"])
@pytest.mark.parametrize("leaves", [False, True], ids=["stays", "leaves"])
def test_presettled_messages_count_as_presettled_on_all_links(
    network: BrokerNetwork, open_counters: Callable[[str], Counters], names: str, leaves: bool
) -> None:
    """Checkpoints cross inter-router links unsettled (decision 0013), but no link counts them as accepted or
    released."""
    network.start_chain(names)
    last = names[-1]
    receiver = network.client(last).receiver("a", 50 if leaves else 1000)
    sender = network.client("A").sender("a", wait=True)
    network.wait_announced("A", "M0a", last)
    counters = {name: open_counters(name) for name in names}
    before = {name: counters[name].totals() for name in names}
    octets = message.data(bytes(5000))  # presettled messages of 4096 octets or more are all checkpoints
    for number in range(200):
        sender.send(octets if number % 2 else message.message("x"), settled=True)
    receiver.receive(50 if leaves else 200)
    if leaves:
        receiver.detach()
    for name in names:
        counters[name].wait_balance(before[name])

    def between(name: str) -> list[dict[str, int]]:
        return [
            row
            for row in Management(network.client(name)).query("router.link")
            if row["linkType"] == "inter-router" and row["deliveryCount"]
        ]

    def settled_at(name: str) -> bool:
        return not any(row["unsettledCount"] for row in between(name))

    for name in names:
        poll(partial(settled_at, name), f"all settled at {name}")
        for row in between(name):
            ends = [row[f"{end}Count"] for end in ("accepted", "rejected", "released", "modified")]
            assert (ends, row["presettledCount"]) == ([0] * 4, row["deliveryCount"]), (name, row["linkDir"])


def accept(sender: PeerSender, end: PeerReceiver) -> None:
    sender.send(message.message("x"))
    end.next().settle()


def send_presettled(sender: PeerSender, end: PeerReceiver) -> None:
    sender.send(message.message("x"), settled=True)
    end.next()


def abort(sender: PeerSender, end: PeerReceiver) -> None:
    sender.send(STREAM[:100_000], more=True)
    end.next(complete=False)
    sender.send(b"", aborted=True)


def accept_before_last_octet(sender: PeerSender, end: PeerReceiver) -> None:
    """Settle a delivery before its last octet is sent."""
    sender.send(STREAM[:100_000], more=True)
    end.next(complete=False).settle()
    sender.peer.until(lambda: sender.session.outcomes, "the outcome")
    sender.send(STREAM[100_000:])


def settle_with_last_frame(sender: PeerSender, end: PeerReceiver) -> None:
    sender.send(STREAM[:100_000], more=True)
    delivery = end.next(complete=False)
    sender.send(STREAM[100_000:], settled=True)
    end.peer.until(lambda: delivery.complete, "the rest")


def send_long_tag(sender: PeerSender, _end: PeerReceiver) -> None:
    sender.send(message.message("x"), tag=LONG_TAG)


def send_long_tag_presettled(sender: PeerSender, _end: PeerReceiver) -> None:
    sender.send(message.message("x"), tag=LONG_TAG, settled=True)


def leave_unsettled(sender: PeerSender, end: PeerReceiver) -> None:
    sender.send(message.message("x"))
    end.next()


def leave_unfinished(sender: PeerSender, end: PeerReceiver) -> None:
    sender.send(STREAM[:100_000], more=True)
    end.next(complete=False)


ROUTED_DELIVERIES = {
    accept: "ended_accepted",
    send_presettled: "presettled",
    abort: "dropped.producerLost",
    accept_before_last_octet: "ended_accepted",
    settle_with_last_frame: "presettled",
    send_long_tag: "ended_rejected",
    send_long_tag_presettled: "presettled",
    leave_unsettled: "settled_no_state",
    leave_unfinished: "dropped.producerLost",
}


def active_states(agent: Management) -> set[bool]:
    """Return the states of the link routes: True for active ones, False for those without a container."""
    return {row["operStatus"] == "active" for row in agent.query(KIND)}


@pytest.mark.parametrize("away", ["sender", "container"])
def test_delivery_on_link_route_is_counted_once(
    network: BrokerNetwork, open_counters: Callable[[str], Counters], away: str
) -> None:
    network.add("A", sections=BOTH)
    agent = network.management("A")
    counters = open_counters("A")
    broker: Container | None = None
    for deliver, counter in ROUTED_DELIVERIES.items():
        if broker is None:
            broker = network.broker("A")
            poll(lambda: active_states(agent) == {True}, "link routes are active")
        client = network.client("A")
        sender, end = sending(broker, client)
        before = counters.totals()
        deliver(sender, end)
        poll(lambda before=before: counters.since(before)["ingress"] == 1, f"{deliver.__name__}: it has come")  # type: ignore[misc]
        if not deliver.__name__.startswith("leave"):
            counters.wait_balance(before)
        if away == "container":
            broker.drop()
        client.drop()
        grown = counters.wait_balance(before)
        assert (grown["ingress"], grown[counter]) == (1, 1), deliver.__name__
        if away == "container":
            broker = None
            # Requests of the poll are counted, too.
            poll(lambda: active_states(agent) == {False}, "link routes are not active")
