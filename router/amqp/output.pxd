"""Output of a connection: its write buffer, the turns of its sessions to write, traces of frames."""
from libc.stdint cimport uint8_t, uint16_t

from sluice.router.amqp.buffer cimport WriteBuffer
from sluice.router.amqp.channel cimport Channel
from sluice.router.amqp.scheduler cimport ScheduledConnection

# Base class of a connection: its output. Owner: the transport.
cdef class ConnectionOutput(ScheduledConnection):
    cdef WriteBuffer out
    cdef readonly bint traced               # frames are traced by the handler
    cdef bint shown                         # the next frame to receive, which had to wait, was traced already
    cdef size_t traced_out                   # octets of `out` that were traced
    # Linked list of sessions with links that may be able to write, in the order of their turns.
    cdef Channel first_turn
    cdef Channel last_turn
    cdef list dirty_channels
    cdef int trace_received(self, const uint8_t* data, size_t size) except -1
    cdef int trace_sent(self) except -1
    cdef void sent(self, size_t octets) noexcept
    cdef int write(self, bytes octets) except -1
    cdef int send_frame(self, uint16_t channel, bytes body) except -1
    cdef int prepare(self) except -1
    cdef void mark_channel(self, Channel channel) noexcept
    cdef void want_turn(self, Channel channel, bint urgent) noexcept
    cdef void forget_output(self) noexcept  # drop all turns: no session writes any more
