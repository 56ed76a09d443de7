"""Counted scenarios of `loadtests.scale`, with the quantity that grows and its sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final

from loadtests.instruction_rows import BODY, LISTENER, MANY_LINKS, Round, hop, one_router, started
from loadtests.instructions import Play, Row
from tests.component.engine.host import InProcessRouter, configuration
from tests.peer.frames import frame_octets
from tests.peer.talk import consumer, message, producer

SLOTS: Final = (2, 8, 32, 64)  # worker slots
CONSUMERS: Final = (32, 250, 1_000)  # more than the few consumers for which an exact rule chooses
IDLE: Final = (1, 200)  # connections: as many as callgrind opens in half a minute
IDLE_ADDRESSES: Final = 100
SOME_SLOTS: Final = 8
CROWD: Final = 5  # connections that carry the consumers
EMPTY: Final = frame_octets(b"")


#: Scenario of a given size.
Sized = Callable[[int], AbstractContextManager[Play]]


@dataclass(frozen=True, slots=True)
class ScaleScenario:
    """Scenario and the quantity that grows. unit: the event whose instructions are counted."""

    row: Sized
    grows: str
    sizes: tuple[int, ...]
    unit: str


@contextmanager
def alone(row: Row) -> Iterator[Play]:
    """Play deliveries one at a time, each with wakes of its own."""
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
    """Wake a sleeping worker by an empty frame, until it sleeps again."""
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
    """Play deliveries to one address with `consumers` consumers, on both of two workers."""
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
    """Play deliveries between a producer and a consumer beside `connections` idle connections."""
    router = InProcessRouter(1, configuration(LISTENER), links=MANY_LINKS)
    for number in range(connections):
        started(router, 0, consumer(0, f"balanced.{number % IDLE_ADDRESSES}"))
    others = list(router.peers)
    router.peers.clear()  # the test's own work for each peer must not be counted
    receiving = [started(router, 0, consumer(0, "balanced.a"))]
    sending = started(router, 0, producer(0, "balanced.a"))
    yield Round(router.settle, sending, receiving, message(BODY), settled=False).play
    router.peers += others
    router.close()


SCENARIOS: Final[Mapping[str, ScaleScenario]] = {
    "pair": ScaleScenario(pair, "worker slots", SLOTS, "delivery"),
    "pair-alone": ScaleScenario(lambda size: alone(partial(pair, size)), "worker slots", SLOTS, "delivery"),
    "apart": ScaleScenario(apart, "worker slots", SLOTS, "delivery"),
    "apart-alone": ScaleScenario(lambda size: alone(partial(apart, size)), "worker slots", SLOTS, "delivery"),
    "hop": ScaleScenario(hop, "worker slots", SLOTS, "delivery"),
    "wake": ScaleScenario(wake, "worker slots", SLOTS, "wake"),
    "consumers": ScaleScenario(crowd, "consumers", CONSUMERS, "delivery"),
    "idle": ScaleScenario(idle, "idle connections", IDLE, "delivery"),
}
#: Rows by scenario and size.
ROWS: Final[dict[str, Row]] = {
    f"{name}@{size}": partial(one.row, size) for name, one in SCENARIOS.items() for size in one.sizes
}
