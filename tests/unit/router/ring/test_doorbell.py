"""Doorbells: a ring is never lost, whatever the interleaving, and only the bells that rang are serviced."""

import multiprocessing
import os
import select
from collections.abc import Iterator
from itertools import cycle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice.router.ring.region import Region
from sluice.router.testing.interworker import (
    Doorbell,
    RingEnd,
    Sleeper,
    receive_numbered_records,
    send_numbered_records,
    set_worker,
)

READER = 0
RING = 4096
ROUNDS = 60_000
PATIENCE_MS = 5_000  # far longer than any wake-up takes


@pytest.fixture
def region() -> Iterator[Region]:
    made = Region.create(4, 1, 1, RING)
    yield made
    made.close()


def test_bells_are_separate_and_serviced_together(region: Region) -> None:
    bells, other = Doorbell(region, READER), Doorbell(region, 1)
    assert not bells.any()
    bells.ring(3)
    bells.ring(1)
    assert bells.any()
    assert (bells.rung(1), bells.rung(2), bells.rung(3)) == (True, False, True)
    assert not other.any()
    assert bells.take() == [1, 3]
    assert not bells.any()
    assert bells.take() == []


def test_bell_of_sleeper_asks_for_one_wake_up(region: Region) -> None:
    bells, sleeper = Doorbell(region, READER), Sleeper(region, READER)
    assert not bells.ring(1)
    bells.take()
    sleeper.set()
    assert bells.ring(1)
    assert not bells.ring(1)
    assert bells.ring(2)
    sleeper.clear()
    assert bells.take() == [1, 2]
    assert not bells.ring(1)


def test_replaced_worker_starts_without_rung_bells(region: Region) -> None:
    Doorbell(region, READER).ring(2)
    Doorbell(region, 2).ring(READER)
    region.reset_worker(READER)
    assert not Doorbell(region, READER).any()
    assert Doorbell(region, 2).any()
    set_worker(region, READER, doorbells=1 << 2)
    assert Doorbell(region, READER).take() == [2]


class RingWriter:
    """Peer `number`, which writes `records` records. Each step makes one access to shared memory."""

    def __init__(self, region: Region, number: int, records: int) -> None:
        self.number = number
        self.ring = RingEnd(region, number, READER)
        self.bells = Doorbell(region, READER)
        self.reader = Sleeper(region, READER)
        self.left = records
        self.signals = 0
        self.step = self.write

    @property
    def done(self) -> bool:
        return self.step == self.write and not self.left

    def write(self) -> None:
        if self.left and self.ring.write(b"x"):
            self.left -= 1
            self.step = self.check_bell

    def check_bell(self) -> None:
        self.step = self.write if self.bells.rung(self.number) else self.set_doorbell

    def set_doorbell(self) -> None:
        self.bells.set(self.number)
        self.step = self.count_signal

    def count_signal(self) -> None:
        self.signals += self.reader.sleeps()
        self.step = self.write


class RingReader:
    """Worker that reads the rings whose bells rang, and blocks. Each step makes one access to shared memory."""

    def __init__(self, region: Region, writers: list[RingWriter]) -> None:
        self.bells = Doorbell(region, READER)
        self.own = Sleeper(region, READER)
        self.writers = writers
        self.rings = {writer.number: RingEnd(region, writer.number, READER) for writer in writers}
        self.rung: list[int] = []
        self.taken = 0
        self.blocked = False
        self.step = self.declare_sleep

    def signalled(self) -> bool:
        return any(writer.signals for writer in self.writers)

    def declare_sleep(self) -> None:
        self.own.set()
        self.step = self.check

    def check(self) -> None:
        self.blocked = not self.bells.any()
        self.step = self.wake

    def wake(self) -> None:
        """The wait consumes the edge of a signal, even if it did not block."""
        if self.blocked and not self.signalled():
            return
        for writer in self.writers:
            writer.signals = 0
        self.blocked = False
        self.own.clear()
        self.step = self.take

    def take(self) -> None:
        self.rung = self.bells.take()
        self.step = self.read

    def read(self) -> None:
        if self.rung and self.rings[self.rung[0]].read() is not None:
            self.taken += 1
        elif self.rung:
            self.rung.pop(0)
        else:
            self.step = self.declare_sleep


@settings(deadline=None, max_examples=500)
@given(
    counts=st.lists(st.integers(1, 6), min_size=1, max_size=3),
    order=st.lists(st.integers(0, 3), min_size=1, max_size=150),
)
def test_records_are_read_in_any_interleaving(counts: list[int], order: list[int]) -> None:
    region = Region.create(4, 1, 1, RING)
    writers = [RingWriter(region, number, count) for number, count in enumerate(counts, 1)]
    reader = RingReader(region, writers)
    actors: list[RingReader | RingWriter] = [reader, *writers]
    for at in order:
        actors[at % len(actors)].step()
    turns = cycle(actors)
    for _ in range(100 * sum(counts)):  # let the actors take turns until all is done
        next(turns).step()
    assert all(writer.done for writer in writers)
    assert reader.taken == sum(counts), f"a record lies in a ring, and the reader is {reader.step.__name__}"
    assert reader.blocked
    region.close()


def edges(eventfd: int) -> select.epoll:
    poller = select.epoll()
    poller.register(eventfd, select.EPOLLIN | select.EPOLLET)
    return poller


def write(region: Region, worker: int, eventfds: list[int]) -> None:
    poller = edges(eventfds[worker])
    assert (
        send_numbered_records(region, worker, READER, poller.fileno(), eventfds[READER], ROUNDS, PATIENCE_MS) == ROUNDS
    )


@pytest.mark.starts
def test_bells_between_processes_are_never_lost(region: Region) -> None:
    """Three processes write to one, into small rings that fill up now and then. No process reads an eventfd."""
    eventfds = [os.eventfd(0, os.EFD_NONBLOCK) for _ in range(4)]
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=write, args=(region, worker, eventfds)) for worker in (1, 2, 3)]
    for writer in writers:
        writer.start()
    poller = edges(eventfds[READER])
    assert receive_numbered_records(region, READER, poller.fileno(), eventfds, ROUNDS, PATIENCE_MS) == [
        0,
        ROUNDS,
        ROUNDS,
        ROUNDS,
    ]
    for writer in writers:
        writer.join(PATIENCE_MS / 1000)
    assert [writer.exitcode for writer in writers] == [0, 0, 0]
    for eventfd in eventfds:
        os.close(eventfd)
