"""Records on their way to another worker: the ring to it, and a backlog of those that found no room."""
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from router.amqp.buffer cimport WriteBuffer
from router.amqp.codec cimport Slice
from router.interworker.layout cimport RingHeader, WorkerSlot
from router.interworker.port_work cimport PortWork
from router.interworker.region cimport Region
from router.interworker.ring cimport Ring, ring_commit, ring_unpublished

cdef enum:
    # Octets of records that are published at the latest, also within a wake: the peer begins with them.
    ANNOUNCE_OCTETS = 32768
    # ns that outcomes may wait for a wake that the peer has anyway, before it is woken for them.
    OUTCOME_WAIT_NS = 200000
    # Outcomes for which the peer is woken at once, after some have waited in vain: the first time, and at most.
    FEWEST_AT_ONCE = 16
    MOST_AT_ONCE = 4096

# Owner: the port.
cdef class Outbox:
    cdef Ring ring                         # to the peer
    cdef bint is_open                      # the peer is alive
    cdef readonly bint waits               # the peer was asked to ring when it has made room
    cdef bint urgent                       # of what was written since the peer was told, something cannot wait
    cdef uint64_t announce_at              # octets that are published at once
    cdef PortWork work                     # of all ports, and …
    cdef uint64_t bit                      # … the port's bit in it
    cdef Region region                     # keeps the slots
    cdef WorkerSlot* own
    cdef WorkerSlot* peer
    cdef uint64_t own_bit                  # of this worker in doorbells
    cdef int peer_eventfd
    cdef uint64_t owed_at                  # ns: when the peer, which sleeps, is to be woken for outcomes; 0: never
    cdef uint32_t at_once                  # outcomes that do not wait, before the next ones may …
    cdef uint32_t penalty                  # … and how many these were
    cdef WriteBuffer backlog               # records (length, octets) that found no room
    cdef uint8_t* reserve(self, uint32_t size) noexcept
    cdef void announce(self) noexcept
    cdef void ring_peer(self) noexcept
    cdef uint64_t owed(self, uint64_t now) noexcept
    cdef int give(self, const uint8_t* a, size_t a_size, const uint8_t* b, size_t b_size) except -1
    cdef int post(self, const uint8_t* a, size_t a_size, const uint8_t* b, size_t b_size) except -1
    cdef int post_outcome(self, const uint8_t* a, size_t a_size, const uint8_t* b, size_t b_size) except -1
    cdef int check_fits(self, size_t size) except -1
    cdef Slice fitting(self, uint8_t kind, const Slice* state) noexcept
    cdef int flush_backlog(self) except -1
    cdef void open(self, RingHeader* header, uint64_t size) noexcept
    cdef void close(self) noexcept


cdef inline void mark(Outbox outbox) noexcept:
    """Something is to be done for its port at the end of this wake."""
    outbox.work.dirty |= outbox.bit


cdef inline void commit(Outbox outbox, uint32_t length) noexcept:
    """The reserved room has a record of so many octets, which does not wait for others."""
    ring_commit(&outbox.ring, length)
    outbox.urgent = True
    mark(outbox)
    if ring_unpublished(&outbox.ring) >= outbox.announce_at:
        outbox.announce()
