"""What a connection writes: its buffer, whose turn it is to write, traces of frames."""
from libc.stdint cimport uint8_t, uint16_t

from router.amqp.buffer cimport WriteBuffer
from router.amqp.channel cimport Channel
from router.amqp.scheduler cimport Scheduled

# Base of a connection. Owner: the transport.
cdef class ConnectionOutput(Scheduled):
    cdef WriteBuffer out
    cdef readonly bint traced               # frames are shown to the handler
    cdef bint shown                         # … and the next one, which waited, was already
    cdef size_t shown_out                   # octets of `out` that were
    cdef Channel first_turn                 # sessions that have links that may be able to write, in turns
    cdef Channel last_turn
    cdef list dirty_channels
    cdef int show_received(self, const uint8_t* data, size_t size) except -1
    cdef int show_sent(self) except -1
    cdef void sent(self, size_t octets) noexcept
    cdef int write(self, bytes octets) except -1
    cdef int send_frame(self, uint16_t channel, bytes body) except -1
    cdef int prepare(self) except -1
    cdef void mark_channel(self, Channel channel) noexcept
    cdef void want_turn(self, Channel channel, bint urgent) noexcept
    cdef void forget_output(self) noexcept  # no session writes any more
