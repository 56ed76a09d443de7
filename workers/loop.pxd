"""The event loop of a worker, and the transports of its connections."""
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from router.amqp.connection cimport Connection, Scheduler
from router.ipc.layout cimport WorkerSlot

# Octets on their way between a socket and a connection. Owner: the loop. This one is plain TCP; others override the
# two methods that touch the socket.
cdef class Transport:
    cdef readonly int fd                   # -1 when closed
    cdef readonly Connection connection
    cdef Loop loop
    cdef uint8_t* rest                     # octets of an incomplete frame, or of frames that wait
    cdef size_t rest_size
    cdef uint32_t interest                 # epoll events asked for
    cdef bint lingers                      # the connection has ended, its last octets have not left
    cdef uint64_t due                      # ms: when the connection wants its tick, 0: never
    cdef ssize_t read_some(self, uint8_t* data, size_t size) except? -2
    cdef ssize_t write_some(self, const uint8_t* data, size_t size) except? -2
    cdef int readable(self) except -1
    cdef int feed(self, size_t fresh) except -1
    cdef int flush(self) except -1
    cdef int watch(self) except -1
    cdef int lost(self) except -1
    cdef int look(self) except -1
    cdef int close(self) except -1
    cdef int ended_by(self, object fault) except -1

# Owner: the worker. Everything in it runs in the process's only thread.
cdef class Loop:
    cdef readonly Scheduler scheduler
    cdef int epoll
    cdef WorkerSlot* slot
    cdef object slot_owner
    cdef list transports                   # by descriptor: Transport, callable, or None
    cdef list ports                        # WorkerPort of other workers
    cdef uint8_t* room                     # where sockets are read to, shared by all connections
    cdef size_t room_size
    cdef list timers                       # heap of (due ms, number, Transport or callable, its Connection or None)
    cdef uint64_t timer_number
    cdef int last_fd                       # the last one of a wake that was cut short, -1: none was
    cdef bint trims                        # a timer runs that gives memory back
    cdef uint64_t used_at                  # ms: when much of it was last used
    cdef uint64_t went_on                  # ms: when this process last went on after it had been held up, 0: never was
    cdef list fed                          # connections read in this wake
    cdef public object control             # .dirty, .flush(): what is to be told the supervisor at the end of a wake
    cdef public bint running
    cdef void clock(self) noexcept
    cdef int wake(self, int timeout) except -1
    cdef int finish_wake(self) except -1
    cpdef void beat(self) noexcept
    cpdef void used_memory(self)
    cdef int flush_connections(self) except -1
    cdef int flush_all(self, list dirty) except -1
    cdef int take_event(self, object what, uint32_t events) except -1
    cdef int flush_ports(self) except -1
    cdef int resume_connections(self) except -1
    cdef int timeout(self) except -2
    cdef bint rings_empty(self) noexcept
    cdef int run_timers(self) except -1
