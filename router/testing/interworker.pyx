"""Access of tests and benchmarks to memory shared by workers: ends of rings, sleep flags, doorbells, slots."""
import os

from libc.errno cimport EINTR, ENOBUFS
from libc.errno cimport errno as c_errno
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from sluice.router.ring.atomics cimport RELAXED, RELEASE, SEQUENTIAL, fetch_or64, load32, store64
from sluice.router.ring.layout cimport MAX_WORKERS, SAMPLES, AddressSlot, LinkSlot, Sample, SampleRing, WorkerSlot
from sluice.router.ring.region cimport Region
from sluice.router.ring.ring cimport (
    Ring, ring_commit, ring_empty, ring_give_back, ring_open, ring_peek, ring_publish, ring_release, ring_reserve,
    ring_room,
)
from sluice.router.ring.port_work cimport bit_of
from sluice.router.ring.wakeup cimport (
    any_doorbell, doorbell_is_set, clear_producer_waits, clear_sleeping, producer_is_waiting, set_doorbell,
    set_producer_waits,
    set_sleeping, take_doorbells, wake, worker_sleeps
)

cdef extern from "<sys/epoll.h>" nogil:
    struct epoll_event:
        uint32_t events
    int epoll_wait(int epoll, epoll_event* events, int room, int patience_ms)

cdef enum:
    MOST_BUSY = 16384  # most reads of memory before a worker sleeps; some 10 us, longer than a wake-up takes
    BATCH = 3          # records published together
    BUSY_STEP = 7919   # prime number; its multiples modulo MOST_BUSY visit all numbers of reads in large steps


cdef int check_index(str what, int index, int end) except -1:
    if not 0 <= index < end:
        raise IndexError(f"{what} {index} of {end}")
    return 0


cdef class RingEnd:
    """End of the ring from worker `producer` to worker `consumer`. Use one object as either producer or consumer."""
    cdef Region region  # keeps the memory mapped
    cdef Ring ring

    def __cinit__(self, Region region not None, int producer, int consumer):
        check_index("producer", producer, region.workers)
        check_index("consumer", consumer, region.workers)
        self.region = region
        ring_open(&self.ring, region.ring(producer, consumer), region.ring_octets)

    @property
    def largest(self):
        """Size of the largest record in octets."""
        return self.ring.size // 4

    def write(self, bytes record not None, extra=0):
        """Producer: send a record. Return False without room. `extra`: octets reserved and not committed."""
        if len(record) + extra > self.largest:
            raise ValueError(f"record of {len(record) + extra} octets, the largest has {self.largest}")
        cdef uint8_t* room = ring_reserve(&self.ring, len(record) + extra)
        if room is NULL:
            return False
        memcpy(room, <const char*>record, len(record))
        ring_commit(&self.ring, len(record))
        ring_publish(&self.ring)
        return True

    def reserve(self, uint32_t length):
        """Producer: reserve room without committing it. Return whether there was room.

        Raises ValueError if the address is not a multiple of eight.
        """
        cdef uint8_t* room = ring_reserve(&self.ring, length)
        if <size_t>room % 8:
            raise ValueError(f"room for {length} octets is not aligned")
        return room is not NULL

    def room(self):
        """Producer: return the number of free octets."""
        return ring_room(&self.ring)

    def peek(self):
        """Consumer: return the next record without removing it, or None."""
        cdef uint32_t length
        cdef uint8_t* record = ring_peek(&self.ring, &length)
        return None if record is NULL else <bytes>record[:length]

    def read(self):
        """Consumer: remove and return the next record, or None."""
        record = self.peek()
        if record is not None:
            ring_release(&self.ring)
            ring_give_back(&self.ring)
        return record

    def empty(self):
        """Consumer: return whether there is no record."""
        return bool(ring_empty(&self.ring))

    def set_waits(self):
        """Producer: request a signal when there is room."""
        set_producer_waits(self.ring.header)

    def clear_waits(self):
        """Producer: withdraw the request for a signal."""
        clear_producer_waits(self.ring.header)

    def producer_waits(self):
        """Consumer: return whether the producer has requested a signal."""
        return bool(producer_is_waiting(self.ring.header))


cdef class Sleeper:
    """Sleep flag of a worker."""
    cdef Region region
    cdef WorkerSlot* slot

    def __cinit__(self, Region region not None, int worker):
        check_index("worker", worker, region.workers)
        self.region = region
        self.slot = region.worker_slot(worker)

    def set(self):
        """Worker: set the flag before blocking."""
        set_sleeping(self.slot)

    def clear(self):
        """Worker: clear the flag after waking up."""
        clear_sleeping(self.slot)

    def sleeps(self):
        """Producer: return whether the worker needs a signal."""
        return bool(worker_sleeps(self.slot))


cdef class Doorbell:
    """Doorbells of a worker. Each method makes one access to memory, of a peer or of the worker."""
    cdef Region region
    cdef WorkerSlot* slot

    def __cinit__(self, Region region not None, int worker):
        check_index("worker", worker, region.workers)
        self.region = region
        self.slot = region.worker_slot(worker)

    def rung(self, int by):
        """Peer `by`: return whether its doorbell is set and not serviced yet."""
        return bool(doorbell_is_set(self.slot, bit_of(by)))

    def set(self, int by):
        """Peer `by`: set its bit without the check of the sleep flag that `ring` includes."""
        fetch_or64(&self.slot.doorbells, bit_of(by), SEQUENTIAL)

    def ring(self, int by):
        """Peer `by`: ring. Return whether the worker needs a signal."""
        return bool(set_doorbell(self.slot, bit_of(by)))

    def any(self):
        """Worker: return whether any doorbell is set."""
        return bool(any_doorbell(self.slot))

    def take(self):
        """Worker: clear all doorbells. Return the numbers of the peers whose doorbells were set."""
        cdef uint64_t rung = take_doorbells(self.slot)
        return [by for by in range(self.region.workers) if rung & bit_of(by)]


def wake_worker(int eventfd):
    """Signal an eventfd. Raises OSError."""
    cdef int result = wake(eventfd)
    if result < 0:
        raise OSError(-result, f"wake of descriptor {eventfd}: {os.strerror(-result)}")


def claim_link(Region region not None, int worker, int index, uint32_t generation, taken=(), **fields):
    """Claim a link slot as its worker does, and set fields of LinkSlot by name."""
    cdef LinkSlot* slot
    cdef uint32_t* counts
    check_index("worker", worker, region.workers)
    check_index("link", index, region.links_per_worker)
    slot = region.claim_link(worker, index, generation)
    slot[0] = {**(<dict>slot[0]), **fields}
    counts = region.link_taken(slot)
    for other, count in enumerate(taken):
        counts[check_index("taken", other, region.workers) + <int>other] = count


def free_link(Region region not None, int worker, int index):
    """Free a link slot."""
    check_index("worker", worker, region.workers)
    check_index("link", index, region.links_per_worker)
    region.link_slot(worker, index).generation = 0


def write_sample(Region region not None, int worker, **fields):
    """Write a sample as the worker does, with fields of Sample by name."""
    cdef SampleRing* ring
    cdef Sample sample = Sample(0, 0, 0, 0, 0, 0, 0, 1)
    check_index("worker", worker, region.workers)
    ring = region.sample_ring(worker)
    ring.samples[ring.head % SAMPLES] = {**(<dict>sample), **fields}
    store64(&ring.head, ring.head + 1, RELEASE)


def set_worker(Region region not None, int worker, **fields):
    """Set fields of WorkerSlot by name."""
    cdef WorkerSlot* slot
    check_index("worker", worker, region.workers)
    slot = region.worker_slot(worker)
    slot[0] = {**(<dict>slot[0]), **fields}


def set_address(Region region not None, int worker, int address, **fields):
    """Set fields of AddressSlot by name."""
    cdef AddressSlot* slot
    check_index("worker", worker, region.workers)
    check_index("address", address, region.addresses)
    slot = region.address_slot(worker, address)
    slot[0] = {**(<dict>slot[0]), **fields}


cdef void be_busy(WorkerSlot* own, int reads) noexcept nogil:
    cdef int _i
    for _i in range(reads):
        load32(&own.pid, RELAXED)


cdef int wait_for_bell(WorkerSlot* own, int epoll, int patience_ms) noexcept nogil:
    """Sleep like a worker until a doorbell is set. Return 1, or 0 after the time limit, or a negative errno."""
    cdef epoll_event event
    cdef int ready = 1
    set_sleeping(own)
    if not any_doorbell(own):
        ready = epoll_wait(epoll, &event, 1, patience_ms)
    clear_sleeping(own)
    if ready < 0:
        return 1 if c_errno == EINTR else -c_errno
    return ready


cdef int announce(WorkerSlot* peer, int worker, int peer_eventfd) noexcept nogil:
    """Ring the peer's doorbell, and wake it if it sleeps. Return 1, or a negative errno."""
    cdef int result = 0
    if set_doorbell(peer, bit_of(worker)):
        result = wake(peer_eventfd)
    return result if result < 0 else 1


def ping_pong(Region region not None, int worker, int peer, int epoll, int peer_eventfd, unsigned int rounds,
              bint serve, int patience_ms):
    """Exchange `rounds` records with `peer`, and sleep before each one. The worker with `serve` sends first.

    `epoll` is an epoll descriptor that watches the worker's eventfd edge-triggered.

    Return the number of records received. Fewer than `rounds`: nothing arrived for `patience_ms`, so a wake-up was
    lost. The loop runs without the interpreter, and works for a varying short time before each sleep. So the answer
    often arrives at the moment of falling asleep. Raises OSError.
    """
    cdef Ring inbound, outbound
    cdef WorkerSlot* own
    cdef uint32_t length
    cdef unsigned int received = 0
    cdef int result = 1
    check_index("worker", worker, region.workers)
    check_index("peer", peer, region.workers)
    ring_open(&inbound, region.ring(peer, worker), region.ring_octets)
    ring_open(&outbound, region.ring(worker, peer), region.ring_octets)
    own = region.worker_slot(worker)
    with nogil:
        while received < rounds and result > 0:
            if serve:
                result = answer(&outbound, region.worker_slot(peer), worker, peer_eventfd)
            if result > 0:
                be_busy(own, (received * BUSY_STEP + <unsigned int>worker) % MOST_BUSY)
            while result > 0 and not (take_doorbells(own) & bit_of(peer) and not ring_empty(&inbound)):
                result = wait_for_bell(own, epoll, patience_ms)
            if result > 0:
                ring_peek(&inbound, &length)
                ring_release(&inbound)
                ring_give_back(&inbound)
                received += 1
                if not serve:
                    result = answer(&outbound, region.worker_slot(peer), worker, peer_eventfd)
    if result < 0:
        raise OSError(-result, f"ping-pong of worker {worker}: {os.strerror(-result)}")
    return received


cdef int answer(Ring* outbound, WorkerSlot* peer, int worker, int peer_eventfd) noexcept nogil:
    """Send a record, and wake its consumer if it sleeps. Return 1, or a negative errno."""
    if ring_reserve(outbound, 1) is NULL:  # the peer has sent more than one record per round
        return -ENOBUFS
    ring_commit(outbound, 1)
    ring_publish(outbound)
    return announce(peer, worker, peer_eventfd)


def send_numbered_records(Region region not None, int worker, int peer, int epoll, int peer_eventfd,
                          unsigned int rounds,
                          int patience_ms):
    """Send `rounds` numbered records to `peer`, which calls `receive_numbered_records`. Sleep while the ring is full.

    Return the number of records sent; fewer than `rounds` if a wake-up was lost. Raises OSError.
    """
    cdef Ring outbound
    cdef WorkerSlot* own
    cdef uint8_t* room
    cdef unsigned int sent = 0
    cdef int result = 1
    check_index("worker", worker, region.workers)
    check_index("peer", peer, region.workers)
    ring_open(&outbound, region.ring(worker, peer), region.ring_octets)
    own = region.worker_slot(worker)
    with nogil:
        while sent < rounds and result > 0:
            room = ring_reserve(&outbound, sizeof(sent))
            while room is NULL and result > 0:
                set_producer_waits(outbound.header)
                room = ring_reserve(&outbound, sizeof(sent))
                if room is NULL:
                    take_doorbells(own)
                    room = ring_reserve(&outbound, sizeof(sent))
                if room is NULL:
                    ring_publish(&outbound)    # the consumer makes room only for published records
                    result = announce(region.worker_slot(peer), worker, peer_eventfd)
                if room is NULL and result > 0:
                    result = wait_for_bell(own, epoll, patience_ms)
                    room = ring_reserve(&outbound, sizeof(sent))
                clear_producer_waits(outbound.header)
            if result <= 0:
                break
            memcpy(room, &sent, sizeof(sent))
            ring_commit(&outbound, sizeof(sent))
            sent += 1
            if sent % BATCH == 0 or sent == rounds:
                ring_publish(&outbound)
                result = announce(region.worker_slot(peer), worker, peer_eventfd)
            be_busy(own, (sent * BUSY_STEP + <unsigned int>worker) % MOST_BUSY // 4)
    if result < 0:
        raise OSError(-result, f"pouring of worker {worker}: {os.strerror(-result)}")
    return sent


def receive_numbered_records(Region region not None, int worker, int epoll, eventfds, unsigned int rounds,
                             int patience_ms):
    """Receive `rounds` records from each other worker, which calls `send_numbered_records`. Sleep while no doorbell is
    set.

    `eventfds` are those of all workers. Return the number of records received by worker; fewer than `rounds` if a
    wake-up was lost. Raises OSError, and ValueError for a record out of order.
    """
    cdef Ring[MAX_WORKERS] rings
    cdef int[MAX_WORKERS] signals
    cdef unsigned int[MAX_WORKERS] received
    cdef WorkerSlot* own
    cdef uint64_t rung
    cdef uint32_t length
    cdef uint8_t* record
    cdef unsigned int number
    cdef int peer, result = 1
    cdef int count = region.workers
    cdef int left = count - 1
    cdef int wrong = -1
    check_index("worker", worker, region.workers)
    for peer in range(count):
        ring_open(&rings[peer], region.ring(peer, worker), region.ring_octets)
        signals[peer] = eventfds[peer]
        received[peer] = 0
    own = region.worker_slot(worker)
    with nogil:
        while left and result > 0 and wrong < 0:
            rung = take_doorbells(own)
            if not rung:
                result = wait_for_bell(own, epoll, patience_ms)
                continue
            for peer in range(count):
                if not rung & bit_of(peer):
                    continue
                record = ring_peek(&rings[peer], &length)
                while record is not NULL:
                    memcpy(&number, record, sizeof(number))
                    if number != received[peer]:
                        wrong = peer
                    ring_release(&rings[peer])
                    received[peer] += 1
                    left -= received[peer] == rounds
                    record = ring_peek(&rings[peer], &length)
                ring_give_back(&rings[peer])
                if producer_is_waiting(rings[peer].header):
                    result = announce(region.worker_slot(peer), worker, signals[peer])
    if wrong >= 0:
        raise ValueError(f"record {received[wrong]} of worker {wrong} is another one")
    if result < 0:
        raise OSError(-result, f"draining of worker {worker}: {os.strerror(-result)}")
    return [received[peer] for peer in range(count)]
