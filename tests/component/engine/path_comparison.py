"""Comparison of the fast paths of deliveries with the slow path: the same input is played through both, and all octets
that peers receive and all counters of the routers must be equal (docs/internals/life-of-a-message.md).
"""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import sluice.router.testing.engine as engine
from sluice.router.stats.snapshot import LinkReader
from tests.component.engine.host import ADDRESSES, InProcessPeer, InProcessRouter
from tests.component.engine.replay import ConversationReplay
from tests.peer.codec import encode
from tests.peer.frames import FRAME_HEADER, parse_frame
from tests.peer.talk import flow, key, message, say, settle, transfer
from tests.peer.types import Described, ULong

HEADER: Final = 0x70
#: Fields of a worker's slot that differ between runs.
OF_ONE_RUN: Final = ("pid", "heartbeat", "heard", "wakes")
#: Random part of a dynamic node's name.
DYNAMIC: Final = re.compile(rb"(?<=temp\.)[\w+]{15}")
#: Message-annotations: none, users' (different or equal in each message), routers', both.
ANNOTATIONS: Final[dict[str, Callable[[int], Any]]] = {
    "none": lambda number: None,
    "others": lambda number: [(key("x-user"), number)],
    "same": lambda number: [(key("x-user"), 1)],
    "routers": lambda number: [(key("x-opt-qd.ingress"), "0/Z"), (key("x-opt-qd.trace"), ["0/Z"])],
    "both": lambda number: [(key("x-user"), 1), (key("x-opt-qd.trace"), ["0/Y", "0/Z"])],
}

#: Policy under which a message may bear no other user-id than that of its client.
ONE_USER: Final = """
policy {
    enableVhostPolicy: true
}
vhost {
    hostname: $default
    allowUnknownUser: true
    groups: {
        $default: {
            remoteHosts: *
            sources: *
            targets: *
            allowUserIdProxy: false
        }
    }
}
"""

# -- random input -----------------------------------------------------------------------------------------------------


class RecordingReplay(ConversationReplay):
    """Conversation whose peers keep the octets that they receive."""

    def __init__(self, case: dict[str, Any], *, checked: bool) -> None:
        super().__init__(case["workers"], case["ring"], more=case["more"])
        self.heard: dict[int, bytes] = {}
        self.checked = checked

    def settle(self) -> None:
        self.router.settle()
        if self.checked:
            engine.check_plans()
        self.router.check_quiet()
        for number, peer in self.peers.items():
            self.heard[number] = self.heard.get(number, b"") + peer.take()


def play(case: dict[str, Any], fast: bool, *, checked: bool = False) -> tuple[dict[int, list[Any]], Any]:
    """Return the frames that each peer of a conversation received, and the counters of the router.

    checked: compare each remembered plan with a fresh one.
    """
    engine.use_spread(case["spread"])
    replay = RecordingReplay(case, checked=checked)
    engine.use_fast_paths(fast)
    try:
        for event in case["events"]:
            replay.step(event)
        for peer in replay.peers.values():
            peer.blocked = False
        replay.settle()
        heard = {number: [*frames_by_delivery(octets)] for number, octets in replay.heard.items()}
        return heard, all_counters(replay.router)
    finally:
        engine.use_fast_paths(True)
        engine.use_spread()
        replay.router.close()


def compare(case: dict[str, Any]) -> None:
    """Play a conversation (`tests.component.engine.replay`) with fast paths and without. Raises AssertionError if the
    effects differ.
    """
    fast = play(case, fast=True)
    assert fast == play(case, fast=False)
    # Planning has no effect: with each plan made twice, everything is as before.
    assert fast == play(case, fast=True, checked=True)
    assert engine.plan_differences() == 0


# -- scripted input ---------------------------------------------------------------------------------------------------


def content(number: int, *, size: int, header: Any, to: str | None, annotated: str, user: bytes | None = None) -> bytes:
    octets: bytes = message(
        number.to_bytes(4, "big") + bytes(size), user=user, to=to, annotations=ANNOTATIONS[annotated](number)
    )
    return octets if header is None else encode(Described(ULong(HEADER), header)) + octets


class ScriptedClients:
    """Clients with one link each, whose actions are named by tests. The octets that each receives are kept."""

    def __init__(
        self,
        routers: Sequence[InProcessRouter],
        quiet: Callable[[], object],
        consuming: Sequence[InProcessPeer],
        sending: Sequence[InProcessPeer],
    ) -> None:
        """quiet: returns when nothing moves in these routers. A client is named by its place among the consumers, or
        behind them among the producers.
        """
        self.routers = routers
        self.quiet = quiet
        self.consuming = consuming
        self.sending = sending
        self.peers = [*consuming, *sending]
        self.lost: set[int] = set()
        self.heard = [b""] * len(self.peers)
        self.sent = [0] * len(sending)
        self.settled = [0] * len(consuming)

    def act(self, what: str, *how: Any) -> None:
        getattr(self, what)(*how)
        self.quiet()
        for router in self.routers:
            router.check_quiet()
        for number, peer in enumerate(self.peers):
            if number not in self.lost:
                self.heard[number] += peer.take()

    def send(self, who: int, count: int, settled: bool, what: dict[str, Any]) -> None:
        if len(self.consuming) + who in self.lost:
            return
        numbers = range(self.sent[who], self.sent[who] + count)
        self.sent[who] += count
        octets = [transfer(0, number, content(number, **what), settled=settled or None) for number in numbers]
        self.sending[who].feed(b"".join(octets))

    def settle(self, who: int, count: int, outcome: Any) -> None:
        if who not in self.lost:
            self.consuming[who].feed(settle(self.settled[who], self.settled[who] + count, outcome))
            self.settled[who] += count + 1

    def flow(self, who: int, credit: int, drain: bool) -> None:
        if who not in self.lost:
            self.consuming[who].feed(flow(0, credit, delivery_count=self.settled[who], drain=drain))

    def time(self, milliseconds: int) -> None:
        for router in self.routers:
            router.pass_time(milliseconds)

    def lose(self, who: int, detach: bool) -> None:
        if detach:
            self.peers[who].feed(say("detach", handle=0, closed=True))
            self.quiet()
        else:
            self.peers[who].lose()
        self.heard[who] += self.peers[who].take()
        self.lost.add(who)


# -- effects ----------------------------------------------------------------------------------------------------------


def frames_by_delivery(octets: bytes) -> Iterator[Any]:
    """Yield frames as octets, and dispositions as one report per delivery: the router may merge equal reports into one
    frame. Flows in a row are sorted, because producers of an address get credit in any order. Random parts of names are
    removed.
    """
    at = 0
    flows: list[bytes] = []
    while at < len(octets):
        if octets.startswith(b"AMQP", at):
            at += FRAME_HEADER
            continue
        size = int.from_bytes(octets[at : at + 4], "big")
        frame = parse_frame(octets[at : at + size])
        if frame.name == "flow":
            flows.append(octets[at : at + size])
        else:
            yield from sorted(flows)
            flows = []
        if frame.name == "disposition":
            for number in range(frame.first, (frame.first if frame.last is None else frame.last) + 1):
                yield frame.role, number, frame.settled, repr(frame.state)
        elif frame.name != "flow":
            yield DYNAMIC.sub(b"", octets[at : at + size])
        at += size
    yield from sorted(flows)


def all_counters(router: InProcessRouter, *but: str) -> tuple[list[dict[str, Any]], list[Any], list[Any]]:
    """Return the counters of a router: of each worker without the counters `but`, of links, and of addresses."""
    workers = range(len(router.workers))
    counters = [router.region.worker_counters(worker) for worker in workers]
    for of_worker in counters:
        for name in (*OF_ONE_RUN, *but):
            del of_worker[name]
    links = [LinkReader(router.region, worker).look() for worker in workers]
    addresses = [router.region.address_counters(worker, number) for worker in workers for number in range(ADDRESSES)]
    return counters, links, addresses
