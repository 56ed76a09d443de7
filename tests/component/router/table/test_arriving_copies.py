"""Copies that taps make of messages which are routed before they are complete: stalls, and memory."""

from random import Random
from typing import Any

import pytest

from tests.component.engine.host import InProcessPeer, InProcessRouter, configuration
from tests.peer.codec import encode
from tests.peer.frames import ACCEPTED
from tests.peer.talk import PART, consumer, frames, key, message, messages, of, producer, say, settle, start, transfer
from tests.peer.types import Described, ULong

TAPS = """
tap { name: copies; pattern: balanced.#; address: taps.copies }
tap { name: musts; pattern: closest.#; address: taps.musts; mode: required }
"""
#: Octets of an incomplete message whose copy is stored, and of one whose copy is forwarded as it arrives.
STORED = 300_000
LONG = 1_500_000
LAST = len(message(bytes(LONG))) % PART  # octets in the last frame of the latter
#: Milliseconds without an octet after which a forwarded copy ends if others wait behind it.
STALL_MS = 10_000
#: Key of the annotation with the address of the original.
ADDRESS = "x-opt-sluice.address"

NAMES = {"balanced": "copies", "closest": "musts"}


def connected(router: InProcessRouter, octets: bytes, worker: int = 0) -> InProcessPeer:
    peer = router.connect(worker)
    peer.feed(start() + octets)
    router.settle()
    frames(peer)
    return peer


def started(router: InProcessRouter, kind: str, workers: int) -> tuple[InProcessPeer, InProcessPeer, InProcessPeer]:
    """Return a consumer of the copies, a consumer of two addresses, and a sender to the first of them."""
    tap = connected(router, consumer(0, f"taps.{NAMES[kind]}"), workers - 1)
    receiving = connected(router, consumer(0, f"{kind}.a") + consumer(1, f"{kind}.b"))
    return tap, receiving, connected(router, producer(0, f"{kind}.a"))


def unfinished(size: int) -> bytes:
    """Return the frames of delivery 0 but the last."""
    octets = transfer(0, 0, message(bytes(size)))
    return octets[: octets.rindex(b"\x00S\x14") - 8]


def more(octets: bytes, last: bool = False) -> bytes:
    """Return a further frame of delivery 0."""
    return say("transfer", handle=0, delivery_id=0, more=None if last else True, payload=octets)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("kind", ["balanced", "closest"])
def test_copy_of_stalled_message_ends_when_others_wait_behind_it(routers: Any, kind: str, workers: int) -> None:
    router = routers(workers, configuration("linkCapacity: 250", TAPS))
    tap, receiving, sending = started(router, kind, workers)
    sending.feed(unfinished(LONG))
    router.settle()
    frames(receiving)
    begun = of(frames(tap), "transfer")
    assert begun
    assert begun[-1].more
    router.pass_time(6 * STALL_MS)
    assert not of(frames(tap), "transfer"), "nobody waits"
    bystander = connected(router, producer(0, f"{kind}.b"))
    bystander.feed(transfer(0, 0, message(b"bystander")))
    router.settle()
    assert not of(frames(tap), "transfer"), "it waits behind the long message"
    router.pass_time(2 * STALL_MS)
    ended, following = of(frames(tap), "transfer")
    assert ended.aborted
    assert b"bystander" in following.payload
    aborted = [frame.aborted for frame in of(frames(receiving), "transfer")]
    if kind == "balanced":
        assert True not in aborted, "nothing waits for the copy"
    else:
        assert True in aborted
        (outcome,) = of(frames(sending), "disposition")
        assert outcome.state.descriptor == 0x27


@pytest.mark.parametrize("kind", ["balanced", "closest"])
@pytest.mark.parametrize(("workers", "beside"), [(1, 0), (2, 0), (3, 1)])
def test_copy_that_grows_ends_when_others_have_waited_for_it(
    routers: Any, kind: str, workers: int, beside: int
) -> None:
    """beside: worker of the bystander, whose copy waits for the same consumer."""
    router = routers(workers, configuration("linkCapacity: 250", TAPS))
    tap, receiving, sending = started(router, kind, workers)
    sending.feed(unfinished(LONG))
    router.settle()
    frames(receiving)
    assert of(frames(tap), "transfer")
    bystander = connected(router, producer(0, f"{kind}.b"), beside)
    bystander.feed(transfer(0, 0, message(b"bystander")))
    router.settle()
    seen: list[Any] = []
    for _ in range(30):  # an octet each second
        sending.feed(more(b"\0"))
        router.pass_time(1000)
        seen += of(frames(tap), "transfer")
        if seen and seen[-1].aborted is not True and b"bystander" in seen[-1].payload:
            break
    else:
        pytest.fail("the bystander's copy waits for a message that never ends")
    assert seen[-2].aborted
    aborted = [frame.aborted for frame in of(frames(receiving), "transfer")]
    assert (True in aborted) == (kind == "closest")


@pytest.mark.parametrize("workers", [1, 2])
def test_copy_that_grows_slowly_arrives_whole_if_nobody_waits(routers: Any, workers: int) -> None:
    router = routers(workers, configuration("linkCapacity: 250", TAPS))
    tap, _, sending = started(router, "closest", workers)
    sending.feed(unfinished(LONG))
    for _ in range(60):
        sending.feed(more(b"\0"))
        router.pass_time(1000)
    sending.feed(more(bytes(LAST - 60), last=True))
    router.settle()
    assert not [frame for frame in of(frames(tap), "transfer") if frame.aborted]


@pytest.mark.parametrize("workers", [1, 2])
def test_stall_of_stored_message_concerns_nobody(routers: Any, workers: int) -> None:
    router = routers(workers, configuration("linkCapacity: 250", TAPS))
    tap, receiving, sending = started(router, "closest", workers)
    sending.feed(unfinished(STORED))
    bystander = connected(router, producer(0, "closest.b"))
    bystander.feed(transfer(0, 0, message(b"bystander")))
    router.settle()
    (copy,) = messages(frames(tap))
    assert b"bystander" in copy
    router.pass_time(6 * STALL_MS)
    assert True not in [frame.aborted for frame in of(frames(receiving), "transfer")]
    assert not of(frames(sending), "disposition")


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("seed", range(20))
def test_random_streams_leave_nothing_behind(routers: Any, workers: int, seed: int) -> None:
    """Peers send frames of messages to addresses with taps, settle, and are lost, in any order. The fixture finds
    deliveries, copies and octets that stay."""
    random = Random(seed)
    router = routers(workers, configuration("linkCapacity: 250", TAPS))
    kinds = list(NAMES)
    receiving = [
        connected(router, consumer(0, f"{kind}.a") + consumer(1, f"taps.{NAMES[kind]}"), random.randrange(workers))
        for kind in kinds * 2
    ]
    waiting: dict[InProcessPeer, bytes] = {}
    for kind in kinds * 3:
        sending = connected(router, producer(0, f"{kind}.a"), random.randrange(workers))
        waiting[sending] = b""
        for number in range(3):
            size = random.choice([1000, STORED, LONG, 2 * LONG])
            waiting[sending] += transfer(0, number, message(bytes(size)), settled=random.random() < 0.3 or None)
    while waiting:
        sending = random.choice(list(waiting))
        size = random.randrange(400_000)
        sending.feed(waiting[sending][:size])
        waiting[sending] = waiting[sending][size:]
        if random.random() < 0.02:
            sending.lose()
            waiting[sending] = b""
        if not waiting[sending]:
            del waiting[sending]
        router.settle()
        for peer in list(receiving):
            heard = [frame for frame in of(frames(peer), "transfer") if frame.delivery_id is not None]
            for frame in heard:
                if random.random() < 0.7:
                    state = ACCEPTED if random.random() < 0.8 else None
                    peer.feed(settle(frame.delivery_id, state=state, settled=random.random() < 0.8))
            if len(receiving) > 2 and random.random() < 0.02:
                receiving.remove(peer)
                peer.lose()
        if random.random() < 0.1:
            router.pass_time(STALL_MS)
        router.settle()


def forgeries(random: Random) -> bytes:
    """Return a section of message-annotations with a forged address, in one of its encodings."""
    items = encode(key(ADDRESS)) + encode("forged")
    descriptor = random.choice(
        [b"\x53\x72", b"\x52\x72", b"\x60\x00\x72", b"\x70\x00\x00\x00\x72", b"\x80" + bytes(7) + b"\x72",
         b"\xa3\x1camqp:message-annotations:map", b"\xb3\x00\x00\x00\x1camqp:message-annotations:map"]
    )  # fmt: skip
    return b"\x00" + descriptor + b"\xd1" + (len(items) + 4).to_bytes(4, "big") + (2).to_bytes(4, "big") + items


@pytest.mark.parametrize("kind", ["balanced", "closest"])
@pytest.mark.parametrize("seed", range(20))
def test_copy_of_stream_has_no_annotations_in_a_wrong_place(routers: Any, kind: str, seed: int) -> None:
    """A sender puts sections with a forged address behind the leading ones. Frames are divided anywhere."""
    random = Random(seed)
    router = routers(1, configuration("linkCapacity: 250", TAPS))
    tap, receiving, sending = started(router, kind, 1)
    value = encode(Described(ULong(0x77), Described(Described(ULong(1), "name"), [1, "text", {}, 2.5, None])))
    sections = [message(bytes(random.choice([10, 1000, STORED, LONG]))) for _ in range(6)] + [value, b"\x00\x45\x45"]
    sent = valid = message(bytes(STORED))
    for section in random.sample(sections, len(sections)):
        sent += forgeries(random) * random.randrange(3) + section
        valid += section
    sent += forgeries(random)
    part = random.choice([7, 61, 1000, PART]) if len(sent) < LONG else PART - random.randrange(5000)
    sending.feed(transfer(0, 0, sent, part))
    copied = passed = b""
    for _ in range(len(sent) // 10_000):
        router.settle()
        copied += b"".join(frame.payload for frame in of(frames(tap), "transfer"))
        passed += b"".join(frame.payload for frame in of(frames(receiving), "transfer"))
    assert passed == sent
    assert copied.endswith(valid), "nothing else is missing"
    assert b"forged" not in copied
    assert copied.count(ADDRESS.encode()) == 1
