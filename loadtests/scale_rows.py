"""The scenarios of `loadtests.scale` that are counted: what grows, and how large it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final

from loadtests.instruction_rows import BODY, LISTENER, MANY_LINKS, Round, hop, one_router, started
from loadtests.instructions import Play, Row
from tests.peer.frames import frame_octets
from tests.unit.engine.host import InProcessRouter, configuration
from tests.unit.engine.talk import consumer, message, producer

SLOTS: Final = (2, 8, 32, 64)  # of workers
CONSUMERS: Final = (32, 250, 1_000)  # more than the few that an exact rule is for
IDLE: Final = (1, 200)  # connections: as many as callgrind opens in half a minute
IDLE_ADDRESSES: Final = 100
SOME_SLOTS: Final = 8
CROWD: Final = 5  # connections that consumers are on
EMPTY: Final = frame_octets(b"")


#: A scenario of that size.
Sized = Callable[[int], AbstractContextManager[Play]]


@dataclass(frozen=True, slots=True)
class Scenario:
    """What is played, and what of it grows. unit: what is counted each time."""

    row: Sized
    grows: str
    sizes: tuple[int, ...]
    unit: str


@contextmanager
def alone(row: Row) -> Iterator[Play]:
    """Each delivery by itself: its wakes are its own."""
    with row() as play:

        def one_by_one(count: int) -> None:
            for _ in range(count):
                play(1)

        yield one_by_one


def pair(slots: int) -> AbstractContextManager[Play]:
    return one_router(slots=slots)


def apart(slots: int) -> AbstractContextManager[Play]:
    return one_router(workers=2, slots=slots)


@contextmanager
def wake(slots: int) -> Iterator[Play]:
    """A worker that slept hears an empty frame, and sleeps again."""
    router = InProcessRouter(1, configuration(LISTENER), slots=slots)
    peer = started(router, 0, b"")
    router.settle()

    def play(count: int) -> None:
        for _ in range(count):
            peer.put(EMPTY)
            router.run(peer.worker)

    yield play
    router.close()


@contextmanager
def crowd(consumers: int) -> Iterator[Play]:
    """One address with so many consumers, on both of two workers."""
    router = InProcessRouter(2, configuration(LISTENER), 1 << 22, slots=SOME_SLOTS, links=MANY_LINKS)
    receiving = []
    for number in range(CROWD):
        links = range(number, consumers, CROWD)
        octets = b"".join(consumer(handle, "balanced.a") for handle in range(len(links)))
        receiving.append(started(router, number % 2, octets))
    sending = started(router, 1, producer(0, "balanced.a"))
    yield Round(router.settle, sending, receiving, message(BODY), settled=False).play
    router.close()


@contextmanager
def idle(connections: int) -> Iterator[Play]:
    """A producer and a consumer beside so many connections of which nothing is heard."""
    router = InProcessRouter(1, configuration(LISTENER), links=MANY_LINKS)
    for number in range(connections):
        started(router, 0, consumer(0, f"balanced.{number % IDLE_ADDRESSES}"))
    others = list(router.peers)
    router.peers.clear()  # what the test itself does with each is not the router's
    receiving = [started(router, 0, consumer(0, "balanced.a"))]
    sending = started(router, 0, producer(0, "balanced.a"))
    yield Round(router.settle, sending, receiving, message(BODY), settled=False).play
    router.peers += others
    router.close()


SCENARIOS: Final[Mapping[str, Scenario]] = {
    "pair": Scenario(pair, "worker slots", SLOTS, "delivery"),
    "pair-alone": Scenario(lambda size: alone(partial(pair, size)), "worker slots", SLOTS, "delivery"),
    "apart": Scenario(apart, "worker slots", SLOTS, "delivery"),
    "apart-alone": Scenario(lambda size: alone(partial(apart, size)), "worker slots", SLOTS, "delivery"),
    "hop": Scenario(hop, "worker slots", SLOTS, "delivery"),
    "wake": Scenario(wake, "worker slots", SLOTS, "wake"),
    "consumers": Scenario(crowd, "consumers", CONSUMERS, "delivery"),
    "idle": Scenario(idle, "idle connections", IDLE, "delivery"),
}
#: By scenario and size.
ROWS: Final[dict[str, Row]] = {
    f"{name}@{size}": partial(one.row, size) for name, one in SCENARIOS.items() for size in one.sizes
}
