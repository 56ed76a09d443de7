"""Cost of each frame type with expensive legal arguments: one wake spends a slice and one frame more, at most.

What is not charged in units would show in processor time only, which is compared with that of small transfers.
"""

import gc
import time
from collections.abc import Iterator
from typing import Any

import pytest
from router.amqp.scheduler import Work

from tests.peer.codec import encode
from tests.peer.frames import ACCEPTED, AMQP_HEADER, frame_octets, received, rejected
from tests.unit.engine.host import LISTENER, Peer, Router, configuration
from tests.unit.engine.talk import begin, consumer, flow, message, producer, say, settle, start, transfer

MOST = 0xFFFFFFFF
#: Slices that one connection has in a wake: one when its octets are read, one when it resumes at the end.
SLICES_A_WAKE = 2
#: Units of the dearest frame, of which nothing can be left for later: its state is decoded, at 2 units an octet.
UNITS_A_FRAME = 2 * 16384
#: Units of a wake: a frame is charged after its work, so each slice is exceeded by one frame at most.
UNITS_A_WAKE = SLICES_A_WAKE * (Work.WORK_A_SLICE + UNITS_A_FRAME)
#: Processor time of a wake, compared with the longest wake of small transfers in the same process.
TIMES_A_REFERENCE = 20
REFERENCE = "small transfers"
REFERENCE_RUNS = 3
WAKES_MOST = 10_000
FRAMES = 2000
#: Handles of the links that each row starts with.
SENDING, RECEIVING, CROWD = 0, 1, 2
OPEN = AMQP_HEADER + say("open", container_id="test")
LINKS = (
    start() + producer(SENDING, "balanced.cost") + consumer(RECEIVING, "balanced.cost") + producer(CROWD, "multicast")
)
LONG = rejected("amqp:internal-error", "x" * 8000)
MAP = rejected("amqp:internal-error", "x", {str(number): number for number in range(700)})  # dear to decode
SECTION = b"\x00\x53\x72\xd1\x00\xff\xff\xff\x00\x00\x00\x02"  # annotations that claim 16 MB


def send(count: int, handle: int = SENDING, **fields: Any) -> bytes:
    return b"".join(transfer(handle, number, message(b"x"), **fields) for number in range(count))


#: Name of a row: octets that prepare the connection, and octets whose cost is measured.
ROWS: dict[str, tuple[bytes, bytes]] = {
    "protocol header": (b"", AMQP_HEADER),
    "open with many capabilities": (AMQP_HEADER, say("open", container_id="x" * 200, desired_capabilities=["y"] * 700)),
    "empty frames": (OPEN, frame_octets(b"") * FRAMES),
    "begin and end": (OPEN, (begin(1) + say("end", channel=1)) * FRAMES),
    "begin of the highest channel": (OPEN, begin(100)),
    "attach and detach": (LINKS, (consumer(9, "balanced.new", 0) + say("detach", handle=9, closed=True)) * 200),
    "end with many links": (LINKS + b"".join(consumer(h, "multicast", MOST) for h in range(3, 100)), say("end")),
    "close with many links": (LINKS + b"".join(consumer(h, "multicast", MOST) for h in range(3, 100)), say("close")),
    "session flows with echo": (LINKS, flow(None, echo=True, window=MOST) * FRAMES),
    "link flows with echo": (LINKS, flow(RECEIVING, MOST, echo=True) * FRAMES),
    "link flows with drain": (LINKS, flow(RECEIVING, MOST, drain=True) * FRAMES),
    "flows of a producer": (LINKS, flow(SENDING, MOST, available=MOST, echo=True) * FRAMES),
    "small transfers": (LINKS, send(FRAMES, settled=True)),
    "batchable transfers": (LINKS, send(200, batchable=True)),
    "aborted transfers": (LINKS, send(200, aborted=True)),
    "resumed transfers": (LINKS, send(200, resume=True)),
    "multicast transfers": (
        LINKS + b"".join(consumer(h, "multicast", 0) for h in range(3, 200)),
        send(200, CROWD, settled=True),
    ),
    "message of one-octet frames": (LINKS, transfer(SENDING, 0, message(bytes(4000)), part=1)),
    "section that does not end": (LINKS, transfer(SENDING, 0, SECTION + bytes(60_000), part=64)),
    "message of many sections": (LINKS, transfer(SENDING, 0, message(b"") * 10_000)),
    "dispositions of nothing": (LINKS, settle(0, 1 << 30, ACCEPTED) * FRAMES),
    "dispositions of all with long states": (LINKS + send(200), settle(0, 1 << 30, LONG, settled=False) * 200),
    "dispositions with maps": (LINKS + send(200), settle(0, 199, MAP, settled=False) * 200),
    "transfers with maps": (LINKS, send(200, state=MAP)),
    "dispositions with received": (LINKS + send(200), settle(0, 199, received(MOST, MOST), settled=False) * FRAMES),
    "dispositions of a producer": (LINKS + send(200), settle(0, 199, ACCEPTED, role=False, settled=False) * FRAMES),
}  # fmt: skip


@pytest.fixture(autouse=True)
def no_collection() -> Iterator[None]:
    """Routers of earlier tests are garbage that a worker would not have: collecting it is no cost of a frame."""
    gc.disable()
    yield
    gc.enable()


def prepare(router: Router, listener: str, octets: bytes) -> Peer:
    peer = router.connect(0, listener)
    if octets:
        peer.feed(octets)
    router.settle()
    peer.take()
    return peer


def unread(peer: Peer) -> bool:
    """True if octets of the peer wait in its socket or in the router."""
    return bool(peer.transport.readable_now()) or peer.connection.paused != 0


def costs(router: Router, peer: Peer) -> list[tuple[int, float]]:
    """Wake the worker until all octets are taken; return units and processor seconds of each wake."""
    worker = router.workers[0]
    scheduler = worker.loop.scheduler
    found: list[tuple[int, float]] = []
    moved = True
    while not peer.gone and (moved or unread(peer) or scheduler.unfinished()):
        units, seconds = scheduler.charged + scheduler.work, time.thread_time()
        router.wake(worker)
        seconds = time.thread_time() - seconds
        found.append((scheduler.charged + scheduler.work - units, seconds))
        moved = router.decide()
        peer.take()
        assert len(found) < WAKES_MOST, "the octets are never taken"
    return found


def play(router: Router, listener: str, row: str) -> list[tuple[int, float]]:
    before, octets = ROWS[row]
    peer = prepare(router, listener, before)
    peer.put(octets)
    return costs(router, peer)


def new_router(routers: Any) -> Router:
    router: Router = routers(1, configuration("linkCapacity: 4000; maxSessionFrames: 8000"))
    return router


@pytest.mark.parametrize("listener", [LISTENER, "broker"])
@pytest.mark.parametrize("row", ROWS)
def test_frame_with_expensive_arguments_stays_within_a_slice(routers: Any, row: str, listener: str) -> None:
    reference = max(
        seconds for _ in range(REFERENCE_RUNS) for _, seconds in play(new_router(routers), listener, REFERENCE)
    )
    router = new_router(routers)
    found = play(router, listener, row)
    assert max(units for units, _ in found) <= UNITS_A_WAKE
    assert max(seconds for _, seconds in found) <= TIMES_A_REFERENCE * reference
    router.settle()


@pytest.mark.parametrize("row", ["dispositions with maps", "transfers with maps"])
def test_state_that_is_decoded_is_charged(routers: Any, row: str) -> None:
    found = play(new_router(routers), LISTENER, row)
    assert sum(units for units, _ in found) >= 200 * len(encode(MAP))
