"""Shared-memory region: creation, mapping, refusals, reading and resetting."""

import errno
import os
import resource
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from sluice.router.ring.layout import DROP_NAMES, WorkerState
from sluice.router.ring.region import Region, RegionError
from sluice.router.testing.interworker import RingEnd, Sleeper, claim_link, free_link, set_address, set_worker

WORKERS = 3
LINKS = 100
ADDRESSES = 20
RING = 4096
BLOCK = 512  # octets, the unit of st_blocks

# Offsets of header fields, in octets.
VERSION_AT = 8
WORKERS_AT = 12
RING_OCTETS_AT = 24
LINK_SLOT_AT = 44


@pytest.fixture
def region() -> Iterator[Region]:
    made = Region.create(WORKERS, LINKS, ADDRESSES, RING)
    yield made
    made.close()


def test_new_region_is_zero(region: Region) -> None:
    assert (region.workers, region.links_per_worker) == (WORKERS, LINKS)
    assert (region.addresses, region.ring_octets) == (ADDRESSES, RING)
    assert region.link_stride % 64 == 0
    assert os.fstat(region.fd).st_size == region.size
    for worker in range(WORKERS):
        counters = region.worker_counters(worker)
        assert counters.pop("dropped") == [0] * 8
        assert counters.pop("latency") == [0] * 32
        assert set(counters.values()) == {0}
        assert set(region.address_counters(worker, ADDRESSES - 1).values()) == {0}
        assert region.link_counters(worker, LINKS - 1) is None
    assert len(DROP_NAMES) <= 8


def test_mappings_share_their_contents(region: Region) -> None:
    other = Region.attach(os.dup(region.fd))
    assert (other.workers, other.links_per_worker) == (WORKERS, LINKS)
    assert (other.addresses, other.ring_octets, other.size) == (ADDRESSES, RING, region.size)
    claim_link(region, 2, 99, 7, direction=2, credit=-5, deliveries=2**40, taken=[1, 2, 2**32 - 1])
    assert RingEnd(region, 2, 1).write(b"over there")
    counters = other.link_counters(2, 99)
    assert counters is not None
    assert (counters["generation"], counters["direction"], counters["credit"]) == (7, 2, -5)
    assert (counters["deliveries"], counters["taken"]) == (2**40, [1, 2, 2**32 - 1])
    assert RingEnd(other, 2, 1).read() == b"over there"
    other.close()


def test_slots_and_rings_do_not_overlap(region: Region) -> None:
    """Fill every slot and ring with a distinct value and check that each still holds its own."""
    for worker in range(WORKERS):
        set_worker(region, worker, ingress=worker + 1, latency=[worker + 1] * 32)
        for index in range(LINKS):
            claim_link(region, worker, index, worker * LINKS + index + 1, taken=[worker, index, 9])
        for address in range(ADDRESSES):
            set_address(region, worker, address, ingress=worker * ADDRESSES + address, spare=[1, 2])
        for consumer in range(WORKERS):
            ring = RingEnd(region, worker, consumer)
            while ring.write(bytes([worker * 16 + consumer]) * 1000):
                pass
    for worker in range(WORKERS):
        counters = region.worker_counters(worker)
        assert (counters["ingress"], counters["latency"]) == (worker + 1, [worker + 1] * 32)
        for index in range(LINKS):
            link = region.link_counters(worker, index)
            assert link is not None
            assert (link["generation"], link["taken"]) == (worker * LINKS + index + 1, [worker, index, 9])
        for address in range(ADDRESSES):
            assert region.address_counters(worker, address)["ingress"] == worker * ADDRESSES + address
        for consumer in range(WORKERS):
            ring = RingEnd(region, worker, consumer)
            records = list(iter(ring.read, None))
            assert records == [bytes([worker * 16 + consumer]) * 1000] * 4
    assert Region.attach(os.dup(region.fd)).workers == WORKERS


def test_large_region_takes_no_memory_until_used() -> None:
    region = Region.create(64, 1 << 18, 1 << 16, 1 << 20)
    assert region.size > 10 * 2**30
    claim_link(region, 63, (1 << 18) - 1, 1)
    free_link(region, 63, (1 << 18) - 1)
    assert RingEnd(region, 63, 0).write(b"x")
    region.reset_worker(5)
    assert os.fstat(region.fd).st_blocks * BLOCK < 2**20
    region.close()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((0, 1, 1, RING), "workers is 0, must be 1 to 64"),
        ((65, 1, 1, RING), "workers is 65"),
        (("2", 1, 1, RING), "workers is '2'"),
        ((1, 0, 1, RING), "links_per_worker is 0"),
        ((1, 2**40, 1, RING), "links_per_worker is 1099511627776"),
        ((1, 1, -1, RING), "addresses is -1"),
        ((1, 1, 1, 2048), "ring_octets is 2048"),
        ((1, 1, 1, 5000), "ring_octets is 5000, must be a power of two"),
        ((1, 1, 1, 2**31), "ring_octets is 2147483648"),
    ],
)
def test_create_with_invalid_size_is_refused(arguments: tuple[Any, ...], text: str) -> None:
    with pytest.raises(RegionError, match=text) as raised:
        Region.create(*arguments)
    assert raised.value.errno == errno.EINVAL


def test_create_reports_failed_system_call() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    descriptors = len(os.listdir("/proc/self/fd"))
    filled = [os.dup(0) for _ in range(8)]
    for fd in filled:
        os.close(fd)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(filled), hard))
    try:
        with pytest.raises(RegionError, match="memfd_create: Too many open files") as raised:
            Region.create(1, 1, 1, RING)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert raised.value.errno == errno.EMFILE
    assert len(os.listdir("/proc/self/fd")) == descriptors


def test_create_without_address_space_leaves_no_descriptor() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    descriptors = os.listdir("/proc/self/fd")
    with open("/proc/self/statm") as statm:
        mapped = int(statm.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (mapped + 2**30, hard))
    try:
        with pytest.raises(RegionError, match=r"mmap of \d+ octets: Cannot allocate memory"):
            Region.create(64, 1 << 18, 1 << 16, 1 << 20)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    assert os.listdir("/proc/self/fd") == descriptors


def test_create_too_large_for_a_file_is_an_error() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, hard))
    try:
        with pytest.raises(RegionError, match=r"size of \d+ octets: File too large"):
            Region.create(8, 1 << 18, 1 << 16, 1 << 20)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def copy_of(region: Region, *changes: tuple[int, str, int], size: int | None = None) -> int:
    """Return a descriptor with the octets of a region's header, changed at (offset, struct format, value)."""
    header = bytearray(os.pread(region.fd, 4096, 0))
    for at, form, value in changes:
        struct.pack_into(form, header, at, value)
    fd = os.memfd_create("copy")
    os.pwrite(fd, header, 0)
    os.ftruncate(fd, region.size if size is None else size)
    return fd


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ((0, "<Q", 0), "has no region behind it"),
        ((VERSION_AT, "=I", 999), "version is 999, this build has 9"),
        ((WORKERS_AT, "=I", 0), "workers is 0, must be 1 to 64"),
        ((WORKERS_AT, "=I", WORKERS + 1), r"size is \d+, expected \d+"),
        ((RING_OCTETS_AT, "=Q", 2**63), "ring_octets is 9223372036854775808"),
        ((LINK_SLOT_AT, "=I", 8), "link_slot is 8, expected 352: made by another build"),
    ],
)
def test_attach_with_changed_header_is_refused(region: Region, change: tuple[int, str, int], text: str) -> None:
    fd = copy_of(region, change)
    with pytest.raises(RegionError, match=text):
        Region.attach(fd)
    os.close(fd)  # still owned by the test


def test_attach_with_wrong_size_is_refused(region: Region) -> None:
    fd = copy_of(region, size=region.size - 4096)
    with pytest.raises(RegionError, match=f"has {region.size - 4096} octets, its header says {region.size}"):
        Region.attach(fd)
    os.close(fd)


def test_attach_accepts_an_exact_copy(region: Region) -> None:
    Region.attach(copy_of(region)).close()


def test_attach_to_other_files_is_refused() -> None:
    empty = os.memfd_create("empty")
    with pytest.raises(RegionError, match="holds 0 octets, a header has 72"):
        Region.attach(empty)
    os.close(empty)
    reading, writing = os.pipe()
    with pytest.raises(RegionError, match=f"read of descriptor {reading}: Illegal seek"):
        Region.attach(reading)
    os.close(reading)
    os.close(writing)
    with pytest.raises(RegionError, match="Bad file descriptor"):
        Region.attach(reading)


def test_region_file_cannot_be_shrunk(region: Region) -> None:
    with pytest.raises(PermissionError):
        os.ftruncate(region.fd, 4096)


def test_region_owns_its_descriptor() -> None:
    region = Region.create(1, 1, 1, RING)
    fd = region.fd
    again = Region.attach(os.dup(fd))
    del region
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)
    fd = again.fd
    again.close()
    again.close()
    assert again.fd == -1
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)
    with pytest.raises(ValueError, match="closed"):
        again.worker_counters(0)
    with pytest.raises(ValueError, match="closed"):
        again.reset_address(0)


def test_region_constructor_is_refused() -> None:
    with pytest.raises(TypeError, match=r"Region\.create"):
        Region()


def test_index_out_of_range_is_reported(region: Region) -> None:
    for worker in (-1, WORKERS):
        with pytest.raises(IndexError, match=f"worker {worker} of a region for {WORKERS}"):
            region.worker_counters(worker)
        with pytest.raises(IndexError):
            region.ring_state(0, worker)
        with pytest.raises(IndexError):
            region.reset_worker(worker)
    with pytest.raises(IndexError, match=f"link slot {LINKS} of a region for {LINKS} per worker"):
        region.link_counters(0, LINKS)
    with pytest.raises(IndexError, match=f"address {ADDRESSES} of a region for {ADDRESSES}"):
        region.address_counters(0, ADDRESSES)


def test_worker_state_is_stored_and_validated(region: Region) -> None:
    region.set_worker_state(1, WorkerState.READY, 3, 4711)
    counters = region.worker_counters(1)
    assert (counters["state"], counters["generation"], counters["pid"]) == (2, 3, 4711)
    assert region.worker_counters(0)["state"] == WorkerState.DOWN
    with pytest.raises(ValueError, match="9 is not a valid WorkerState"):
        region.set_worker_state(1, 9, 3, 4711)


def test_link_slot_is_visible_from_claim_to_release(region: Region) -> None:
    claim_link(region, 1, 5, 1, undelivered=3, taken=[1, 1, 1])
    assert region.worker_counters(1)["links_used_high"] == 6
    claim_link(region, 1, 2, 2)
    assert region.worker_counters(1)["links_used_high"] == 6
    free_link(region, 1, 5)
    assert region.link_counters(1, 5) is None
    claim_link(region, 1, 5, 3)
    link = region.link_counters(1, 5)
    assert link is not None
    assert (link["generation"], link["undelivered"], link["taken"]) == (3, 0, [0, 0, 0])


def test_end_of_link_has_counters_as_text(region: Region) -> None:
    claim_link(region, 1, 5, 1, deliveries=9, presettled=1, accepted=7, delayed_10s=2, last_delivery=123, blocked=1)
    assert region.link_end(1, 5) == (
        123, "del=9 presett=1 psdrop=0 acc=7 rej=0 rel=0 mod=0 delay1=0 delay10=2 blocked=yes",
    )  # fmt: skip
    free_link(region, 1, 5)
    claim_link(region, 1, 5, 2)
    assert region.link_end(1, 5) == (
        0, "del=0 presett=0 psdrop=0 acc=0 rej=0 rel=0 mod=0 delay1=0 delay10=0 blocked=no",
    )  # fmt: skip
    with pytest.raises(IndexError):
        region.link_end(1, LINKS)


def test_totals_are_sums_over_workers(region: Region) -> None:
    for worker in range(WORKERS):
        set_worker(region, worker, egress=10**worker, links=2, dropped=[worker] * 8, pid=99)
        set_address(region, worker, 4, to_container=10**worker)
    totals = region.router_totals()
    assert (totals["egress"], totals["links"], totals["dropped"]) == (111, 6, [3] * 8)
    assert not {"pid", "generation", "state", "sleeping", "heartbeat", "links_used_high"} & totals.keys()
    assert region.address_totals(4)["to_container"] == 111
    assert region.address_totals(5)["to_container"] == 0


def test_reset_worker_clears_only_that_worker(region: Region) -> None:
    for worker in range(WORKERS):
        set_worker(region, worker, connections=1, links=2, buffered=3, heartbeat=4, ingress=5)
        Sleeper(region, worker).set()
        claim_link(region, worker, 0, 11, undelivered=1)
        claim_link(region, worker, 40, 12, unsettled=1, taken=[1, 2, 3])
        for consumer in range(WORKERS):
            ring = RingEnd(region, worker, consumer)
            assert ring.write(b"record")
            ring.set_waits()
    region.reset_worker(1)
    reset = region.worker_counters(1)
    assert [reset[name] for name in ("connections", "links", "buffered", "heartbeat", "sleeping")] == [0] * 5
    assert (reset["ingress"], reset["links_used_high"]) == (5, 0)
    assert region.link_counters(1, 0) is None
    claim_link(region, 1, 60, 13)  # raises the high-water mark beyond the slots that were reset
    assert region.link_counters(1, 0) is None
    assert region.link_counters(1, 40) is None
    for producer in range(WORKERS):
        for consumer in range(WORKERS):
            dead = 1 in (producer, consumer)
            ring = RingEnd(region, producer, consumer)
            assert region.ring_state(producer, consumer)["used"] == (0 if dead else 16)
            assert ring.producer_waits() != dead
            assert ring.read() == (None if dead else b"record")
            if dead:
                assert region.ring_state(producer, consumer)["head"] == 0
    for worker in (0, 2):
        counters = region.worker_counters(worker)
        assert [counters[name] for name in ("connections", "links", "buffered", "sleeping")] == [1, 2, 3, 1]
        link = region.link_counters(worker, 40)
        assert link is not None
        assert (link["generation"], link["unsettled"], link["taken"]) == (12, 1, [1, 2, 3])


def test_reset_address_clears_it_in_all_workers(region: Region) -> None:
    for worker in range(WORKERS):
        for address in (6, 7, 8):
            set_address(region, worker, address, ingress=1, egress=2, redirected=3)
    region.reset_address(7)
    assert set(region.address_totals(7).values()) == {0}
    for address in (6, 8):
        assert region.address_totals(address)["redirected"] == 3 * WORKERS
