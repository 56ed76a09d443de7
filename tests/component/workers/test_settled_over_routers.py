"""Presettled messages over other routers to a consumer with little credit: bounded in octets, without harm to other
clients."""

from types import SimpleNamespace

import pytest

import sluice.router.testing.engine as engine
from sluice.router.control import edge_properties
from tests.component.engine.host import InProcessRouter
from tests.component.engine.network import (
    EDGE,
    EDGE_LISTENER,
    IgnoringObserver,
    InProcessNetwork,
    RouterConnection,
    client,
)
from tests.peer.talk import consumer, flow, frames, message, messages, of, producer, start, transfer

OCTETS = 10_000  # octets of a message
MEGABYTES = 16
LIMIT = MEGABYTES << 20  # octets of messages that a connection may hold
LIMITS = f"maxBufferedMegabytes: {MEGABYTES}"
PRODUCERS = 8
ROUNDS = 400
EDGE_BOUND = LIMIT // 32 + 2 * OCTETS
#: Capacity of a producer's link: that many messages may be under way before any is tracked.
CAPACITY = 100
WAIT_SECONDS = 2


class PresettledSender:
    """Producer that spends all its credit on presettled messages to `slow`."""

    def __init__(self, router: InProcessRouter, *, steps_over: bool) -> None:
        """Connect to `router`.

        steps_over: skip each delivery-count divisible by sixteen by a flow, so that no checkpoint is ever sent.
        """
        self.peer = router.connect(0)
        self.peer.feed(start() + producer(0, "slow"))
        self.steps_over = steps_over
        self.limit = 0  # delivery-count at which the credit ends
        self.count = 0  # present delivery-count
        self.sent = 0

    def send(self, most: int, octets: int) -> None:
        for granted in of(frames(self.peer), "flow"):
            if granted.handle is not None:
                self.limit = int(granted.delivery_count) + int(granted.link_credit)
        batch = b""
        while most and self.count < self.limit:
            if self.steps_over and (self.count + 1) % 16 == 0:
                self.count += 1
                batch += flow(0, 0, delivery_count=self.count)
                continue
            batch += transfer(0, self.sent, message(bytes(octets)), settled=True)
            self.sent += 1
            self.count += 1
            most -= 1
        self.peer.feed(batch)


def announce_no_tracking(patch: pytest.MonkeyPatch) -> None:
    """Let routers announce no support for tracking presettled messages."""
    properties = {**vars(edge_properties), "CHECKS": "nothing"}
    patch.setattr("sluice.workers.connections.open_properties.edge_properties", SimpleNamespace(**properties))


def build_network(patch: pytest.MonkeyPatch, workers: int) -> InProcessNetwork:
    """Return two interior routers, and an edge router at the second one."""
    network = InProcessNetwork(
        "AB", workers, monkeypatch=patch, listener=f"linkCapacity: {CAPACITY}\n{LIMITS}", between=LIMITS,
        more=EDGE_LISTENER.replace("role:", f"{LIMITS}\n    role:"),
    )  # fmt: skip
    network.join("A", "B")
    edge = network.routers["E"] = InProcessRouter(1, EDGE)
    (uplink,) = edge.configuration.connectors
    up = edge.initiate(0, uplink, IgnoringObserver()), network["B"].connect(workers - 1, "edges")
    network.joints.append(RouterConnection(network, *up))
    network.pass_seconds(WAIT_SECONDS)
    return network


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(
    ("place", "steps_over", "old"),
    [("E", False, True), ("E", False, False), ("E", True, False), ("A", False, False), ("A", True, False)],
)
@pytest.mark.parametrize("octets", [OCTETS, 1000])
def test_slow_consumer_of_presettled_messages_delays_no_other_client(
    place, steps_over, old, octets, workers
) -> None:  # fmt: skip
    """old: the edge router and its interior router do not know that the other end tracks presettled messages."""
    # Chunks have room for up to twice their octets, and the uplink's own queues come on top.
    bound = 2 * (EDGE_BOUND if old else LIMIT // 4 + PRODUCERS * OCTETS)
    with pytest.MonkeyPatch.context() as patch:
        if old:
            announce_no_tracking(patch)
        network = build_network(patch, workers)
        try:
            receiving = client(network, "B", consumer(0, "slow", 1))
            healthy = client(network, "B", consumer(0, "healthy"))
            network.pass_seconds(WAIT_SECONDS)
            senders = [PresettledSender(network[place], steps_over=steps_over) for _ in range(PRODUCERS)]
            sending = client(network, place, producer(0, "healthy"))
            network.pass_seconds(WAIT_SECONDS)
            frames(healthy)
            before = engine.live_objects()[2]
            taken = 0
            for number in range(ROUNDS):
                for sender in senders:
                    sender.send(20, octets)
                if number % 20 == 0:
                    taken += len(messages(frames(receiving)))
                    receiving.feed(flow(0, 1, delivery_count=taken))
                    sending.feed(transfer(0, number // 20, message(b"%d" % number)))
                    network.settle()
                    assert messages(frames(healthy)) == [message(b"%d" % number)]
                network.settle()
                assert engine.live_objects()[2] - before <= bound
            assert all(sender.sent >= CAPACITY for sender in senders)
            if old:
                assert sum(sender.sent for sender in senders) > 10 * EDGE_BOUND / OCTETS
        finally:
            network.close()


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(
    ("sends", "receives", "old"),
    [
        *[("E", "B", False), ("E", "A", False), ("B", "E", False), ("A", "E", False)],
        *[("E", "B", True), ("B", "E", True), ("A", "E", True)],
    ],
)
def test_consumer_with_credit_loses_no_presettled_message(sends, receives, old, workers) -> None:
    """The producer waits for the consumer, even over an edge connection, unless its ends lack support (`old`)."""
    total = 4000
    with pytest.MonkeyPatch.context() as patch:
        if old:
            announce_no_tracking(patch)
        network = build_network(patch, workers)
        try:
            receiving = client(network, receives, consumer(0, "slow", 1))
            network.pass_seconds(WAIT_SECONDS)
            sender = PresettledSender(network[sends], steps_over=False)
            network.pass_seconds(WAIT_SECONDS)
            received: list[bytes] = []
            for _ in range(800):
                sender.send(min(200, total - sender.sent), 1000)
                network.settle()
                received += messages(frames(receiving))
                receiving.feed(flow(0, 10, delivery_count=len(received)))
                network.settle()
            received += messages(frames(receiving))
            assert sender.sent == total
            assert (len(received) == total) != old
        finally:
            network.close()
