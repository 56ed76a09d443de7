"""Connections and routers that are lost (inter-router.md 2.5, 2.11, 7.6; issue of the network)."""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest

from tests.interop.network.conftest import Middle
from tests.interop.network.net import CONVERGE, Network, Sluice
from tests.peer import message
from tests.peer.peer import PeerSender
from tests.peer.router19.connection import InterRouterConnection
from tests.peer.router19.router import Router19
from tests.system.router import poll

WORKER_COUNTS = (1, 3)
Fresh = Callable[..., str]


class Pair:
    """S with a neighbour X of 1.19 that connects to it, and may be dropped."""

    def __init__(self, network: Network, sluice: Sluice, name: str) -> None:
        self.sluice = sluice
        self.x: Router19 = network.original(name)
        self.connection: InterRouterConnection = self.x.connect(sluice.ports["ir"])
        self.x.wait_reach(sluice.name)


@pytest.fixture
def pair(middle: Middle, fresh: Fresh) -> Pair:
    """A third neighbour for S of the middle."""
    return Pair(middle.network, middle.s, fresh("loss").replace("/", "-"))


def drop(pair: Pair) -> None:
    """Cut the connection."""
    pair.x.world.call(pair.connection.drop)


def test_what_was_sent_and_not_settled_is_modified(pair: Pair, fresh: Fresh) -> None:
    address = fresh("closest")
    consumer = pair.x.consumer(address, accept=False)
    pair.sluice.wait_remote(consumer.key, pair.x.id)
    sender = pair.sluice.client().sender(address)
    numbers = [sender.send(message.message(number)) for number in range(5)]
    consumer.wait_arrivals(5)
    drop(pair)
    for number in numbers:
        outcome = sender.outcome(number)
        assert outcome.name == "modified"
        assert outcome.state is not None
        assert outcome.state.value[0] is True


def test_what_passed_on_the_way_is_modified_for_1_19(middle: Middle, pair: Pair, fresh: Fresh) -> None:
    address = fresh("closest")
    consumer = pair.x.consumer(address, accept=False)
    middle.left.wait_key(consumer.key, pair.x.id)
    sent = middle.left.send(address, message.message("x"))

    def on_its_way() -> bool:
        # The router between both may still learn the way: what comes before is released.
        nonlocal sent
        if sent.settled:
            assert sent.outcome() == "released"
            sent = middle.left.send(address, message.message("x"))
        return bool(consumer.arrivals)

    poll(on_its_way, "the message is with the consumer")
    drop(pair)
    assert sent.outcome() == "modified"


def test_what_comes_after_is_released(pair: Pair, fresh: Fresh) -> None:
    """The address stays mapped to a router that cannot be reached; nothing hangs."""
    address = fresh("closest")
    consumer = pair.x.consumer(address, accept=False)
    pair.sluice.wait_remote(consumer.key, pair.x.id)
    sender = pair.sluice.client().sender()
    drop(pair)
    poll(functools.partial(released, sender, address), "what has no way is released")


def released(sender: PeerSender, address: str) -> bool:
    """Whether a message is released."""
    return sender.request(message.message("x", to=address)).name == "released"


def test_a_stream_from_a_lost_neighbour_is_aborted(pair: Pair, fresh: Fresh) -> None:
    address = fresh("closest")
    receiver = pair.sluice.client().receiver(address, credit=10)
    pair.x.wait_key("M0" + address, pair.sluice.name)
    pair.x.send(address, message.message("x" * 400_000)[:200_000], complete=False)
    got = receiver.next(complete=False)
    drop(pair)
    receiver.peer.until(lambda: got.aborted, "the abortion")


def test_a_stream_to_a_lost_neighbour_is_released(pair: Pair, fresh: Fresh) -> None:
    """routing-semantics.md 9.3: queued, or sent in part: released, settled when its last octet has come."""
    address = fresh("closest")
    consumer = pair.x.consumer(address)
    pair.sluice.wait_remote(consumer.key, pair.x.id)
    sender = pair.sluice.client().sender(address)
    whole = message.message("x" * 400_000)
    number = sender.send(whole[:200_000], more=True)
    consumer.wait_arrivals(1)
    drop(pair)
    assert sender.outcome(number, settled=False).name in ("released", "modified")
    sender.send(whole[200_000:])
    assert sender.outcome(number).settled


def test_messages_in_flight_from_a_lost_neighbour_are_delivered_once(pair: Pair, fresh: Fresh) -> None:
    address = fresh("closest")
    receiver = pair.sluice.client().receiver(address, credit=10)
    pair.x.wait_key("M0" + address, pair.sluice.name)
    sent = pair.x.send(address, message.message("x"))
    got = receiver.next()
    drop(pair)
    assert sent.outcome() == "modified"
    got.settle()
    receiver.peer.barrier()
    assert len(receiver.deliveries) == 1


@pytest.mark.timeout(60)
def test_a_connector_comes_back(network: Network, fresh: Fresh) -> None:
    x = network.original("X")
    port = x.listen()
    sluice = network.sluice("S", to=[(port, 1)])
    network.converged()
    address = fresh("closest")
    consumer = x.consumer(address)
    sluice.wait_remote(consumer.key, "X")
    first = x.wait_neighbour("S")
    network.world.call(first.drop)
    network.world.wait(
        lambda: (node := x.engine.nodes["S"]).connection is not None and node.connection is not first,
        "it has connected again",
        CONVERGE,
    )
    sender = sluice.client().sender(address)
    poll(lambda: sender.request(message.message("x")).name == "accepted", "traffic goes again", CONVERGE)


@pytest.mark.timeout(60)
def test_a_connector_follows_the_failover_list(network: Network) -> None:
    first, second = network.original("X1"), network.original("X2")
    first.failover = [{"network-host": "127.0.0.1", "port": str(second.listen())}]
    sluice = network.sluice("S", to=[(first.listen(), 1)])
    first.wait_neighbour("S", CONVERGE)
    first.stop()
    second.wait_neighbour("S", CONVERGE)
    sluice.wait_rows(
        "router.node",
        lambda rows: next(row["linkState"] for row in rows if row["id"] == "S") == ["X2"],
        "the second is the neighbour",
    )


@pytest.mark.timeout(60)
def test_a_lost_path_of_a_triangle_is_replaced_at_once(network: Network, fresh: Fresh) -> None:
    """S reaches the consumer at Y directly; when that connection is lost, through X."""
    x, y = network.original("X"), network.original("Y")
    sluice = network.sluice("S")
    direct = y.connect(sluice.ports["ir"], 1)
    x.connect(sluice.ports["ir"], 2)
    x.connect(y.listen(), 2)
    network.converged()
    sluice.wait_rows("router.node", lambda rows: all(len(row["linkState"]) == 2 for row in rows), "a triangle")
    address = fresh("closest")
    consumer = y.consumer(address)
    sluice.wait_remote(consumer.key, "Y")
    sender = sluice.client().sender(address)
    assert sender.request(message.message("direct")).name == "accepted"
    network.world.call(direct.drop)
    poll(lambda: sender.request(message.message("round")).name == "accepted", "the other path", 5)
    bodies = [one.body for one in consumer.arrivals]
    assert bodies == ["direct", "round"]
    assert (sluice.node("Y") or {})["nextHop"] == "X"
    assert (sluice.node("Y") or {})["cost"] == 4


@pytest.mark.timeout(60)
def test_a_partition_heals(network: Network, fresh: Fresh) -> None:
    x, far = network.original("X"), network.original("Y")
    port = x.listen()
    far.connect(port)
    sluice = network.sluice("S", to=[(port, 1)])
    network.converged()
    address = fresh("closest")
    consumer = far.consumer(address)
    sluice.wait_remote(consumer.key, "Y")
    sender = sluice.client().sender(address)
    assert sender.request(message.message("before")).name == "accepted"
    x.stop()
    sluice.wait_rows(
        "router.node",
        lambda rows: next(row["linkState"] for row in rows if row["id"] == "S") == [],
        "no neighbour",
    )
    again = network.original("X", instance=x.instance + 100)
    again.listen(port)
    far.connect(port)
    poll(lambda: sender.request(message.message("after")).name == "accepted", "the network is whole again", CONVERGE)
    assert consumer.arrivals[-1].body == "after"


@pytest.mark.timeout(60)
def test_a_killed_router_rejoins(network: Network, fresh: Fresh) -> None:
    """Ours is killed and started again: 1.19 takes it for a new one, and gets its new addresses."""
    x = network.original("X")
    port = x.listen()
    sluice = network.sluice("S", to=[(port, 1)])
    network.converged()
    before, after = fresh("closest"), fresh("closest")
    sluice.client().receiver(before, credit=10)
    x.wait_key("M0" + before, "S")
    instance = x.engine.nodes["S"].instance
    sluice.drop_peers()
    sluice.router.kill()
    network.world.wait(lambda: x.engine.nodes["S"].connection is None, "it is lost", CONVERGE)
    again = network.sluice("S", to=[(port, 1)])
    receiver = again.client().receiver(after, credit=10)
    x.wait_key("M0" + after, "S", timeout=CONVERGE)
    assert x.engine.nodes["S"].instance != instance
    x.wait_key("M0" + before)
    sent = x.send(after, message.message("again"))
    receiver.next().settle()
    assert sent.outcome() == "accepted"
