"""Fixture, configuration and outcomes shared by the tests of delivery accounting.

Each test names the counters that grow and by how much; all other counters must not change. After each test, when all
peers have disconnected, the gauges are zero again and as many deliveries have ended as were received.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.peer import frames
from tests.peer.links import PeerReceiver, PeerSender
from tests.peer.peer import AmqpPeer
from tests.system.counters import Counters
from tests.system.router import RouterProcess, Section, listener

#: Link capacity, in deliveries, of the listener "ten".
TEN = 10
SECTIONS: list[Section] = [
    listener("ten", linkCapacity=TEN),
    ("address", {"prefix": "block", "presettledOverflow": "block"}),
    ("address", {"prefix": "drop", "presettledOverflow": "dropOldest"}),
    ("address", {"prefix": "many", "distribution": "multicast", "presettledOverflow": "dropOldest"}),
    ("address", {"prefix": "fallback", "enableFallback": True}),
    ("exchange", {"name": "ex", "address": "ex"}),
    ("binding", {"name": "one", "exchangeName": "ex", "bindingKey": "a.*", "nextHopAddress": "ex.one"}),
    ("binding", {"name": "two", "exchangeName": "ex", "bindingKey": "a.#", "nextHopAddress": "ex.two"}),
    ("exchange", {"name": "other", "address": "other", "alternateAddress": "other.alternate"}),
]
#: Octets after which the router forwards a message before it is complete.
STREAMING = 200_000
OUTCOMES = {
    "accepted": frames.ACCEPTED,
    "rejected": frames.rejected("amqp:internal-error", "no"),
    "released": frames.RELEASED,
    "modified": frames.modified(True, False),
}
LOSSES: dict[str, Callable[[PeerReceiver | PeerSender], object]] = {
    "detach": lambda link: link.detach(),
    "end": lambda link: link.session.end(),
    "close": lambda link: link.peer.close(),
    "drop": lambda link: link.peer.drop(),
    "reset": lambda link: link.peer.drop(reset=True),
}


@pytest.fixture(autouse=True)
def counters(router: RouterProcess, peers: list[AmqpPeer]) -> Iterator[Counters]:
    """Yield the router's counters. Afterwards drop all peers, and check that gauges are zero and sums balance."""
    with Counters(router) as found:
        before = found.totals()
        yield found
        for peer in peers:
            peer.drop()
        found.wait_gauges("after everybody has left", connections=0, links=0)
        found.wait_balance(before)


def settled_outcomes(sender: PeerSender, numbers: list[int]) -> list[str | None]:
    """Return the names of the settled outcomes, after waiting for all of them."""
    return [sender.outcome(number).name for number in numbers]
