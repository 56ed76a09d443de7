"""Cost of each frame type with expensive legal arguments: one wake spends at most a slice and one further frame.

Work that is not charged in cost units shows in processor time only, which is compared with that of small transfers.
"""

import gc
import time
from collections.abc import Iterator
from itertools import zip_longest
from typing import Any

import pytest

from sluice.router.amqp.scheduler import UNITS_PER_SLICE
from tests.component.engine.expensive_frames import MAP, ROWS
from tests.component.engine.host import InProcessPeer, InProcessRouter
from tests.conftest import FLAVOUR
from tests.peer.codec import encode

#: Slices of one connection in a wake: one when its octets are read, one when it resumes at the end.
SLICES_A_WAKE = 2
#: Cost of the most expensive frame that cannot be interrupted: its state is decoded at 2 units an octet.
UNITS_A_FRAME = 2 * 16384
#: Bound for the cost of a wake. A frame is charged after its work, so each slice is exceeded by one frame at most.
UNITS_A_WAKE = SLICES_A_WAKE * (UNITS_PER_SLICE + UNITS_A_FRAME)
#: Bound for the processor time of a wake, relative to the longest wake of small transfers in the same process.
TIMES_A_REFERENCE = 20
REFERENCE = "small transfers"
#: Runs of the same frames. A host that interrupts its guest adds to the time of a wake, and never reduces it.
RUNS = 5
WAKES_MOST = 10_000


@pytest.fixture(autouse=True)
def no_collection() -> Iterator[None]:
    """Disable garbage collection: collecting routers of earlier tests is no cost of a frame."""
    gc.disable()
    yield
    gc.enable()


def unread(peer: InProcessPeer) -> bool:
    """Return True if octets of the peer wait in its socket or in the router."""
    return bool(peer.transport.readable_now()) or peer.connection.paused != 0


def costs(router: InProcessRouter, peer: InProcessPeer) -> list[tuple[int, float]]:
    """Wake the worker until all octets are read; return cost units and processor seconds of each wake."""
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


def play(routers: Any, name: str) -> list[tuple[int, float]]:
    row = ROWS[name]
    router = row.router(routers)
    peer = row.prepare(router)
    peer.put(row.octets)
    found = costs(router, peer)
    router.settle()
    return found


def shortest_times(routers: Any, name: str) -> list[float]:
    """Play the row RUNS times; return the processor seconds of each wake, the shortest of all runs."""
    runs = [[seconds for _, seconds in play(routers, name)] for _ in range(RUNS)]
    return [min(wakes) for wakes in zip_longest(*runs, fillvalue=float("inf"))]


@pytest.mark.parametrize("name", ROWS)
def test_frame_with_expensive_arguments_stays_within_a_slice(routers: Any, name: str) -> None:
    assert max(units for units, _ in play(routers, name)) <= UNITS_A_WAKE
    if FLAVOUR == "debug":
        return  # sanitizers slow each kind of work by a different factor
    reference = max(shortest_times(routers, REFERENCE))
    assert max(shortest_times(routers, name)) <= TIMES_A_REFERENCE * reference


@pytest.mark.parametrize("name", ["dispositions with maps", "transfers with maps"])
def test_decoded_state_is_charged(routers: Any, name: str) -> None:
    found = play(routers, name)
    assert sum(units for units, _ in found) >= 200 * len(encode(MAP))
