"""Outbox of a port: the ring to another worker, and a backlog of records that found no room.

Small records (settlements, updates, windows, records of routed links) wait in the backlog, in order. Deliveries have a
queue of their own (port_out.pyx), which is written only while the backlog is empty.
"""
from libc.string cimport memcpy

from sluice.router.amqp.buffer cimport buffer_release, buffer_room, buffer_used
from sluice.router.amqp.states cimport plain_state
from sluice.router.ring.port_work cimport PortWork, bit_of
from sluice.router.ring.records cimport DeliveryHead
from sluice.router.ring.region cimport Region
from sluice.router.ring.ring cimport ring_longest, ring_open, ring_publish, ring_reserve
from sluice.router.ring.wakeup cimport (
    doorbell_is_set, clear_producer_waits, set_doorbell, set_producer_waits, wake, worker_sleeps
)

from sluice.router.amqp.errors import RESOURCE_LIMIT, LocalError


cdef class Outbox:
    def __cinit__(self, PortWork work not None, Region region not None, int worker, int peer, int peer_eventfd):
        self.work = work
        self.bit = bit_of(peer)
        self.region = region
        self.own = region.worker_slot(worker)
        self.own_bit = bit_of(worker)
        self.peer = region.worker_slot(peer)
        self.peer_eventfd = peer_eventfd

    def __dealloc__(self):
        buffer_release(&self.backlog)

    cdef void open(self, RingHeader* header, uint64_t size) noexcept:
        """Start to write: the peer is live, and its ring empty."""
        ring_open(&self.ring, header, size)
        self.announce_at = min(<uint64_t>ANNOUNCE_OCTETS, size // 8)
        self.waits = self.urgent = False
        self.signal_at = self.penalty = self.at_once = 0
        self.is_open = True

    # -- notifying the peer -------------------------------------------------------------------------------------------

    cdef void announce(self) noexcept:
        """Publish the committed records and set the peer's doorbell.

        For outcomes alone a sleeping peer is not signalled at once: it may wake up by itself, for the next transfer.
        """
        if self.urgent or not self.work.patient or self.at_once:
            if not self.urgent and self.at_once:
                self.at_once -= 1
            self.urgent = False
            ring_publish(&self.ring)
            self.notify_peer()
            return
        ring_publish(&self.ring)
        if set_doorbell(self.peer, self.own_bit):
            self.signal_at = self.work.now + OUTCOME_WAIT_NS
            self.work.outcomes_due |= self.bit

    cdef void notify_peer(self) noexcept:
        """Set the peer's doorbell for records, or for room in its ring. Wake the peer if it sleeps."""
        if set_doorbell(self.peer, self.own_bit) or (self.signal_at and worker_sleeps(self.peer)):
            self.own.signals += 1
            wake(self.peer_eventfd)
        self.signal_at = 0
        self.work.outcomes_due &= ~self.bit

    cdef uint64_t owed(self, uint64_t now) noexcept:
        """Signal the peer if its deferred wake-up is due. Return the ns until then; 0: no outcomes wait."""
        if self.signal_at and doorbell_is_set(self.peer, self.own_bit):
            if now < self.signal_at:
                return self.signal_at - now
            # The peer has not woken up by itself, and may not do so the next times.
            self.penalty = min(max(2 * self.penalty, FEWEST_AT_ONCE), MOST_AT_ONCE)
            self.at_once = self.penalty
            self.notify_peer()
        elif self.signal_at:
            self.own.shared_wakes += 1
            self.penalty //= 2
        self.signal_at = 0
        self.work.outcomes_due &= ~self.bit
        return 0

    # -- records ------------------------------------------------------------------------------------------------------

    cdef uint8_t* reserve(self, uint32_t size) noexcept:
        """Reserve room for a record. NULL: the ring is full, and the peer sets our doorbell once it has made room."""
        cdef uint8_t* room = ring_reserve(&self.ring, size)
        if room is NULL:
            self.waits = True
            set_producer_waits(self.ring.header)
            room = ring_reserve(&self.ring, size)
        if room is not NULL and self.waits:
            # Anything that still waits reserves again in `flush`, at the end of each wake.
            self.waits = False
            clear_producer_waits(self.ring.header)
        return room

    cdef int give(self, const uint8_t* a, size_t a_size, const uint8_t* b, size_t b_size) except -1:
        """Put one record of two parts into the ring. Returns 0 if there is no room."""
        cdef uint8_t* w = self.reserve(<uint32_t>(a_size + b_size))
        if w is NULL:
            return 0
        memcpy(w, a, a_size)
        if b_size:
            memcpy(w + a_size, b, b_size)
        commit(self, <uint32_t>(a_size + b_size))
        return 1

    cdef int post(self, const uint8_t* a, size_t a_size, const uint8_t* b, size_t b_size) except -1:
        """Write one small record, now or (in order) once there is room. Raises LocalError if it can never fit."""
        cdef uint8_t* w
        cdef uint32_t size = <uint32_t>(a_size + b_size)
        if not self.is_open:
            return 0
        self.check_fits(a_size + b_size)
        if not buffer_used(&self.backlog) and self.give(a, a_size, b, b_size):
            return 0
        w = buffer_room(&self.backlog, 4 + a_size + b_size)
        memcpy(w, &size, 4)                # records have any length, so nothing here is aligned
        memcpy(w + 4, a, a_size)
        if b_size:
            memcpy(w + 4 + a_size, b, b_size)
        self.backlog.end += 4 + a_size + b_size
        mark_port_dirty(self)
        return 0

    cdef int post_outcome(self, const uint8_t* a, size_t a_size, const uint8_t* b, size_t b_size) except -1:
        """Write one small record as `post` does, but let it wait for the deferred wake-up of the peer."""
        cdef bint urgent = self.urgent
        self.post(a, a_size, b, b_size)
        if not buffer_used(&self.backlog) and ring_unpublished(&self.ring):
            self.urgent = urgent
        return 0

    cdef int check_fits(self, size_t size) except -1:
        """Raise LocalError for a record that can never fit: in the backlog it would block all later records."""
        if size > ring_longest(&self.ring):
            raise LocalError("link", RESOURCE_LIMIT, f"a record of {size} octets for another worker is too long")
        return 0

    cdef Slice fitting(self, uint8_t kind, const Slice* state) noexcept:
        """Return the state, or the state of this kind without fields if `state` is too long for a record."""
        if sizeof(DeliveryHead) + state.size > ring_longest(&self.ring):
            return plain_state(kind)
        return state[0]

    cdef int flush_backlog(self) except -1:
        """Move the backlog into the ring, as far as there is room. Returns 1 once it is empty."""
        cdef uint8_t* p
        cdef uint32_t size
        while buffer_used(&self.backlog):
            p = self.backlog.data + self.backlog.start
            memcpy(&size, p, 4)
            if not self.give(p + 4, size, NULL, 0):
                return 0
            self.backlog.start += 4 + size
        buffer_release(&self.backlog)
        return 1

    cdef void close(self) noexcept:
        """Stop writing: the peer has exited."""
        self.is_open = False
        self.signal_at = 0
        self.work.outcomes_due &= ~self.bit
        buffer_release(&self.backlog)
