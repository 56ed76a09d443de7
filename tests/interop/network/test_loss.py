"""Loss of connections and routers (inter-router.md 2.5, 2.11, 7.6)."""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest

from tests.interop.network.conftest import MiddleNetwork
from tests.interop.network.net import CONVERGE, InteropNetwork, Sluice
from tests.peer import message
from tests.peer.links import PeerSender
from tests.peer.router19.connection import InterRouterConnection
from tests.peer.router19.router import Router19
from tests.system.router import poll

WORKER_COUNTS = (1, 3)
Fresh = Callable[..., str]


class DroppableNeighbour:
    """Neighbour X of 1.19 that connects to S and may be dropped."""

    def __init__(self, network: InteropNetwork, sluice: Sluice, name: str) -> None:
        self.sluice = sluice
        self.x: Router19 = network.router19(name)
        self.connection: InterRouterConnection = self.x.connect(sluice.ports["ir"])
        self.x.wait_reach(sluice.name)


@pytest.fixture
def neighbour(middle: MiddleNetwork, fresh: Fresh) -> DroppableNeighbour:
    """Third neighbour of router S of `middle`."""
    return DroppableNeighbour(middle.network, middle.s, fresh("loss").replace("/", "-"))


def drop(neighbour: DroppableNeighbour) -> None:
    """Drop the connection of the neighbour."""
    neighbour.x.world.call(neighbour.connection.drop)


def test_unsettled_delivery_to_lost_neighbour_is_modified(neighbour: DroppableNeighbour, fresh: Fresh) -> None:
    address = fresh("closest")
    consumer = neighbour.x.consumer(address, accept=False)
    neighbour.sluice.wait_remote(consumer.key, neighbour.x.id)
    sender = neighbour.sluice.client().sender(address)
    numbers = [sender.send(message.message(number)) for number in range(5)]
    consumer.wait_arrivals(5)
    drop(neighbour)
    for number in numbers:
        outcome = sender.outcome(number)
        assert outcome.name == "modified"
        assert outcome.state is not None
        assert outcome.state.value[0] is True


def test_delivery_in_transit_to_lost_neighbour_is_modified(
    middle: MiddleNetwork, neighbour: DroppableNeighbour, fresh: Fresh
) -> None:
    address = fresh("closest")
    consumer = neighbour.x.consumer(address, accept=False)
    middle.left.wait_key(consumer.key, neighbour.x.id)
    sent = middle.left.send(address, message.message("x"))

    def has_arrived() -> bool:
        # S may not know the path yet: it releases earlier messages.
        nonlocal sent
        if sent.settled:
            assert sent.outcome() == "released"
            sent = middle.left.send(address, message.message("x"))
        return bool(consumer.arrivals)

    poll(has_arrived, "the message is with the consumer")
    drop(neighbour)
    assert sent.outcome() == "modified"


def test_message_after_loss_is_released(neighbour: DroppableNeighbour, fresh: Fresh) -> None:
    """The address is still mapped to an unreachable router; messages are released instead of waiting."""
    address = fresh("closest")
    consumer = neighbour.x.consumer(address, accept=False)
    neighbour.sluice.wait_remote(consumer.key, neighbour.x.id)
    sender = neighbour.sluice.client().sender()
    drop(neighbour)
    poll(functools.partial(is_released, sender, address), "messages without a path are released")


def is_released(sender: PeerSender, address: str) -> bool:
    """True if a message to the address is released."""
    return sender.request(message.message("x", to=address)).name == "released"


def test_stream_from_lost_neighbour_is_aborted(neighbour: DroppableNeighbour, fresh: Fresh) -> None:
    address = fresh("closest")
    receiver = neighbour.sluice.client().receiver(address, credit=10)
    neighbour.x.wait_key("M0" + address, neighbour.sluice.name)
    neighbour.x.send(address, message.message("x" * 400_000)[:200_000], complete=False)
    got = receiver.next(complete=False)
    drop(neighbour)
    receiver.peer.until(lambda: got.aborted, "the aborted transfer")


def test_stream_to_lost_neighbour_is_released(neighbour: DroppableNeighbour, fresh: Fresh) -> None:
    """A queued or partly sent message is released, and settled after its last octet (routing-semantics.md 9.3)."""
    address = fresh("closest")
    consumer = neighbour.x.consumer(address)
    neighbour.sluice.wait_remote(consumer.key, neighbour.x.id)
    sender = neighbour.sluice.client().sender(address)
    whole = message.message("x" * 400_000)
    number = sender.send(whole[:200_000], more=True)
    consumer.wait_arrivals(1)
    drop(neighbour)
    assert sender.outcome(number, settled=False).name in ("released", "modified")
    sender.send(whole[200_000:])
    assert sender.outcome(number).settled


def test_message_from_lost_neighbour_is_delivered_once(neighbour: DroppableNeighbour, fresh: Fresh) -> None:
    address = fresh("closest")
    receiver = neighbour.sluice.client().receiver(address, credit=10)
    neighbour.x.wait_key("M0" + address, neighbour.sluice.name)
    sent = neighbour.x.send(address, message.message("x"))
    got = receiver.next()
    drop(neighbour)
    assert sent.outcome() == "modified"
    got.settle()
    receiver.peer.barrier()
    assert len(receiver.deliveries) == 1


@pytest.mark.timeout(60)
def test_connector_reconnects_after_loss(network: InteropNetwork, fresh: Fresh) -> None:
    x = network.router19("X")
    port = x.listen()
    sluice = network.sluice("S", to=[(port, 1)])
    network.wait_converged()
    address = fresh("closest")
    consumer = x.consumer(address)
    sluice.wait_remote(consumer.key, "X")
    first = x.wait_neighbour("S")
    network.world.call(first.drop)
    network.world.wait(
        lambda: (node := x.engine.nodes["S"]).connection is not None and node.connection is not first,
        "S has connected again",
        CONVERGE,
    )
    sender = sluice.client().sender(address)
    poll(lambda: sender.request(message.message("x")).name == "accepted", "messages are accepted again", CONVERGE)


@pytest.mark.timeout(60)
def test_connector_follows_failover_list(network: InteropNetwork) -> None:
    first, second = network.router19("X1"), network.router19("X2")
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
def test_lost_path_of_triangle_is_replaced_at_once(network: InteropNetwork, fresh: Fresh) -> None:
    """S reaches the consumer at Y directly, and through X after that connection is lost."""
    x, y = network.router19("X"), network.router19("Y")
    sluice = network.sluice("S")
    direct = y.connect(sluice.ports["ir"], 1)
    x.connect(sluice.ports["ir"], 2)
    x.connect(y.listen(), 2)
    network.wait_converged()
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
def test_partitioned_network_heals_after_restart(network: InteropNetwork, fresh: Fresh) -> None:
    x, far = network.router19("X"), network.router19("Y")
    port = x.listen()
    far.connect(port)
    sluice = network.sluice("S", to=[(port, 1)])
    network.wait_converged()
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
    again = network.router19("X", instance=x.instance + 100)
    again.listen(port)
    far.connect(port)
    poll(lambda: sender.request(message.message("after")).name == "accepted", "the partition has healed", CONVERGE)
    assert consumer.arrivals[-1].body == "after"


@pytest.mark.timeout(60)
def test_killed_router_rejoins_network(network: InteropNetwork, fresh: Fresh) -> None:
    """1.19 treats a killed and restarted router as a new one, and receives its new addresses."""
    x = network.router19("X")
    port = x.listen()
    sluice = network.sluice("S", to=[(port, 1)])
    network.wait_converged()
    before, after = fresh("closest"), fresh("closest")
    sluice.client().receiver(before, credit=10)
    x.wait_key("M0" + before, "S")
    instance = x.engine.nodes["S"].instance
    sluice.drop_peers()
    sluice.router.kill()
    network.world.wait(lambda: x.engine.nodes["S"].connection is None, "X has lost S", CONVERGE)
    again = network.sluice("S", to=[(port, 1)])
    receiver = again.client().receiver(after, credit=10)
    x.wait_key("M0" + after, "S", timeout=CONVERGE)
    assert x.engine.nodes["S"].instance != instance
    x.wait_key("M0" + before)
    sent = x.send(after, message.message("again"))
    receiver.next().settle()
    assert sent.outcome() == "accepted"
