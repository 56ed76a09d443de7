"""Ring compared with a naive queue, and used between two processes."""

import contextlib
import multiprocessing
import os
import random
import select
import zlib
from collections import deque
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice.router.ring.region import Region
from sluice.router.testing.interworker import RingEnd, Sleeper, wake_worker

RING = 4096
LARGEST = RING // 4
RECORD_HEADER = 8
RING_HEADER = 128
RING_STRIDE = 8192  # header and data, rounded up to pages
RECORDS = 200_000
PATIENCE = 30.0  # seconds, far longer than any wake-up takes

SIZES = st.one_of(st.sampled_from([0, 1, 7, 8, 9, LARGEST - 1, LARGEST]), st.integers(0, LARGEST))
STEPS = st.lists(st.tuples(st.sampled_from(["write", "write", "read", "reserve"]), SIZES), max_size=300)


@pytest.fixture
def region() -> Iterator[Region]:
    made = Region.create(2, 16, 16, RING)
    yield made
    made.close()


def slack_of_ring_0_to_1(region: Region) -> bytes:
    """Return the octets between the ring's data and the next ring. The ring is the second of four at the region's
    end."""
    at = region.size - 3 * RING_STRIDE + RING_HEADER + RING
    return os.pread(region.fd, RING_STRIDE - RING_HEADER - RING, at)


def taken_by(record: bytes) -> int:
    return RECORD_HEADER + (len(record) + 7) // 8 * 8


def read_and_compare(consumer: RingEnd, model: deque[bytes]) -> None:
    expected = model.popleft() if model else None
    assert consumer.empty() == (expected is None)
    assert consumer.peek() == expected
    assert consumer.read() == expected


@settings(deadline=None, max_examples=200)
@given(steps=STEPS, seed=st.integers(0, 2**32))
def test_ring_behaves_like_queue(steps: list[tuple[str, int]], seed: int) -> None:
    region = Region.create(2, 1, 1, RING)
    producer, consumer = RingEnd(region, 0, 1), RingEnd(region, 0, 1)
    content = random.Random(seed)
    model: deque[bytes] = deque()
    for step, size in steps:
        if step == "read":
            read_and_compare(consumer, model)
        elif step == "reserve":
            producer.reserve(size)
        else:
            room = producer.room()
            assert room <= RING - sum(map(taken_by, model))
            record = content.randbytes(size)
            if producer.write(record):
                model.append(record)
                assert region.ring_state(0, 1)["used"] <= RING
            else:
                assert room < 2 * (size + 2 * RECORD_HEADER), f"{size} octets refused with {room} free"
    while model:
        read_and_compare(consumer, model)
    read_and_compare(consumer, model)
    assert producer.room() == RING
    assert not any(slack_of_ring_0_to_1(region)), "written past the end of the data"
    region.close()


@pytest.mark.parametrize("offset", range(0, RING, 248))
def test_largest_record_fits_empty_ring_at_any_offset(region: Region, offset: int) -> None:
    producer, consumer = RingEnd(region, 0, 1), RingEnd(region, 0, 1)
    moved = 0
    while moved < offset:
        assert producer.write(bytes(240))
        assert consumer.read() == bytes(240)
        moved += 248
    assert producer.largest == LARGEST
    assert producer.write(b"x" * LARGEST)
    assert consumer.read() == b"x" * LARGEST
    assert not any(slack_of_ring_0_to_1(region))


def test_record_beyond_largest_size_is_never_reserved(region: Region) -> None:
    producer = RingEnd(region, 0, 1)
    assert not producer.reserve(LARGEST + 1)
    assert not producer.reserve(2**32 - 1)
    with pytest.raises(ValueError, match="record of 1025 octets, the largest has 1024"):
        producer.write(bytes(LARGEST + 1))


def test_commit_may_use_less_than_reserved(region: Region) -> None:
    producer, consumer = RingEnd(region, 0, 1), RingEnd(region, 0, 1)
    for number in range(1000):
        record = b"%d" % number
        assert producer.write(record, extra=number)
        state = region.ring_state(0, 1)
        skipped = state["head"] // RING > state["tail"] // RING
        assert state["used"] == taken_by(record) or skipped
        assert consumer.read() == record
    assert consumer.read() is None


def test_reserved_record_is_invisible_before_commit(region: Region) -> None:
    producer, consumer = RingEnd(region, 0, 1), RingEnd(region, 0, 1)
    assert producer.reserve(100)
    assert consumer.read() is None
    assert producer.room() == RING


def test_full_ring_has_room_once_read(region: Region) -> None:
    producer, consumer = RingEnd(region, 0, 1), RingEnd(region, 0, 1)
    written = 0
    while producer.write(bytes(248)):
        written += 1
    assert written == RING // 256
    assert producer.room() == 0
    assert region.ring_state(0, 1) == {"head": RING, "tail": 0, "size": RING, "used": RING}
    assert consumer.read() == bytes(248)
    assert region.ring_state(0, 1) == {"head": RING, "tail": 256, "size": RING, "used": RING - 256}
    assert producer.write(bytes(248))


@pytest.mark.parametrize("octets", range(0, 248, 8))
def test_remaining_room_can_be_used_completely(region: Region, octets: int) -> None:
    producer, consumer = RingEnd(region, 0, 1), RingEnd(region, 0, 1)
    for _ in range(8):  # advance to the middle, so that the remaining room does not end at the end of the data
        assert producer.write(bytes(248))
        assert consumer.read() == bytes(248)
    for _ in range(15):
        assert producer.write(bytes(248))
    assert producer.write(bytes(octets))
    assert producer.room() == 248 - octets
    left = producer.room() - RECORD_HEADER
    assert not producer.reserve(max(left, 0) + 1)
    assert left < 0 or producer.reserve(left)


def test_rings_of_worker_pairs_are_separate(region: Region) -> None:
    assert RingEnd(region, 0, 1).write(b"there")
    assert RingEnd(region, 1, 0).read() is None
    assert RingEnd(region, 1, 1).read() is None
    assert RingEnd(region, 0, 1).read() == b"there"


def test_later_consumer_continues_where_ring_was_read(region: Region) -> None:
    producer, consumer = RingEnd(region, 0, 1), RingEnd(region, 0, 1)
    for record in (b"one", b"two", b"three"):
        assert producer.write(record)
    assert consumer.read() == b"one"
    later = RingEnd(region, 0, 1)
    assert later.read() == b"two"
    assert later.read() == b"three"


def record_number(number: int, content: random.Random) -> bytes:
    """Return a record: its number, random content, and a checksum of both."""
    body = number.to_bytes(4, "little") + content.randbytes(content.choice((0, 3, 40, 200)))
    return body + zlib.crc32(body).to_bytes(4, "little")


def check_record(record: bytes, number: int) -> None:
    assert zlib.crc32(record[:-4]) == int.from_bytes(record[-4:], "little"), f"record {number} is damaged"
    assert int.from_bytes(record[:4], "little") == number


def wait(poller: select.epoll, eventfd: int) -> None:
    if not poller.poll(PATIENCE):
        raise TimeoutError("a wake-up was lost")
    with contextlib.suppress(BlockingIOError):  # the counter was read before
        os.eventfd_read(eventfd)


def poller_of(eventfd: int) -> select.epoll:
    poller = select.epoll()
    poller.register(eventfd, select.EPOLLIN)
    return poller


def produce(region: Region, eventfds: list[int]) -> None:
    """Run worker 0: write all records, waiting for room if necessary."""
    ring, peer, poller = RingEnd(region, 0, 1), Sleeper(region, 1), poller_of(eventfds[0])
    content = random.Random(1)
    for number in range(RECORDS):
        record = record_number(number, content)
        while not ring.write(record):
            ring.set_waits()
            if ring.write(record):
                ring.clear_waits()
                break
            wait(poller, eventfds[0])
            ring.clear_waits()
        if peer.sleeps():
            wake_worker(eventfds[1])


def consume(region: Region, eventfds: list[int]) -> None:
    """Run worker 1: read and check all records, sleeping while there are none."""
    ring, own, poller = RingEnd(region, 0, 1), Sleeper(region, 1), poller_of(eventfds[1])
    for number in range(RECORDS):
        while (record := ring.read()) is None:
            own.set()
            if ring.empty():
                wait(poller, eventfds[1])
            own.clear()
        check_record(record, number)
        if ring.producer_waits():
            wake_worker(eventfds[0])
    assert ring.read() is None


def run_processes(*bodies: Callable[[], None]) -> None:
    """Fork a process for each body and check that all exit with 0."""
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=body) for body in bodies]
    for process in processes:
        process.start()
    for process in processes:
        process.join(2 * PATIENCE)
    late = [process for process in processes if process.is_alive()]
    for process in late:
        process.kill()
        process.join()
    assert not late
    assert [process.exitcode for process in processes] == [0] * len(processes)


@pytest.mark.starts
def test_small_ring_carries_stream_between_processes(region: Region) -> None:
    eventfds = [os.eventfd(0, os.EFD_NONBLOCK) for _ in range(2)]
    run_processes(lambda: produce(region, eventfds), lambda: consume(region, eventfds))
    state = region.ring_state(0, 1)
    assert state["used"] == 0
    assert state["head"] > RECORDS * RECORD_HEADER
    for eventfd in eventfds:
        os.close(eventfd)
