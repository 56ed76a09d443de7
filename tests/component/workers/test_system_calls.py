"""Unreliable system calls: interrupted, busy, broken, or moving few octets at a time. No octet is lost."""

import itertools
import random
from collections.abc import Iterator

import pytest

from sluice.router.links.pause import RouterPause
from sluice.router.testing import faults
from sluice.router.testing.engine import consumers_by_address
from tests.component.engine.host import RING_OCTETS
from tests.component.workers.loops import SocketPeer, SocketRouter
from tests.peer.frames import ACCEPTED
from tests.peer.talk import consumer, frames, message, of, producer, say, settle, start, transfer

SMALL = [0, 1, 7, 8, 100]  # octets of messages
LARGE = [*SMALL, 5_000, 16_000, 70_000]
PART = 15_000  # octets of a frame
ROUNDS = 5000
SMALLEST_RING = 1 << 18
MORE_THAN_A_RING = [300_000, 300_000]


@pytest.fixture(autouse=True)
def _calls() -> Iterator[None]:
    faults.install()
    yield
    faults.script()


class SocketConversation:
    """Producer and consumer. Messages must arrive in order and be accepted, and the producer must receive the
    outcomes."""

    def __init__(self, router: SocketRouter, sizes: list[int]) -> None:
        self.router = router
        last = len(router.workers) - 1
        self.consuming: SocketPeer = router.connect(0)  # type: ignore[assignment]
        self.sending: SocketPeer = router.connect(last)  # type: ignore[assignment]
        self.octets = dict.fromkeys((self.consuming, self.sending), b"")  # octets not sent yet
        self.unparsed = dict.fromkeys((self.consuming, self.sending), b"")  # incomplete frames
        self.messages = [message(bytes([number]) * size) for number, size in enumerate(sizes)]
        self.received: list[bytes] = []
        self.partial = b""
        self.outcomes: dict[int, object] = {}
        self.attached = 0
        self.say(self.consuming, start() + consumer(0, "balanced.a"))
        self.run(lambda: self.attached == 1)
        self.say(self.sending, start() + producer(0, "balanced.a"))
        self.run(lambda: self.attached == 2)

    def say(self, peer: SocketPeer, octets: bytes) -> None:
        self.octets[peer] += octets

    def run(self, done) -> None:
        """Let both peers write and read as far as their sockets allow, until `done`."""
        for _ in range(ROUNDS):
            for peer in self.octets:
                self.write(peer)
            self.router.settle()
            for peer in self.octets:
                self.read(peer)
            if done():
                return
        raise AssertionError(f"{len(self.received)} of {len(self.messages)} messages, {len(self.outcomes)} outcomes")

    def write(self, peer: SocketPeer) -> None:
        try:
            sent = peer.socket.send(self.octets[peer]) if self.octets[peer] else 0
        except BlockingIOError:
            return
        self.octets[peer] = self.octets[peer][sent:]

    def read(self, peer: SocketPeer) -> None:
        whole, self.unparsed[peer] = split_whole_frames(self.unparsed[peer] + peer.take())
        for frame in frames(WholeFrames(whole)):
            assert frame.name not in ("detach", "end", "close"), frame
            self.attached += frame.name == "attach"
            if frame.name == "transfer":
                self.partial += frame.payload
                if not frame.more:
                    if not frame.settled:
                        self.say(peer, settle(frame.delivery_id or len(self.received), state=ACCEPTED))
                    self.received.append(self.partial)
                    self.partial = b""
            elif frame.name == "disposition" and peer is self.sending:
                last = frame.first if frame.last is None else frame.last
                self.outcomes.update(dict.fromkeys(range(frame.first, last + 1), frame.state))

    def check(self, after_each=lambda number: None) -> None:
        """Send all messages and check that they arrive and are accepted."""
        for number, octets in enumerate(self.messages):
            self.say(self.sending, transfer(0, number, octets, part=PART))
            after_each(number)
        self.run(lambda: len(self.outcomes) == len(self.messages))
        assert self.received == self.messages
        assert set(self.outcomes.values()) == {ACCEPTED}


class WholeFrames:
    """Source of the octets that a peer has received, for `frames`."""

    def __init__(self, octets: bytes) -> None:
        self.octets = octets

    def take(self) -> bytes:
        return self.octets


def split_whole_frames(octets: bytes) -> tuple[bytes, bytes]:
    """Return (headers and complete frames, remaining octets)."""
    at = 0
    while len(octets) - at >= 8:
        size = 8 if octets.startswith(b"AMQP", at) else int.from_bytes(octets[at : at + 4], "big")
        if len(octets) - at < size:
            break
        at += size
    return octets[:at], octets[at:]


def routers_of(workers: int, ring_octets: int = RING_OCTETS) -> SocketRouter:
    return SocketRouter(workers, ring_octets=ring_octets)


def close_empty(router: SocketRouter) -> None:
    """Disconnect all peers and check that the router holds nothing."""
    faults.script()
    router.settle()
    router.check_quiet()
    for peer in list(router.peers):
        peer.lose()
    router.settle()
    router.check_empty()
    router.close()


def run_conversation(workers: int, sizes: list[int], **patterns: str) -> None:
    router = routers_of(workers)
    faults.script(**patterns)
    SocketConversation(router, sizes).check()
    changed = faults.changed()
    assert all(changed[name] for name in patterns), changed
    close_empty(router)


@pytest.mark.parametrize("pattern", ["i.", "a.", "iiia.", "aaaai.ai."])
@pytest.mark.parametrize("call", ["recv", "send"])
def test_interrupted_socket_calls_are_repeated(call, pattern):
    run_conversation(1, LARGE, **{call: pattern})


@pytest.mark.parametrize("call", ["recv", "send"])
@pytest.mark.parametrize("pattern", ["1", "1a", "1i1."])
def test_single_octets_are_read_and_sent(call, pattern):
    run_conversation(1, SMALL, **{call: pattern})


@pytest.mark.parametrize("call", ["recv", "send"])
def test_short_reads_and_writes_lose_nothing(call):
    run_conversation(1, [*SMALL, 5000], **{call: "f"})


@pytest.mark.parametrize("pattern", ["i..", "iii..", "1", "1i.1"])
def test_interrupted_or_short_epoll_wait_loses_nothing(pattern):
    run_conversation(3, LARGE, epoll_wait=pattern)


@pytest.mark.parametrize("pattern", ["i.", "iii."])
def test_interrupted_wakeup_is_repeated(pattern):
    """Rings are small, so that producers and consumers of records wake each other."""
    router = routers_of(3, SMALLEST_RING)
    faults.script(write=pattern)
    SocketConversation(router, [*LARGE, *MORE_THAN_A_RING]).check()
    assert faults.changed()["write"]
    close_empty(router)


@pytest.mark.parametrize("call", ["recv", "send"])
@pytest.mark.parametrize("workers", [1, 3])
def test_broken_connection_affects_no_other(call, workers):
    router = routers_of(workers)
    conversation = SocketConversation(router, LARGE)
    victim: SocketPeer = router.connect(0)  # type: ignore[assignment]
    victim.feed(start() + consumer(0, "balanced.victim") + producer(1, "balanced.victim"))
    router.settle()
    assert len(of(frames(victim), "attach")) == 2
    victim.feed(transfer(1, 0, message(b"x")))
    faults.script(**{call: "x"})
    router.settle()
    faults.script()
    assert victim.take() == b""
    assert victim.gone
    assert victim.number not in router.workers[0].clients
    assert not consumers_by_address(router.workers[0].table).get("M0balanced.victim")
    conversation.check()
    close_empty(router)


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("seed", range(6))
def test_random_faults_with_pauses_lose_nothing(workers, seed):
    """Rings are small, and the test pauses both connections for other reasons at times."""
    choose = random.Random(seed)
    sizes = [choose.choice([*SMALL, 300, 5000]) for _ in range(12)] + MORE_THAN_A_RING

    def pattern(letters: str) -> str:
        return "".join(choose.choices(letters, k=choose.randint(5, 50))) + "...."

    router = routers_of(workers, SMALLEST_RING)
    faults.script(recv=pattern("ai1ff.."), send=pattern("ai1ff.."), epoll_wait=pattern("i1.."), write=pattern("i."))
    conversation = SocketConversation(router, sizes)
    reasons = itertools.cycle([RouterPause.PAUSE_LOCAL, RouterPause.PAUSE_CONTROL])

    def pause(number: int) -> None:
        peer = choose.choice([conversation.sending, conversation.consuming])
        reason = next(reasons)
        connection = peer.client.connection
        connection.pause(reason)
        for _ in range(choose.randint(1, 3)):
            conversation.write(conversation.sending)
            router.settle()
        connection.resume(reason)

    conversation.check(pause)
    assert all(faults.changed()[name] for name in ("recv", "send", "epoll_wait"))
    close_empty(router)


def test_close_is_sent_octet_by_octet():
    router = routers_of(1)
    peer: SocketPeer = router.connect()  # type: ignore[assignment]
    peer.feed(start())
    router.settle()
    frames(peer)
    faults.script(recv="1", send="1ai")
    peer.feed(say("close"))
    for _ in range(200):
        router.settle()
    assert [frame.name for frame in frames(peer)] == ["close"]
    assert peer.gone
    close_empty(router)
