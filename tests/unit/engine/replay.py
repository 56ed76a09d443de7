"""A conversation with the router as plain events, so that one that found a fault can be kept and run again.

An event is a list: ["open", connection, worker, listener], ["feed", connection, hex], ["lose", connection],
["block", connection] and ["unblock", connection] (its socket takes nothing), ["time", ms], ["settle"],
["spoiled", connection] (from here on its octets are not what AMQP allows: what it sent is not looked at).
"""

from typing import Any

import router.routing.testing as engine
from tests.unit.engine.host import Peer, Router
from tests.unit.engine.watch import Watcher

Event = list[Any]


class Play:
    """One conversation being played."""

    def __init__(self, workers: int, ring_octets: int) -> None:
        self.before = engine.alive()
        self.router = Router(workers, ring_octets=ring_octets, test_hooks=True)
        self.peers: dict[int, Peer] = {}
        self.watchers: dict[int, Watcher] = {}
        self.spoiled: set[int] = set()

    def step(self, event: Event) -> None:
        kind, *rest = event
        if kind == "settle":
            self.settle()
        elif kind == "time":
            self.router.pass_time(rest[0])
        elif kind == "open":
            number, worker, listener = rest
            self.peers[number] = self.router.connect(worker, listener)
            self.watchers[number] = Watcher(number, self.spoiled)
        elif rest[0] in self.peers:  # a shortened conversation may lack its beginning
            self.of_peer(kind, rest[0], rest[1:])

    def of_peer(self, kind: str, number: int, rest: list[Any]) -> None:
        peer = self.peers[number]
        if kind == "feed":
            peer.feed(bytes.fromhex(rest[0]))
        elif kind == "lose":
            peer.lose()
        elif kind == "block":
            peer.blocked = True
        elif kind == "unblock":
            peer.blocked = False
            peer.collect()
        elif kind == "spoiled":
            self.spoiled.add(number)

    def settle(self) -> None:
        self.router.settle()
        self.router.check_quiet()
        for number, watcher in self.watchers.items():
            watcher.take(self.peers[number].take())

    def end(self) -> None:
        """Everybody leaves: nothing may stay behind."""
        for peer in self.peers.values():
            peer.blocked = False
            peer.collect()
        self.settle()
        for peer in self.peers.values():
            peer.lose()
        self.router.settle()
        self.router.check_empty()
        assert engine.alive() == self.before, f"alive at the end: {engine.alive()}, before: {self.before}"


def play(case: dict[str, Any]) -> None:
    """Run `{"workers": n, "ring": octets, "events": [...]}`. Raises AssertionError for what must not happen."""
    playing = Play(case["workers"], case["ring"])
    try:
        for event in case["events"]:
            playing.step(event)
        playing.end()
    finally:
        playing.router.close()
