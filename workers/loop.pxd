"""Event loop of a worker."""
from libc.stdint cimport uint32_t, uint64_t

from sluice.router.ring.layout cimport WorkerSlot
from sluice.router.ring.port_work cimport PortWork
from sluice.workers.poller cimport PollEvent
from sluice.workers.transport.base cimport TransportHost

# Event loop of a worker. Everything in it runs in the only thread of the process. Owner: the worker.
cdef class Loop(TransportHost):
    cdef WorkerSlot* slot
    cdef object slot_owner                 # the Region
    cdef int worker
    cdef list ports                        # WorkerPorts by worker number, None at this worker's own number
    cdef readonly PortWork port_work       # ports with something to do
    cdef list timers                       # heap of (due ms, number, Transport or callable, its Connection or None)
    cdef uint64_t timer_number
    cdef uint64_t waits_since              # time in ns since when the loop waits for events; 0: it does not
    cdef int last_fd                       # last descriptor handled in a wake that was cut short; -1: not cut short
    cdef bint trim_scheduled                        # the timer that returns memory to the system is running
    cdef uint64_t memory_used_at                  # last use of much memory in ms
    cdef public object control             # Control: events for the supervisor, sent at the end of a wake
    cdef public bint running
    # Let the counters of this process live in its worker slot from now on.
    cdef void use_own_counters(self) noexcept
    cdef void clock(self) noexcept
    cdef int wait(self, PollEvent* events, int timeout, uint64_t owed) except -2
    cdef int wake(self, int timeout, uint64_t owed) except -1
    cdef uint64_t signal_deferred_wakeups(self) except? 0xFFFFFFFFFFFFFFFF
    cdef int finish_wake(self) except -1
    cpdef void beat(self) noexcept
    cpdef void note_memory_use(self)
    cdef int flush_connections(self) except -1
    cdef int flush_all(self, list dirty, list later) except -1
    cdef int order_bulk_last(self, PollEvent* events, int n) except -1
    cdef bint handle_events(self, const PollEvent* events, int n, uint64_t begun) except -1
    cdef int handle_event(self, object what, uint32_t events) except -1
    cdef int read_buffered_transports(self) except -1
    cdef int admit_clients(self) except -1
    cdef int send_output(self) except -1
    cdef int flush_ports(self) except -1
    cdef int resume_connections(self) except -1
    cdef int timeout(self) except -2
    cdef bint doorbell_is_set(self) noexcept
    cdef int service_doorbells(self) except -1
    cdef int read_rings(self) except -1
    cdef int run_timers(self) except -1
