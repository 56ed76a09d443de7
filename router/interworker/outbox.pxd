"""Records on their way to another worker: the ring to it, and a backlog of those that found no room."""
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from router.amqp.buffer cimport WriteBuffer
from router.amqp.codec cimport Slice
from router.interworker.layout cimport RingHeader
from router.interworker.ring cimport Ring

# Owner: the port.
cdef class Outbox:
    cdef Ring ring                         # to the peer
    cdef bint is_open                      # the peer is alive
    cdef readonly bint waits               # the peer was asked to signal when it has made room
    cdef bint signal                       # something was written since the peer was woken
    cdef bint dirty                        # something is to be done for the port at the end of this wake
    cdef WriteBuffer backlog               # records (length, octets) that found no room
    cdef void mark(self) noexcept
    cdef uint8_t* reserve(self, uint32_t size) noexcept
    cdef int give(self, const uint8_t* a, size_t a_size, const uint8_t* b, size_t b_size) except -1
    cdef int post(self, const uint8_t* a, size_t a_size, const uint8_t* b, size_t b_size) except -1
    cdef int check_fits(self, size_t size) except -1
    cdef Slice fitting(self, uint8_t kind, const Slice* state) noexcept
    cdef int flush_backlog(self) except -1
    cdef void open(self, RingHeader* header, uint64_t size) noexcept
    cdef void close(self) noexcept
