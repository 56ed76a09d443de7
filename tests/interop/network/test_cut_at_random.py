"""Connections cut at random under load: no acknowledged message is lost, and only a lost outcome causes a duplicate.

The network is a diamond: routers S1 and S2 under test, with T1 and T2 of 1.19 between them.
"""

from __future__ import annotations

import random
import select

import pytest

from tests.interop.network.net import CONVERGE, InteropNetwork, Sluice
from tests.peer import message
from tests.peer.links import PeerReceiver, PeerSender
from tests.peer.router19.router import Router19

#: Total number of messages, maximum in flight, and number acknowledged between two cuts.
COUNT, WINDOW, BETWEEN = 3000, 50, 300


class DiamondNetwork:
    """Diamond S1 - (T1, T2) - S2."""

    def __init__(self, network: InteropNetwork) -> None:
        self.world = network.world
        self.s1: Sluice = network.sluice("S1")
        self.s2: Sluice = network.sluice("S2")
        self.middle: list[Router19] = [network.router19(name) for name in ("T1", "T2")]
        for router19 in self.middle:
            for sluice in (self.s1, self.s2):
                router19.connect(sluice.ports["ir"])
        network.wait_converged()
        for router19 in self.middle:
            self.wait_connected(router19)

    def wait_connected(self, router19: Router19) -> None:
        """Wait until a router in the middle and both its neighbours know each other."""
        self.world.wait(
            lambda: all(
                (node := router19.engine.nodes.get(name)) and node.connection is not None and router19.id in node.peers
                for name in ("S1", "S2")
            ),
            f"{router19.id} is whole",
            CONVERGE,
        )

    def cut_and_reconnect(self, router19: Router19, sluice: Sluice) -> None:
        """Drop a connection of a router in the middle, and connect again."""
        connection = router19.wait_neighbour(sluice.name)
        self.world.call(connection.drop)
        router19.connect(sluice.ports["ir"])


class RetryingLoad:
    """Load generator that sends numbers until each is accepted; released and modified messages are sent again."""

    def __init__(self, sender: PeerSender, receiver: PeerReceiver) -> None:
        self.sender, self.receiver = sender, receiver
        self.waiting = list(range(COUNT))
        self.under_way: dict[int, int] = {}
        self.accepted: list[int] = []
        self.settled_here: list[int] = []
        self.retries = 0

    def step(self) -> None:
        """Send as credit and window allow, settle received messages, and process outcomes."""
        while self.waiting and len(self.under_way) < WINDOW and self.sender.credit > 0:
            number = self.waiting.pop(0)
            self.under_way[self.sender.send(message.message(number))] = number
        self.receiver.peer.read_available()
        for delivery in self.receiver.deliveries[self.receiver.taken :]:
            self.receiver.taken += 1
            delivery.settle()
            self.settled_here.append(message.body(delivery.payload))
            if self.receiver.taken % 100 == 0:
                self.receiver.flow(1000)
        self.sender.peer.read_available()
        for delivery_id in list(self.under_way):
            outcome = self.sender.session.outcomes.get(delivery_id)
            if outcome is None or not outcome.settled:
                continue
            number = self.under_way.pop(delivery_id)
            if outcome.name == "accepted":
                self.accepted.append(number)
            else:
                assert outcome.name in ("released", "modified"), outcome
                self.retries += 1
                self.waiting.append(number)


@pytest.mark.long
@pytest.mark.timeout(110)
def test_links_cut_at_random_lose_no_acknowledged_message(network: InteropNetwork) -> None:
    choice = random.Random(7)
    diamond = DiamondNetwork(network)
    receiver = diamond.s2.client().receiver("closest/load", credit=1000)
    diamond.s1.wait_remote("M0closest/load", "S2")
    load = RetryingLoad(diamond.s1.client().sender("closest/load"), receiver)
    cuts = 0
    while len(load.accepted) < COUNT:
        load.step()
        select.select([load.sender.peer.socket, receiver.peer.socket], [], [], 0.1)
        if len(load.accepted) >= (cuts + 1) * BETWEEN and len(load.accepted) < COUNT - WINDOW:
            router19, sluice = choice.choice(diamond.middle), choice.choice((diamond.s1, diamond.s2))
            other = next(middle for middle in diamond.middle if middle is not router19)
            diamond.wait_connected(other)
            diamond.wait_connected(router19)
            diamond.cut_and_reconnect(router19, sluice)
            cuts += 1
    assert cuts >= COUNT // BETWEEN - 2
    assert sorted(load.accepted) == list(range(COUNT))
    # The consumer has settled each accepted message. A message whose outcome was lost may have arrived twice.
    missing = set(load.accepted) - set(load.settled_here)
    assert not missing
    assert len(load.settled_here) <= COUNT + load.retries
