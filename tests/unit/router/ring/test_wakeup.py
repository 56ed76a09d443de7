"""Sleeping and waking of workers: wake-ups are never lost, and never sent to a worker that is awake."""

import multiprocessing
import os
import select
from collections.abc import Iterator

import pytest

from sluice.router.ring.region import Region
from sluice.router.testing.interworker import RingEnd, Sleeper, ping_pong, wake_worker

ROUNDS = 100_000  # if a fence is missing, a wake-up is lost every 500 to 90,000 rounds on x86
PATIENCE_MS = 5_000  # far longer than any wake-up takes


@pytest.fixture
def region() -> Iterator[Region]:
    made = Region.create(2, 16, 16, 4096)
    yield made
    made.close()


@pytest.fixture
def eventfds() -> Iterator[list[int]]:
    made = [os.eventfd(0, os.EFD_NONBLOCK) for _ in range(2)]
    yield made
    for eventfd in made:
        os.close(eventfd)


def play(region: Region, worker: int, eventfds: list[int]) -> None:
    peer = 1 - worker
    with select.epoll() as poller:
        poller.register(eventfds[worker], select.EPOLLIN | select.EPOLLET)
        received = ping_pong(
            region,
            worker,
            peer,
            poller.fileno(),
            eventfds[peer],
            ROUNDS,
            serve=worker == 0,
            patience_ms=PATIENCE_MS,
        )
    assert received == ROUNDS, f"worker {worker} was not woken for record {received}"


@pytest.mark.starts
def test_wake_ups_between_processes_are_never_lost(region: Region, eventfds: list[int]) -> None:
    peer = multiprocessing.get_context("fork").Process(target=play, args=(region, 1, eventfds))
    peer.start()
    play(region, 0, eventfds)
    peer.join(PATIENCE_MS / 1000)
    assert peer.exitcode == 0
    assert region.worker_counters(0)["sleeping"] == 0
    assert region.worker_counters(1)["sleeping"] == 0


def test_worker_sleeps_from_set_to_clear(region: Region) -> None:
    own, other = Sleeper(region, 1), Sleeper(region, 0)
    assert not own.sleeps()
    own.set()
    assert own.sleeps()
    assert not other.sleeps()
    assert region.worker_counters(1)["sleeping"] == 1
    own.clear()
    assert not own.sleeps()


def test_producer_waits_from_set_to_clear(region: Region) -> None:
    producer, consumer = RingEnd(region, 0, 1), RingEnd(region, 0, 1)
    assert not consumer.producer_waits()
    producer.set_waits()
    assert consumer.producer_waits()
    assert not RingEnd(region, 1, 0).producer_waits()
    producer.clear_waits()
    assert not consumer.producer_waits()


def test_wake_makes_the_descriptor_readable(eventfds: list[int]) -> None:
    wake_worker(eventfds[0])
    wake_worker(eventfds[0])
    assert os.eventfd_read(eventfds[0]) == 2
    with pytest.raises(BlockingIOError):
        os.eventfd_read(eventfds[1])


def test_wake_of_a_saturated_descriptor_is_no_error(eventfds: list[int]) -> None:
    os.eventfd_write(eventfds[0], 2**64 - 2)
    wake_worker(eventfds[0])
    assert os.eventfd_read(eventfds[0]) == 2**64 - 2


def test_wake_of_other_descriptor_is_an_error() -> None:
    reading, writing = os.pipe()
    os.close(writing)
    with pytest.raises(OSError, match=f"wake of descriptor {reading}: Bad file descriptor"):
        wake_worker(reading)
    os.close(reading)
