"""Addresses in messages of another router, whose look-ups are cached until the table changes."""

from typing import Any

import pytest

from tests.component.engine.host import InProcessPeer
from tests.component.engine.interior_router import INTERIOR, InteriorRouter
from tests.peer.frames import ACCEPTED, RELEASED
from tests.peer.talk import consumer, frames, key, message, messages, of, say, settle, start, transfer

DATA_IN = 3  # handle of the data link on which the neighbour sends
LONGEST = 1024  # octets of an address that is cached
MANY = 200  # addresses, of which some share one of 4096 places


class RelayedMessages:
    """Router whose neighbour relays messages, each with its own address."""

    def __init__(self, routers: Any) -> None:
        self.host = InteriorRouter(routers(1, INTERIOR))
        self.neighbour = self.host.peer(links=1)
        frames(self.neighbour)
        self.sent = 0

    def consumer(self, address: str) -> InProcessPeer:
        peer: InProcessPeer = self.host.router.connect(0, "main")
        peer.feed(start() + consumer(0, address))
        self.host.router.settle()
        frames(peer)
        return peer

    def send(self, address: str) -> Any:
        """Relay a message. Return the state that the neighbour receives at once, or None."""
        octets = message(address.encode(), annotations=[(key("x-opt-qd.to"), address)])
        self.neighbour.feed(transfer(DATA_IN, self.sent, octets))
        self.sent += 1
        self.host.router.settle()
        found = of(frames(self.neighbour), "disposition")
        return found[0].state if found else None


@pytest.fixture
def relayed(routers):
    return RelayedMessages(routers)


@pytest.mark.parametrize("address", ["balanced.a", "balanced." + "a" * LONGEST], ids=["cached", "too-long"])
def test_look_up_follows_consumers_of_address(relayed, address):
    for _ in range(3):
        assert [relayed.send(address) for _ in range(3)] == [RELEASED] * 3
        peer = relayed.consumer(address)
        assert [relayed.send(address) for _ in range(3)] == [None] * 3
        assert messages(frames(peer)) == [message(address.encode())] * 3
        peer.feed(settle(0, MANY, ACCEPTED) + say("detach", handle=0, closed=True))
        relayed.host.router.settle()
        frames(relayed.neighbour)


def test_addresses_that_share_a_place_stay_apart(relayed):
    addresses = [f"balanced.{number}" for number in range(MANY)]
    peers = {address: relayed.consumer(address) for address in addresses}
    for _ in range(2):
        for address in (*addresses, *reversed(addresses)):
            assert relayed.send(address) is None
            assert messages(frames(peers[address])) == [message(address.encode())]
