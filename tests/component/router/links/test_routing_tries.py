"""Cost of routing a message whose leading sections arrive in many frames: proportional to octets, not frames."""

from typing import Any

import pytest

import sluice.router.testing.engine as engine
from tests.peer.codec import encode
from tests.peer.talk import consumer, frames, of, producer, say, start
from tests.peer.talk import messages as whole_messages
from tests.peer.types import Described, Map, Symbol, ULong

STREAM_AT = 131072  # octets after which an incomplete message is routed
TRIES_MOST = 12  # attempts to route one message
FEW = 64  # octets of a frame
REJECTED = 0x25


class CountingSender:
    """Client whose link has a counting handler, and a consumer on the same worker."""

    def __init__(self, router: Any, address: str | None, listener: str = "main") -> None:
        self.router = router
        self.receiver, self.peer = router.connect(), router.connect(listener=listener)
        self.receiver.feed(start() + consumer(0, "balanced.a"))
        router.settle()
        self.peer.feed(start() + producer(0, address))
        router.settle()
        (record,) = self.peer.client.links.by_number.values()
        self.counts = engine.CountingHandler(record.link)
        self.first = True
        self.linearised = engine.linearised()

    def send(self, octets: bytes, size: int, *, more: bool = True) -> None:
        """Send octets in frames of `size` octets, which the router reads together."""
        parts = [octets[at : at + size] for at in range(0, len(octets), size)]
        for at in range(0, len(parts), 500):
            self.peer.feed(b"".join(self._frame(part, more or part is not parts[-1]) for part in parts[at : at + 500]))
        self.router.settle()

    def _frame(self, part: bytes, more: bool) -> bytes:
        begins, self.first = self.first, False
        fields: dict[str, Any] = {"delivery_id": 0, "delivery_tag": b"0", "message_format": 0} if begins else {}
        return say("transfer", payload=part, handle=0, more=more or None, **fields)

    def received(self) -> int:
        """Return the octets of the message that the consumer has received since the last call."""
        return sum(len(frame.payload) for frame in of(frames(self.receiver), "transfer"))

    def check_work(self) -> None:
        assert self.counts.routes <= TRIES_MOST
        assert self.counts.looks <= TRIES_MOST
        assert engine.linearised() - self.linearised <= 4 * STREAM_AT


def annotations(size: int) -> bytes:
    """Return an annotations section of about `size` octets."""
    pairs = Map([(Symbol(f"key{number}"), "v" * 100) for number in range(size // 110)])
    return encode(Described(ULong(0x72), pairs))


@pytest.mark.parametrize(
    "head", [b"\0\x53\x72\xd1\x00\x10\x00\x00\x00\x00\x00\x02", b"\0\x53\x72\0", b"\0\x53\x72\x0f"]
)
def test_sections_without_end_in_small_frames_are_refused_with_little_work(routers, head):
    sender = CountingSender(routers(), "balanced.a")
    sender.send(head + bytes(STREAM_AT), 8000)
    sender.send(bytes(STREAM_AT), FEW)
    sender.check_work()
    sender.send(b"x", 1, more=False)
    assert {int(one.state.descriptor) for one in of(frames(sender.peer), "disposition")} == {REJECTED}
    assert sender.received() == 0


@pytest.mark.parametrize("listener", ["main", "kept"])
@pytest.mark.parametrize("first", [8000, 16000, FEW])
def test_long_properties_in_small_frames_are_routed_when_they_are_complete(routers, listener, first):
    sender = CountingSender(routers(), None, listener)
    properties = encode(Described(ULong(0x73), [bytes(STREAM_AT), None, "balanced.a"]))
    octets = annotations(20_000) + properties
    assert STREAM_AT + 10_000 < len(octets) < 2 * STREAM_AT
    sender.send(octets[:STREAM_AT], first)
    sender.send(octets[STREAM_AT:-1], FEW)
    assert sender.received() == 0
    sender.send(octets[-1:], 1)
    assert sender.received() > STREAM_AT, "nothing more is waited for"
    sender.check_work()


@pytest.mark.parametrize("listener", ["main", "kept"])
def test_long_annotations_in_small_frames_are_refused_when_they_are_complete(routers, listener):
    sender = CountingSender(routers(), "balanced.a", listener)
    octets = annotations(STREAM_AT + 20_000)
    assert STREAM_AT + 10_000 < len(octets) < 2 * STREAM_AT
    sender.send(octets[:-1], FEW)
    assert not of(frames(sender.peer), "disposition")
    sender.send(octets[-1:], 1)
    assert [int(one.state.descriptor) for one in of(frames(sender.peer), "disposition")] == [REJECTED]
    sender.check_work()


def test_annotations_in_small_frames_are_scanned_once_for_streams(routers):
    sender = CountingSender(routers(), "balanced.a", "kept")
    octets = annotations(12_000) + b"\0\x53\x75\xb0" + (1 << 16).to_bytes(4, "big")
    sender.send(octets, 15_000)
    sender.send(bytes(1 << 15), FEW)
    sender.check_work()
    sender.send(bytes(1 << 15), FEW, more=False)
    assert [len(octets) for octets in whole_messages(frames(sender.receiver))] == [len(octets) + (1 << 16)]


def test_stream_annotation_in_small_frames_is_found_when_its_section_is_complete(routers):
    """Octets known to be a stream leave before STREAM_AT of them have arrived."""
    sender = CountingSender(routers(), "balanced.a", "kept")
    pairs = Map([*((Symbol(f"k{n}"), "v" * 10) for n in range(20)), (Symbol("x-opt-qd.stream"), 1)])
    octets = encode(Described(ULong(0x72), pairs)) + b"\0\x53\x75\xb0" + (1 << 16).to_bytes(4, "big")
    sender.send(octets, 15_000)
    assert sender.received() > 0
    sender.send(bytes(1 << 15), FEW)
    sender.check_work()
    assert sender.received() == 1 << 15
