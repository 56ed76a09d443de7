"""Outbox of a port: the ring to another worker, and a backlog of records that found no room."""
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from sluice.router.amqp.buffer cimport WriteBuffer
from sluice.router.amqp.codec cimport Slice
from sluice.router.ring.layout cimport RingHeader, WorkerSlot
from sluice.router.ring.port_work cimport PortWork
from sluice.router.ring.region cimport Region
from sluice.router.ring.ring cimport Ring, ring_commit, ring_unpublished

cdef enum:
    # Octets of records after which they are published at once, also within a wake, so that the peer can start.
    ANNOUNCE_OCTETS = 32768
    # ns that outcomes may wait for the peer to wake up by itself, before it is signalled for them.
    OUTCOME_WAIT_NS = 200000
    # Number of announcements of outcomes for which the peer is signalled at once after a deferred wake-up became due.
    # It starts with the first constant and doubles each time, up to the second. It is halved when the peer wakes up by
    # itself.
    FEWEST_AT_ONCE = 16
    MOST_AT_ONCE = 4096

# Owner: the port.
cdef class Outbox:
    cdef Ring ring                         # ring to the peer
    cdef bint is_open                      # the peer is alive
    cdef readonly bint waits               # the peer must set our doorbell when it has made room
    cdef bint urgent                       # some unannounced record must not wait for the deferred wake-up
    cdef uint64_t announce_at              # octets of records after which they are published at once
    cdef PortWork work                     # work of all ports of this worker
    cdef uint64_t bit                      # the port's bit in `work`
    cdef Region region                     # reference that keeps `own` and `peer` mapped
    cdef WorkerSlot* own
    cdef WorkerSlot* peer
    cdef uint64_t own_bit                  # bit of this worker in doorbells
    cdef int peer_eventfd
    cdef uint64_t signal_at                  # ns: time at which the sleeping peer is signalled for outcomes; 0: never
    cdef uint32_t at_once                  # next announcements of outcomes for which the peer is signalled at once
    cdef uint32_t penalty                  # initial value of `at_once` the last time
    cdef WriteBuffer backlog               # records (length, octets) that found no room
    cdef uint8_t* reserve(self, uint32_t size) noexcept
    cdef void announce(self) noexcept
    cdef void notify_peer(self) noexcept
    cdef uint64_t owed(self, uint64_t now) noexcept
    cdef int give(self, const uint8_t* a, size_t a_size, const uint8_t* b, size_t b_size) except -1
    cdef int post(self, const uint8_t* a, size_t a_size, const uint8_t* b, size_t b_size) except -1
    cdef int post_outcome(self, const uint8_t* a, size_t a_size, const uint8_t* b, size_t b_size) except -1
    cdef int check_fits(self, size_t size) except -1
    cdef Slice fitting(self, uint8_t kind, const Slice* state) noexcept
    cdef int flush_backlog(self) except -1
    cdef void open(self, RingHeader* header, uint64_t size) noexcept
    cdef void close(self) noexcept


cdef inline void mark_port_dirty(Outbox outbox) noexcept:
    """Mark the outbox's port as having work at the end of this wake."""
    outbox.work.dirty |= outbox.bit


cdef inline void commit(Outbox outbox, uint32_t length) noexcept:
    """Commit a record of `length` octets in the reserved room. The peer is signalled for it."""
    ring_commit(&outbox.ring, length)
    outbox.urgent = True
    mark_port_dirty(outbox)
    if ring_unpublished(&outbox.ring) >= outbox.announce_at:
        outbox.announce()
