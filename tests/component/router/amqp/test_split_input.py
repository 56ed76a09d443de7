"""Input split at any octet: the router's answers are the same."""

from random import Random

import pytest

from tests.peer.codec import encode
from tests.peer.frames import ACCEPTED, FRAME_HEADER, SASL_HEADER, frame_octets, parse_frame, rejected
from tests.peer.talk import begin, consumer, flow, message, producer, say, settle, start, transfer
from tests.peer.types import Described, Symbol, ULong

SASL = SASL_HEADER + frame_octets(encode(Described(ULong(0x41), [Symbol("ANONYMOUS"), b"x"])), kind=1)
# Batches of each conversation: the client waits for the router's answers before it sends the next one.
CONVERSATIONS = {
    "sasl": [SASL + start()],
    "links": [start() + consumer(0, "balanced.a", 10) + producer(1, "balanced.a")],
    "messages": [
        start() + consumer(0, "balanced.a", 10) + producer(1, "balanced.a"),
        transfer(1, 0, message(b"a" * 50), part=20) + transfer(1, 1, message(b"b"), settled=True),
        settle(0, state=ACCEPTED),
        say("detach", handle=1),
        say("end"),
    ],
    "outcome": [
        start() + consumer(0, "balanced.a", 10) + producer(1, None),
        transfer(1, 0, message(b"x", to="balanced.a")),
        settle(0, state=rejected("a:b", "c")),
        flow(0, 5, drain=True, delivery_count=1) + begin(1),
        say("close"),
    ],
    "error": [start(), say("transfer", handle=9, delivery_id=0)],
    "garbage": [b"GET / HTTP/1.1\r\n\r\n"],
}


def frames_received(router, turns):
    """Return the router's frames. turns: batches, each a list of pieces."""
    peer = router.connect()
    for pieces in turns:
        for piece in pieces:
            peer.feed(piece)
        router.settle()
    octets = peer.take()
    peer.lose()
    router.settle()
    return sorted_frames(octets)


def cut(octets, places):
    ends = [*sorted(places), len(octets)]
    return [octets[a:b] for a, b in zip([0, *ends], ends, strict=False)]


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_input_in_any_pieces_gives_same_frames(routers, name):
    turns = CONVERSATIONS[name]
    router = routers()
    whole = frames_received(router, [[octets] for octets in turns])
    assert whole
    for number, octets in enumerate(turns):
        for at in range(1, len(octets)):
            pieces = [cut(other, [at]) if number == index else [other] for index, other in enumerate(turns)]
            assert frames_received(router, pieces) == whole, f"turn {number} cut at {at}"
    assert frames_received(router, [cut(octets, range(1, len(octets))) for octets in turns]) == whole
    rng = Random(name)
    for _ in range(10):
        assert frames_received(router, [cut(octets, rng.sample(range(len(octets)), 4)) for octets in turns]) == whole


def sorted_frames(octets):
    """Return the frames sorted as text. Flows are left out: their number depends on the time at which credit is
    granted."""
    at, found = 0, []
    while len(octets) - at >= FRAME_HEADER:
        if octets.startswith(b"AMQP", at):
            found.append(repr(octets[at : at + FRAME_HEADER]))
            at += FRAME_HEADER
            continue
        size = int.from_bytes(octets[at : at + 4], "big")
        frame = parse_frame(octets[at : at + size]) if octets[at + 5] == 0 else None
        at += size
        if frame is None:
            found.append("sasl")
        elif frame.name == "transfer":
            found.append(f"transfer {frame.handle} {frame.delivery_id} {frame.settled} {frame.more} {frame.payload!r}")
        elif frame.name == "open":
            found.append("open")
        elif frame.name != "flow":
            found.append(repr(frame))
    assert at == len(octets)
    return sorted(found)
