"""Fairness of a worker: bounds on the work of one wake, and the scheduler of its event loop."""
from libc.stdint cimport int32_t, uint64_t

from sluice.router.amqp.scheduler cimport Scheduler
from sluice.router.pacing.token_bucket cimport TokenBucket
from sluice.workers.poller cimport Poller

cdef enum:
    READ_BUFFER_OCTETS = 98304        # most octets of one read from a socket, and so of one connection in a wake
    BULK_OCTETS = 32768               # octets of one read from which a socket is read after those that send less
    WRITES_PER_TURN = 2               # full write buffers that one connection may send in one wake
    EVENTS_PER_WAKE = 256
    ESTABLISHED_MS = 1000             # time from the open of a client until its traffic limits the work for others
    RING_PASSES_BEFORE_CONTROL = 16   # most passes over the rings before a control message is processed
    # A wake that takes longer ends before all sockets are handled, so that output is sent and new events are polled.
    LONG_WAKE_NS = 20000000
    # Cost of a TLS handshake step in admission steps: a signature may take half a millisecond.
    TLS_HANDSHAKE_COST = 4

# Scheduler of a loop. While established clients are active, it limits interpreter work to time budgets, and the
# admission of connecting clients to a share of the time. Owner: the loop.
cdef class LoopScheduler(Scheduler):
    cdef Poller poller
    cdef bint shared                       # established clients were active when the wake began
    cdef uint64_t budget_ends              # end of the current time budget in ns
    cdef uint64_t active_at                # time in ms when deliveries, outcomes or credit last arrived
    # Heap of (place, ms, Transport): transports that wait for an admission step, each with the place of its client and
    # the time at which the client first had to wait. A client keeps its place until it is open. So few clients are
    # admitted in part: a handshake holds several times the memory of an open connection, and clients bound its time.
    cdef readonly list entering
    cdef uint64_t last_place               # last place given to a client
    cdef TokenBucket admission_bucket      # for admission steps and messages of the supervisor
    cdef int32_t admission_steps_left      # admission steps left in this wake while sockets are read
    cdef int32_t admission_steps_reserved  # admission steps reserved for transports in `entering`
    cdef void begin_time_budget(self) noexcept
    cdef bint has_active_clients(self) noexcept
    cdef int admission_divisor(self) noexcept
    cdef int admission_delay(self) noexcept
    cdef void charge_admission(self, uint64_t begun) noexcept
    cdef bint take_admission_step(self, int32_t cost) noexcept
    cdef void allow_admission_step(self) noexcept
    cdef void release_admission_steps(self) noexcept
    cdef uint64_t take_place(self) noexcept
    cdef int add_entering(self, uint64_t place, uint64_t since, object transport) except -1
    cdef bint may_admit(self) noexcept
    cdef object take_first_entering(self)

cdef list order_deliveries_first(list dirty)
