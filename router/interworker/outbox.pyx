"""Records on their way to another worker: the ring to it, and a backlog of those that found no room.

Small records (settlements, updates, windows, what routed links say) wait in the backlog, in order; deliveries have a
queue of their own (port_out.pyx), of which nothing passes the backlog.
"""
from libc.string cimport memcpy

from router.amqp.buffer cimport buffer_release, buffer_room, buffer_used
from router.amqp.states cimport plain_state
from router.interworker.port_work cimport PortWork, bit_of
from router.interworker.records cimport Head
from router.interworker.region cimport Region
from router.interworker.ring cimport ring_longest, ring_open, ring_publish, ring_reserve
from router.interworker.wakeup cimport (
    bell_rung, clear_producer_waits, ring_bell, set_producer_waits, wake, worker_sleeps
)

from router.amqp.errors import RESOURCE_LIMIT, LocalError


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
        """The peer is live: its ring is empty."""
        ring_open(&self.ring, header, size)
        self.announce_at = min(<uint64_t>ANNOUNCE_OCTETS, size // 8)
        self.waits = self.urgent = False
        self.owed_at = self.penalty = self.at_once = 0
        self.is_open = True

    # -- telling the peer ---------------------------------------------------------------------------------------------

    cdef void announce(self) noexcept:
        """Publish what was written, and tell the peer. Outcomes alone let one that sleeps sleep on for a while: it may
        wake up by itself, for the next transfer."""
        if self.urgent or not self.work.patient or self.at_once:
            if not self.urgent and self.at_once:
                self.at_once -= 1
            self.urgent = False
            ring_publish(&self.ring)
            self.ring_peer()
            return
        ring_publish(&self.ring)
        if ring_bell(self.peer, self.own_bit):
            self.owed_at = self.work.now + OUTCOME_WAIT_NS
            self.work.owing |= self.bit

    cdef void ring_peer(self) noexcept:
        """Something is published that cannot wait: records, or room."""
        if ring_bell(self.peer, self.own_bit) or (self.owed_at and worker_sleeps(self.peer)):
            self.own.signals += 1
            wake(self.peer_eventfd)
        self.owed_at = 0
        self.work.owing &= ~self.bit

    cdef uint64_t owed(self, uint64_t now) noexcept:
        """ns until the peer is to be woken for outcomes that wait for it; 0: there are none (any more)."""
        if self.owed_at and bell_rung(self.peer, self.own_bit):
            if now < self.owed_at:
                return self.owed_at - now
            # It has not come by itself, and may not the next times.
            self.penalty = min(max(2 * self.penalty, FEWEST_AT_ONCE), MOST_AT_ONCE)
            self.at_once = self.penalty
            self.ring_peer()
        elif self.owed_at:
            self.own.shared_wakes += 1
            self.penalty //= 2
        self.owed_at = 0
        self.work.owing &= ~self.bit
        return 0

    # -- records ------------------------------------------------------------------------------------------------------

    cdef uint8_t* reserve(self, uint32_t size) noexcept:
        """Room for a record; NULL: there is none, and the peer is to signal when it has made some."""
        cdef uint8_t* room = ring_reserve(&self.ring, size)
        if room is NULL:
            self.waits = True
            set_producer_waits(self.ring.header)
            room = ring_reserve(&self.ring, size)
        if room is not NULL and self.waits:
            # What still waits asks again in `flush`, which ends each wake.
            self.waits = False
            clear_producer_waits(self.ring.header)
        return room

    cdef int give(self, const uint8_t* a, size_t a_size, const uint8_t* b, size_t b_size) except -1:
        """One record of two parts into the ring. 0: there is no room."""
        cdef uint8_t* w = self.reserve(<uint32_t>(a_size + b_size))
        if w is NULL:
            return 0
        memcpy(w, a, a_size)
        if b_size:
            memcpy(w + a_size, b, b_size)
        commit(self, <uint32_t>(a_size + b_size))
        return 1

    cdef int post(self, const uint8_t* a, size_t a_size, const uint8_t* b, size_t b_size) except -1:
        """One small record, now or (in order) when there is room. Raises LocalError when there never is."""
        cdef uint8_t* w
        cdef uint32_t size = <uint32_t>(a_size + b_size)
        if not self.is_open:
            return 0
        self.check_fits(a_size + b_size)
        if not buffer_used(&self.backlog) and self.give(a, a_size, b, b_size):
            return 0
        w = buffer_room(&self.backlog, 4 + a_size + b_size)
        memcpy(w, &size, 4)                # records are of any length: nothing here is aligned
        memcpy(w + 4, a, a_size)
        if b_size:
            memcpy(w + 4 + a_size, b, b_size)
        self.backlog.end += 4 + a_size + b_size
        mark(self)
        return 0

    cdef int post_outcome(self, const uint8_t* a, size_t a_size, const uint8_t* b, size_t b_size) except -1:
        """The same for what the peer need not hear at once."""
        cdef bint urgent = self.urgent
        self.post(a, a_size, b, b_size)
        if not buffer_used(&self.backlog) and ring_unpublished(&self.ring):
            self.urgent = urgent
        return 0

    cdef int check_fits(self, size_t size) except -1:
        """A record of this size can be written some day. One that cannot would be the first in line for ever."""
        if size > ring_longest(&self.ring):
            raise LocalError("link", RESOURCE_LIMIT, f"a record of {size} octets for another worker")
        return 0

    cdef Slice fitting(self, uint8_t kind, const Slice* state) noexcept:
        """The state, or the plain one of its kind when it is too long for a record."""
        if sizeof(Head) + state.size > ring_longest(&self.ring):
            return plain_state(kind)
        return state[0]

    cdef int flush_backlog(self) except -1:
        """1: nothing waits any more."""
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
        """The peer died: nothing is written any more."""
        self.is_open = False
        self.owed_at = 0
        self.work.owing &= ~self.bit
        buffer_release(&self.backlog)
