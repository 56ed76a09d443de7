"""Conversations with the router as plain events, so that a failing one can be stored and run again.

An event is a list:

- ["open", connection, worker, listener], ["feed", connection, hex], ["lose", connection]
- ["block", connection] and ["unblock", connection]: the peer stops or resumes reading
- ["time", ms], ["settle"]
- ["spoiled", connection]: its octets violate AMQP from here on; its messages are not checked
- ["put", connection, hex]: as feed, but the worker does not wake
- ["wake", worker]
- ["supervise", worker]: the supervisor takes and answers this worker's messages; no worker wakes
- ["order", worker, number]: the event that the worker handles first in a wake

With "network" the router is an interior one whose remote routers are injected: ["router", connection, index, cost,
origins] (a neighbour, behind an inter-router connection), ["announce", index, key], ["withdraw", index, key]. With
"edge" it is an edge router, to which other edge routers connect. "spread": number of multicast consumers from which
copies are spread over wakes.
"""

import math
from typing import Any

import sluice.router.testing.engine as engine
from sluice.router.control.ops import RouterOp
from tests.component.engine.host import InProcessPeer, InProcessRouter, configuration
from tests.component.engine.manual_scheduler import ManualScheduler
from tests.component.engine.neighbour_answers import NeighbourAnswers
from tests.component.engine.protocol_watcher import ProtocolWatcher

Event = list[Any]


BETWEEN = "between"
INTERIOR = configuration(
    more=f"listener {{ name: {BETWEEN}; host: 127.0.0.1; port: 9; role: inter-router; idleTimeoutSeconds: 0 }}"
).replace("mode: standalone", "mode: interior")
EDGE_TO_EDGE = INTERIOR.replace("mode: interior", "mode: edge").replace("role: inter-router", "role: inter-edge")


class ConversationReplay:
    """Conversation being replayed."""

    def __init__(
        self, workers: int, ring_octets: int, network: bool = False, edge: bool = False, more: str = ""
    ) -> None:
        """more: further sections of the configuration of a router without neighbours."""
        self.before = engine.live_objects()
        self.count = workers
        text = INTERIOR if network else EDGE_TO_EDGE if edge else configuration(more=more)
        self.router = InProcessRouter(workers, text, ring_octets, test_hooks=True)
        self.scheduler = ManualScheduler()
        self.router.core.waker.connect(self.scheduler, self._no_wake)  # type: ignore[arg-type] # few of its methods
        if network:
            # The events describe the network; the router's own protocol never starts.
            assert self.router.core.routers is not None
            self.router.core.routers._begins = math.inf
        self.answers: dict[int, NeighbourAnswers] = {}
        self.peers: dict[int, InProcessPeer] = {}
        self.watchers: dict[int, ProtocolWatcher] = {}
        self.spoiled: set[int] = set()

    def _no_wake(self) -> None:
        """Do nothing: the events decide when the supervisor works."""

    def step(self, event: Event) -> None:
        kind, *rest = event
        if kind == "settle":
            self.settle()
        elif kind == "time":
            self.router.pass_time(rest[0])
            self.scheduler.pass_time(rest[0] / 1000)
        elif kind == "open":
            number, worker, listener = rest
            self.peers[number] = self.router.connect(worker, listener)
            self.watchers[number] = ProtocolWatcher(number, self.spoiled)
            if listener == BETWEEN:
                self.answers[number] = NeighbourAnswers()
        elif kind == "wake":
            self.router.wake(self.router.workers[rest[0]])
        elif kind == "order":
            self.router.workers[rest[0]].poller.first = rest[1]
        elif kind == "supervise":
            self.router.supervise(rest[0])
        elif kind in ("announce", "withdraw"):
            self.announce(kind == "announce", *rest)
        elif kind == "router":
            number, index, cost, origins = rest
            if number in self.peers:
                conn = self.peers[number].known.number
                self.router.core.journal.append(RouterOp(index, f"N{index}", [conn], cost, origins))
        elif rest[0] in self.peers:  # a shortened conversation may lack its beginning
            self.of_peer(kind, rest[0], rest[1:])
        lost = self.count - len(self.router.workers)
        assert not lost, f"workers that the supervisor has ended, since a record was malformed: {lost}"

    def announce(self, there: bool, index: int, key: str) -> None:
        """Add or remove a remote router as destination of an address."""
        table = self.router.core.table
        record = table.records.get(key)
        if record is None:
            record = table.create(key, "closest" if key[0] == "R" else "balanced", None, "throttle")
            table.hold(record)
        known = record.remotes is not None and index in record.remotes
        if there and not known:
            table.add_remote(record, index)
        elif known and not there:
            table.remove_remote(record, index)

    def of_peer(self, kind: str, number: int, rest: list[Any]) -> None:
        peer = self.peers[number]
        if kind == "feed":
            peer.feed(bytes.fromhex(rest[0]))
        elif kind == "put":
            peer.put(bytes.fromhex(rest[0]))
        elif kind == "lose":
            peer.lose()
        elif kind == "block":
            peer.blocked = True
        elif kind == "unblock":
            peer.blocked = False
        elif kind == "spoiled":
            self.spoiled.add(number)

    def settle(self) -> None:
        self.router.settle()
        self.router.check_quiet()
        for number, watcher in self.watchers.items():
            heard = watcher.take(self.peers[number].take())
            for frame in heard if number in self.answers else ():
                self.peers[number].feed(self.answers[number].to(frame))

    def end(self) -> None:
        """Disconnect all peers and check that nothing is left behind."""
        for peer in self.peers.values():
            peer.blocked = False
        self.settle()
        for peer in self.peers.values():
            peer.lose()
        self.router.settle()
        self.router.check_empty()
        assert engine.live_objects() == self.before, f"alive at the end: {engine.live_objects()}, before: {self.before}"


def play(case: dict[str, Any]) -> None:
    """Run `{"workers": n, "ring": octets, "events": [...]}`. Raises AssertionError for a violation."""
    engine.use_spread(case.get("spread", 0))
    playing = ConversationReplay(case["workers"], case["ring"], case.get("network", False), case.get("edge", False))
    try:
        for event in case["events"]:
            playing.step(event)
        playing.end()
    finally:
        engine.use_spread()
        playing.router.close()
