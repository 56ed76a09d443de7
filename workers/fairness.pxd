"""Fairness of a worker: bounds of the work of a wake, and the scheduler of its event loop."""
from libc.stdint cimport uint64_t

from router.amqp.scheduler cimport Scheduler
from workers.poller cimport Poller

cdef enum:
    READ_BUFFER_OCTETS = 98304        # most octets of one read from a socket, and so of one connection in a wake
    WRITES_PER_TURN = 2               # full write buffers that one connection may send in one wake
    EVENTS_PER_WAKE = 256
    RING_PASSES_BEFORE_CONTROL = 16   # most passes over the rings before a control message is processed
    # A longer wake ends before all sockets were handled, so that output is sent and new events are seen.
    LONG_WAKE_NS = 20000000
    # Bounds of interpreter work while established clients are active: the time budget of one kind of work, which does
    # at least one item, and the number of new frames in a wake. Each of these frames may cost a wake of another
    # worker, too.
    INTERPRETER_BUDGET_NS = 150000
    FRAMES_WHILE_ACTIVE = 8
    # admission steps of a wake: frames before or with an open take a tenth of a millisecond
    ADMISSION_STEPS_PER_WAKE = 4
    # Admission steps that a step of a TLS handshake counts for: a signature may take half a millisecond.
    TLS_HANDSHAKE_COST = 4

# Scheduler of a loop. While established clients are active, it limits interpreter work to time budgets. Owner: the
# loop.
cdef class LoopScheduler(Scheduler):
    cdef Poller poller
    cdef bint shared                       # established clients are active
    cdef uint64_t budget_ends               # end of the current time budget in ns
    cdef void begin_time_budget(self) noexcept

cdef list order_deliveries_first(list dirty)
