"""Shared memory region: creation, mapping, and read access for Python (layout.pxd).

In order: header, worker slots, link slots by worker, counters of addresses by worker, samples by worker, quotas, rings
by ordered pair (producer, consumer). The region is a sparse memfd: a page costs memory once it is touched, even by a
read.
"""
import errno
import fcntl
import os
import time

from libc.errno cimport errno as c_errno
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset
from posix.mman cimport MAP_FAILED, MAP_NORESERVE, MAP_SHARED, PROT_READ, PROT_WRITE, mmap, munmap
from posix.unistd cimport close as close_descriptor

from sluice.router.ring.atomics cimport ACQUIRE, RELAXED, RELEASE, load32, load64, store32, store64
from sluice.router.ring.link_counts cimport link_unsettled
from sluice.router.ring.layout cimport (
    DROP_PRODUCER_LOST, DROP_UNFINISHED, MAX_WORKERS, QUOTAS, RATE_SECONDS, REGION_VERSION, AddressSlot, LinkSlot,
    QuotaSlot, RegionHeader, RemoteSlot, RingHeader, SampleRing, WorkerSlot,
)

from sluice.router.ring.layout import WorkerState

MEMFD_NAME = "sluice"             # shown in /proc/<pid>/maps
MAX_LINKS_PER_WORKER = 1 << 20    # the low 20 bits of a link slot's generation count its uses
MAX_QUOTAS = QUOTAS
MAX_ADDRESSES = 1 << 24           # 1 GiB of counters for each worker, when all are used
MIN_RING_OCTETS = 1 << 12         # a page
MAX_RING_OCTETS = 1 << 30         # the length of a record has 32 bits and some are kept

cdef enum:
    CACHE_LINE = 64               # octets
    RATE_OF = 5                   # seconds that a link's rate is averaged over (management schema: settleRate)
    PAGE = 4096                   # octets; with larger pages, neighbours share a page at no extra cost
    WORD = 8                      # octets
    NANOSECONDS = 1000000000      # in a second

# "sluiceR" and a zero octet as a little-endian word: another byte order does not match either.
cdef uint64_t MAGIC = 0x00526563_69756C73


class RegionError(OSError):
    """Raised when the region cannot be made or mapped. `errno` is the reason, `strerror` names part and value."""


# Fields that describe one worker at one time: not summed over workers.
OWN_FIELDS = frozenset({"state", "generation", "pid", "sleeping", "doorbells", "heartbeat", "heard", "links_used_high"})


cdef size_t round_up(size_t octets, size_t unit) noexcept nogil:
    return (octets + unit - 1) // unit * unit


cdef void read_words(void* target, const void* source, size_t octets) noexcept nogil:
    """Copy words of shared memory, none of them torn. Both must be aligned, `octets` a multiple of eight."""
    cdef size_t i
    for i in range(octets // WORD):
        (<uint64_t*>target)[i] = load64(<const uint64_t*>source + i, RELAXED)


cdef uint32_t finished_before(const LinkSlot* slot, uint32_t second) noexcept nogil:
    """Return the deliveries finished (mod 2**32) at the start of `second`: one of the last RATE_OF, or a later one."""
    if second > slot.rate_second:
        return <uint32_t>slot.finished
    return slot.started[second % RATE_SECONDS]


# Counters of a link without deliveries, as text of the log.
cdef str UNUSED_LINK = "del=0 presett=0 psdrop=0 acc=0 rej=0 rel=0 mod=0 delay1=0 delay10=0 blocked=no"


cdef double finished_rate(const LinkSlot* slot, uint64_t now) noexcept nogil:
    """Return the deliveries finished per second, over the RATE_OF seconds before `now` (ns)."""
    cdef uint32_t second = <uint32_t>(now // NANOSECONDS)
    cdef uint32_t first = second - RATE_OF
    cdef uint32_t before
    cdef double part
    if slot.rate_second < first:
        return 0.0
    if second < slot.rate_second:
        first = slot.rate_second - RATE_OF     # the worker's clock was read after ours
    before = finished_before(slot, first)
    part = <double>(now % NANOSECONDS) / NANOSECONDS * <uint32_t>(finished_before(slot, first + 1) - before)
    return (<double><uint32_t>(<uint32_t>slot.finished - before) - part) / RATE_OF


cdef object invalid(str text):
    """Return the error for an impossible value."""
    return RegionError(errno.EINVAL, f"memory region: {text}")


cdef object failed(str what, int number):
    """Return the error for a failed system call."""
    return RegionError(number, f"memory region: {what}: {os.strerror(number)}")


cdef int check_range(str name, value, int low, int high) except -1:
    """Raise RegionError unless `low` <= value <= `high`."""
    if not isinstance(value, int) or not low <= value <= high:
        raise invalid(f"{name} is {value!r}, must be {low} to {high}")
    return 0


cdef int check_shape(workers, links_per_worker, addresses, ring_octets) except -1:
    """Raise RegionError naming the first of the four that is out of range."""
    check_range("workers", workers, 1, MAX_WORKERS)
    check_range("links_per_worker", links_per_worker, 1, MAX_LINKS_PER_WORKER)
    check_range("addresses", addresses, 1, MAX_ADDRESSES)
    check_range("ring_octets", ring_octets, MIN_RING_OCTETS, MAX_RING_OCTETS)
    if ring_octets & (ring_octets - 1):
        raise invalid(f"ring_octets is {ring_octets}, must be a power of two")
    return 0


cdef int check_open(Region region) except -1:
    if region.base is NULL:
        raise ValueError("memory region is closed")
    return 0


cdef int check_worker(Region region, int worker) except -1:
    check_open(region)
    if not 0 <= worker < region.workers:
        raise IndexError(f"worker {worker} of a region for {region.workers}")
    return 0


cdef int check_link(Region region, int index) except -1:
    if not 0 <= index < region.links_per_worker:
        raise IndexError(f"link slot {index} of a region for {region.links_per_worker} per worker")
    return 0


cdef int check_address(Region region, int address) except -1:
    check_open(region)
    if not 0 <= address < region.addresses:
        raise IndexError(f"address {address} of a region for {region.addresses}")
    return 0


cdef int check_quota(Region region, int index) except -1:
    check_open(region)
    if not 0 <= index < QUOTAS:
        raise IndexError(f"quota {index} of {QUOTAS}")
    return 0


cdef int set_shape(Region region, int workers, int links_per_worker, int addresses, size_t ring_octets) except -1:
    """Compute all offsets and the size. They follow from the four numbers, so they are equal in every process."""
    region.workers = workers
    region.links_per_worker = links_per_worker
    region.addresses = addresses
    region.ring_octets = ring_octets
    region.worker_stride = round_up(sizeof(WorkerSlot), CACHE_LINE)
    region.link_stride = round_up(sizeof(LinkSlot) + sizeof(uint32_t) * workers, CACHE_LINE)
    region.links_stride = round_up(region.link_stride * links_per_worker, PAGE)
    region.addresses_stride = round_up(sizeof(AddressSlot) * addresses, PAGE)
    region.sample_stride = round_up(sizeof(SampleRing), PAGE)
    region.ring_stride = round_up(sizeof(RingHeader) + ring_octets, PAGE)
    region.workers_at = round_up(sizeof(RegionHeader), PAGE)
    region.links_at = region.workers_at + round_up(region.worker_stride * workers, PAGE)
    region.addresses_at = region.links_at + region.links_stride * workers
    region.samples_at = region.addresses_at + region.addresses_stride * workers
    region.quotas_at = region.samples_at + region.sample_stride * workers
    region.rings_at = region.quotas_at + round_up(sizeof(QuotaSlot) * QUOTAS, PAGE)
    region.size = region.rings_at + region.ring_stride * workers * workers
    return 0


cdef RegionHeader expected_header(Region region) noexcept:
    cdef RegionHeader header
    header.magic = MAGIC
    header.version = REGION_VERSION
    header.workers = region.workers
    header.links_per_worker = region.links_per_worker
    header.addresses = region.addresses
    header.ring_octets = region.ring_octets
    header.size = region.size
    header.worker_slot = sizeof(WorkerSlot)
    header.link_slot = sizeof(LinkSlot)
    header.address_slot = sizeof(AddressSlot)
    header.ring_header = sizeof(RingHeader)
    header.sample_ring = sizeof(SampleRing)
    header.quota_slot = sizeof(QuotaSlot)
    header.kept = 0
    return header


cdef int map_region(Region region, int fd, bint writes) except -1:
    cdef int access = PROT_READ | PROT_WRITE if writes else PROT_READ
    cdef void* base = mmap(NULL, region.size, access, MAP_SHARED | MAP_NORESERVE, fd, 0)
    cdef int number = c_errno
    if base == MAP_FAILED:
        raise failed(f"mmap of {region.size} octets", number)
    region.base = <uint8_t*>base
    region.fd = fd
    return 0


cdef int make_memfd(size_t size) except -1:
    """Make a sealed memfd of `size` octets: no process can shrink it while others use it (SIGBUS)."""
    cdef int fd
    try:
        fd = os.memfd_create(MEMFD_NAME, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    except OSError as error:
        raise failed("memfd_create", error.errno) from error
    try:
        os.ftruncate(fd, size)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    except OSError as error:
        os.close(fd)
        raise failed(f"size of {size} octets", error.errno) from error
    return fd


cdef RegionHeader read_header(int fd) except *:
    cdef RegionHeader header
    try:
        octets = os.pread(fd, sizeof(RegionHeader), 0)
    except OSError as error:
        raise failed(f"read of descriptor {fd}", error.errno) from error
    if len(octets) < <Py_ssize_t>sizeof(RegionHeader):
        raise invalid(f"descriptor {fd} holds {len(octets)} octets, a header has {sizeof(RegionHeader)}")
    memcpy(&header, <const char*>octets, sizeof(RegionHeader))
    return header


cdef int check_header(Region region, RegionHeader header, int fd) except -1:
    """Compare the region's header, field by field, with that of this build."""
    cdef dict expected = expected_header(region)
    for name, value in (<dict>header).items():
        if name != "kept" and value != expected[name]:
            raise invalid(f"{name} is {value}, expected {expected[name]}: made by another build")
    size = os.fstat(fd).st_size
    if size != <Py_ssize_t>region.size:
        raise invalid(f"descriptor {fd} has {size} octets, its header says {region.size}")
    return 0


cdef class Region:
    def __cinit__(self):
        self.fd = -1

    def __init__(self):
        raise TypeError("a memory region comes from Region.create or Region.attach")

    @staticmethod
    def create(workers, links_per_worker, addresses, ring_octets):
        """Make and map a region, all zero except its header.

        workers: 1 to 64. links_per_worker, addresses: number of slots. ring_octets: data of one ring, a power of two.
        Raises RegionError when an argument is out of range, or a system call fails.
        """
        cdef Region region = Region.__new__(Region)
        cdef RegionHeader header
        check_shape(workers, links_per_worker, addresses, ring_octets)
        set_shape(region, workers, links_per_worker, addresses, ring_octets)
        fd = make_memfd(region.size)
        try:
            map_region(region, fd, True)
        except RegionError:
            os.close(fd)
            raise
        header = expected_header(region)
        memcpy(region.base, &header, sizeof(RegionHeader))
        return region

    @staticmethod
    def attach(int fd, bint writes=True):
        """Map the region of `fd`, which the region owns afterwards; on an error it stays the caller's.

        writes: False for a process that only reads; its descriptor may be open for reading only.
        Raises RegionError if `fd` is no region, is one of another version or build, or cannot be mapped.
        """
        cdef Region region = Region.__new__(Region)
        cdef RegionHeader header = read_header(fd)
        if header.magic != MAGIC:
            raise invalid(f"descriptor {fd} has no region behind it (magic is {header.magic:#018x})")
        if header.version != REGION_VERSION:
            raise invalid(f"version is {header.version}, this build has {REGION_VERSION}")
        check_shape(header.workers, header.links_per_worker, header.addresses, header.ring_octets)
        set_shape(region, header.workers, header.links_per_worker, header.addresses, header.ring_octets)
        check_header(region, header, fd)
        map_region(region, fd, writes)
        return region

    def __dealloc__(self):
        if self.base is not NULL:
            munmap(self.base, self.size)
            close_descriptor(self.fd)

    def close(self):
        """Unmap the region and close the descriptor. No pointer into the region may be used afterwards. Idempotent."""
        if self.base is NULL:
            return
        munmap(self.base, self.size)
        self.base = NULL
        fd, self.fd = self.fd, -1
        os.close(fd)

    cdef uint64_t links_kept(self) noexcept nogil:
        return load64(&(<RegionHeader*>self.base).kept, RELAXED)

    cdef WorkerSlot* worker_slot(self, int worker) noexcept nogil:
        return <WorkerSlot*>(self.base + self.workers_at + self.worker_stride * worker)

    cdef LinkSlot* link_slot(self, int worker, uint32_t index) noexcept nogil:
        return <LinkSlot*>(self.base + self.links_at + self.links_stride * worker + self.link_stride * index)

    cdef LinkSlot* claim_link(self, int worker, uint32_t index, uint32_t generation) noexcept nogil:
        cdef LinkSlot* slot = self.link_slot(worker, index)
        cdef WorkerSlot* owner = self.worker_slot(worker)
        if owner.links_used_high <= index:
            store32(&owner.links_used_high, index + 1, RELEASE)
        memset(slot, 0, self.link_stride)
        store32(&slot.generation, generation, RELEASE)
        return slot

    cdef uint32_t* link_taken(self, LinkSlot* slot) noexcept nogil:
        return <uint32_t*>(slot + 1)

    cdef AddressSlot* address_slot(self, int worker, uint32_t address) noexcept nogil:
        return <AddressSlot*>(self.base + self.addresses_at + self.addresses_stride * worker) + address

    cdef RemoteSlot* remote_slot(self, int worker, uint32_t counters) noexcept nogil:
        return <RemoteSlot*>self.address_slot(worker, counters)

    cdef QuotaSlot* quota_slot(self, uint32_t index) noexcept nogil:
        return <QuotaSlot*>(self.base + self.quotas_at) + index

    cdef SampleRing* sample_ring(self, int worker) noexcept nogil:
        return <SampleRing*>(self.base + self.samples_at + self.sample_stride * worker)

    cdef RingHeader* ring(self, int producer, int consumer) noexcept nogil:
        return <RingHeader*>(self.base + self.rings_at
                             + self.ring_stride * (<size_t>producer * self.workers + consumer))

    def worker_counters(self, int worker):
        """Return all fields of a worker's slot by name; `dropped` and `latency` are lists. Raises IndexError."""
        cdef WorkerSlot copy
        check_worker(self, worker)
        read_words(&copy, self.worker_slot(worker), sizeof(WorkerSlot))
        counters = <dict>copy
        for pad in ("pad0", "pad1", "pad2", "pad3"):
            del counters[pad]
        return counters

    def router_totals(self):
        """Return the counters of all workers added up: worker_counters without OWN_FIELDS."""
        totals = {name: value for name, value in self.worker_counters(0).items() if name not in OWN_FIELDS}
        for worker in range(1, self.workers):
            counters = self.worker_counters(worker)
            for name, value in totals.items():
                if isinstance(value, list):
                    totals[name] = [a + b for a, b in zip(value, counters[name], strict=True)]
                else:
                    totals[name] = value + counters[name]
        return totals

    def link_counters(self, int worker, int index):
        """Return the fields of a link's slot by name, and three computed ones; None: the slot is free.

        `taken` is a list by worker. `rate` is deliveries finished per second, over the last five. `held` is deliveries
        that occupy a place, settled ones of a producer included.

        None also when the slot was freed, and perhaps claimed again, while it was read. Raises IndexError.
        """
        cdef LinkSlot copy
        cdef LinkSlot* slot
        cdef uint32_t* taken
        check_worker(self, worker)
        check_link(self, index)
        if <uint32_t>index >= load32(&self.worker_slot(worker).links_used_high, ACQUIRE):
            return None
        slot = self.link_slot(worker, index)
        generation = load32(&slot.generation, ACQUIRE)
        if generation == 0:
            return None
        read_words(&copy, slot, sizeof(LinkSlot))
        taken = self.link_taken(slot)
        counters = <dict>copy
        for own in ("container", "rate_second", "started", "ended", "round_trip", "latency", "stall_mark"):
            del counters[own]
        counters["held"] = copy.unsettled
        counters["unsettled"] = link_unsettled(&copy)
        counters["rate"] = finished_rate(&copy, time.monotonic_ns())
        counters["taken"] = [load32(taken + other, ACQUIRE) for other in range(self.workers)]
        return counters if load32(&slot.generation, ACQUIRE) == generation else None

    def link_end(self, int worker, int index):
        """Return the time of the last delivery of a link that ends (CLOCK_MONOTONIC ns; 0: it had none), and its
        counters as text of the log, with the names of 1.19. To be called by the slot's owner. Raises IndexError.
        """
        cdef LinkSlot* slot
        check_worker(self, worker)
        check_link(self, index)
        slot = self.link_slot(worker, index)
        if not (slot.deliveries | slot.presettled | slot.dropped_presettled | slot.accepted | slot.rejected
                | slot.released | slot.modified | slot.delayed_1s | slot.delayed_10s | slot.blocked):
            return slot.last_delivery, UNUSED_LINK
        return slot.last_delivery, (
            f"del={slot.deliveries} presett={slot.presettled} psdrop={slot.dropped_presettled} acc={slot.accepted}"
            f" rej={slot.rejected} rel={slot.released} mod={slot.modified} delay1={slot.delayed_1s}"
            f" delay10={slot.delayed_10s} blocked={'yes' if slot.blocked else 'no'}"
        )

    def address_counters(self, int worker, int address):
        """Return the counters of an address in one worker, by name. Raises IndexError."""
        cdef AddressSlot copy
        check_worker(self, worker)
        check_address(self, address)
        read_words(&copy, self.address_slot(worker, address), sizeof(AddressSlot))
        return <dict>copy

    def address_totals(self, int address):
        """Return the counters of an address added up over all workers, by name. Raises IndexError."""
        totals = self.address_counters(0, address)
        for worker in range(1, self.workers):
            for name, value in self.address_counters(worker, address).items():
                totals[name] += value
        return totals

    def set_worker_state(self, int worker, int state, uint32_t generation, uint32_t pid):
        """Set the state of a worker (WorkerState).

        Called by the supervisor. A reader of the new state sees the new generation and pid.
        """
        cdef WorkerSlot* slot
        check_worker(self, worker)
        WorkerState(state)  # raises ValueError for an unknown state
        slot = self.worker_slot(worker)
        store32(&slot.generation, generation, RELAXED)
        store32(&slot.pid, pid, RELAXED)
        store32(&slot.state, state, RELEASE)

    def keep_links(self, uint64_t nanoseconds):
        """Set how long counters of ended links stay readable; 0: not at all. Called by the supervisor."""
        check_open(self)
        store64(&(<RegionHeader*>self.base).kept, nanoseconds, RELAXED)

    def worker_heartbeat(self, int worker):
        """Return the time of the worker's last look at the clock, CLOCK_MONOTONIC ns; 0: never. Raises IndexError."""
        check_worker(self, worker)
        return load64(&self.worker_slot(worker).heartbeat, RELAXED)

    def worker_heard(self, int worker):
        """Return the time at which the worker last read from an established client, CLOCK_MONOTONIC ms; 0: never.

        Raises IndexError.
        """
        check_worker(self, worker)
        return load64(&self.worker_slot(worker).heard, RELAXED)

    def reset_worker(self, int worker):
        """Clear the state of a worker that has exited. Called by the supervisor after all live workers have
        acknowledged.

        Empties its rings in both directions, frees its link slots, clears its gauges (links, connections, buffered,
        stuck, blocked, sleeping, doorbells, heartbeat, heard). Its counters stay, so that totals never fall. Raises
        IndexError.
        """
        cdef WorkerSlot* slot
        check_worker(self, worker)
        with nogil:
            for peer in range(self.workers):
                empty_ring(self.ring(worker, peer))
                empty_ring(self.ring(peer, worker))
            free_links(self, worker)
            slot = self.worker_slot(worker)
            count_unfinished(slot)
            store64(&slot.connections, 0, RELAXED)
            store64(&slot.links, 0, RELAXED)
            store64(&slot.buffered, 0, RELAXED)
            store64(&slot.windows_shut, 0, RELAXED)
            store64(&slot.stuck, 0, RELAXED)
            store64(&slot.blocked, 0, RELAXED)
            store64(&slot.heartbeat, 0, RELAXED)
            store64(&slot.heard, 0, RELAXED)
            store64(&slot.doorbells, 0, RELAXED)
            store32(&slot.sleeping, 0, RELEASE)

    def reset_address(self, int address):
        """Zero an address's counters in all workers, before its id is reused.

        Called by the supervisor. Raises IndexError.
        """
        cdef size_t i
        check_address(self, address)
        for worker in range(self.workers):
            for i in range(sizeof(AddressSlot) // WORD):
                store64(<uint64_t*>self.address_slot(worker, address) + i, 0, RELAXED)

    def reset_quota(self, int index):
        """Zero a quota before it is used. Called by the supervisor. Raises IndexError."""
        check_quota(self, index)
        memset(self.quota_slot(index), 0, sizeof(QuotaSlot))

    def set_quota_links(self, int index, uint64_t links):
        """Set the number of producers' links that share a quota. Called by the supervisor. Raises IndexError."""
        check_quota(self, index)
        store64(&self.quota_slot(index).links, links, RELAXED)

    def reset_quota_worker(self, int index, int worker):
        """Clear the octets that a worker which has exited held against a quota.

        Called by the supervisor. Raises IndexError.
        """
        check_quota(self, index)
        check_worker(self, worker)
        store64(&self.quota_slot(index).held[worker], 0, RELAXED)

    def quota_counters(self, int index):
        """Return the use of a quota by name: `messages`, `octets`, `held_back`, and `buffered` (octets held now).

        `messages_until` and `octets_until` are times of CLOCK_MONOTONIC in ns, see `QuotaSlot`. Raises IndexError.
        """
        cdef QuotaSlot copy
        check_quota(self, index)
        read_words(&copy, self.quota_slot(index), sizeof(QuotaSlot))
        return {
            "messages": copy.messages, "octets": copy.octets, "held_back": copy.held_back,
            "messages_until": copy.messages_until, "octets_until": copy.octets_until,
            "buffered": sum([copy.held[worker] for worker in range(self.workers)]),
        }

    def remote_unsettled(self, int counters):
        """Return the unsettled deliveries of an address to one other router, over all workers. counters: their id (op
        `+r`).

        Raises IndexError.
        """
        check_address(self, counters)
        return sum([load64(&self.remote_slot(worker, counters).unsettled, RELAXED) for worker in range(self.workers)])

    def ring_state(self, int producer, int consumer):
        """Return `head` and `tail` (octets ever written and read), `size` (octets of data), `used` (octets in it
        now)."""
        cdef RingHeader* ring
        check_worker(self, producer)
        check_worker(self, consumer)
        ring = self.ring(producer, consumer)
        tail = load64(&ring.tail, ACQUIRE)  # first: the head read after it cannot be behind it
        head = load64(&ring.head, ACQUIRE)
        return {"head": head, "tail": tail, "size": self.ring_octets, "used": head - tail}


cdef void count_unfinished(WorkerSlot* slot) noexcept nogil:
    """Count the deliveries that were not finished when their worker exited: each one is counted in and counted out."""
    cdef uint64_t ended = slot.ended_accepted + slot.ended_rejected + slot.ended_released + slot.ended_modified \
        + slot.settled_no_state + slot.presettled + slot.dropped[DROP_PRODUCER_LOST] + slot.dropped[DROP_UNFINISHED]
    if slot.ingress > ended:
        store64(&slot.dropped[DROP_UNFINISHED], slot.dropped[DROP_UNFINISHED] + slot.ingress - ended, RELAXED)


cdef void empty_ring(RingHeader* ring) noexcept nogil:
    store64(&ring.head, 0, RELAXED)
    store64(&ring.tail, 0, RELAXED)
    store32(&ring.producer_waits, 0, RELEASE)


cdef void free_links(Region region, int worker) noexcept nogil:
    """Zero the slots in use. Only slots that were ever claimed are read: reading others would cost memory."""
    cdef WorkerSlot* owner = region.worker_slot(worker)
    cdef LinkSlot* slot
    cdef uint32_t index
    for index in range(owner.links_used_high):
        slot = region.link_slot(worker, index)
        if slot.generation:
            memset(slot, 0, region.link_stride)
    store32(&owner.links_used_high, 0, RELEASE)
