"""The event loop of a worker."""
from libc.stdint cimport int64_t, uint32_t, uint64_t

from router.interworker.layout cimport WorkerSlot
from router.amqp.scheduler cimport Scheduler
from router.interworker.port_work cimport PortWork
from workers.poller cimport PollEvent, Poller
from workers.transport.base cimport TransportHost

# Interpreter work in pieces, by the clock, while clients are heard. Owner: the loop.
cdef class LoopScheduler(Scheduler):
    cdef Poller poller
    cdef bint shared                       # clients are heard
    cdef uint64_t piece_ends               # ns
    cdef void begin_piece(self) noexcept

# Owner: the worker. Everything in it runs in the process's only thread.
cdef class Loop(TransportHost):
    cdef WorkerSlot* slot
    cdef object slot_owner                 # the Region
    cdef int worker
    cdef list ports                        # WorkerPort of other workers by number, None for our own
    cdef readonly PortWork port_work       # which of them have something to do
    cdef list timers                       # heap of (due ms, number, Transport or callable, its Connection or None)
    cdef uint64_t timer_number
    cdef LoopScheduler pieces              # the scheduler
    cdef int64_t allowance                 # ns that clients who come in may take; below 0: they have taken too much
    cdef uint64_t allowed_at               # ns: when it last grew
    cdef int last_fd                       # the last one handled in a wake that was cut short, else -1
    cdef bint trims                        # a timer to return memory is running
    cdef uint64_t used_at                  # ms: the last time much memory was used
    cdef public object control             # .dirty, .flush(): events for the supervisor, sent at the end of a wake
    cdef public bint running
    # This process counts in the slot of this worker from now on.
    cdef void count_here(self) noexcept
    cdef void clock(self) noexcept
    cdef int wait(self, PollEvent* events, int timeout, uint64_t owed) except -2
    cdef int wake(self, int timeout, uint64_t owed) except -1
    cdef uint64_t pay(self) except? 0xFFFFFFFFFFFFFFFF
    cdef int finish_wake(self) except -1
    cpdef void beat(self) noexcept
    cpdef void used_memory(self)
    cdef int flush_connections(self) except -1
    cdef int flush_all(self, list dirty, list later) except -1
    cdef int take_event(self, object what, uint32_t events) except -1
    cdef int read_inside(self) except -1
    cdef int let_in(self) except -1
    cdef int flush_ports(self) except -1
    cdef int resume_connections(self) except -1
    cdef int timeout(self) except -2
    cdef bint shared(self) noexcept
    cdef int parts(self) noexcept
    cdef void allow(self) noexcept
    cdef void charge(self, uint64_t begun) noexcept
    cdef int entrance(self) noexcept
    cdef bint bell_rung(self) noexcept
    cdef int answer_bells(self) except -1
    cdef int read_rings(self) except -1
    cdef int run_timers(self) except -1
