"""Channels of a connection: its sessions by the channel numbers of both sides (AMQP 1.0 part 2, 2.5.1)."""
from libc.stdint cimport uint16_t, uint32_t

from sluice.router.amqp.channel cimport Channel
from sluice.router.amqp.object_table cimport ObjectTable
from sluice.router.amqp.output cimport ConnectionOutput

cdef enum:
    CHANNEL_MAX_LIMIT = 32767  # limit of Dispatch: maxSessions is at most 32768

# Base class of a connection: its channels. Owner: the transport.
cdef class ConnectionChannels(ConnectionOutput):
    cdef ObjectTable channels               # by remote channel
    cdef int open_channels                  # number of sessions begun by either side
    cdef readonly uint32_t local_channel_max
    cdef readonly uint32_t remote_channel_max
    cdef Channel channel_of(self, uint16_t number)
    cdef bint begun(self, uint16_t number, bytes ours, list items) except *
    cdef int forget_channel(self, Channel channel) except -1

cdef object above_channel_max(number, limit)
