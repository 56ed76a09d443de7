"""Sending link (part 2, 2.6)."""
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from sluice.router.client.plain_link cimport PlainLink, UnsettledEntry

# Outgoing delivery. Owner: its sender, until it is settled.
cdef class SentDelivery:
    cdef readonly uint32_t id              # set when the first frame is written
    cdef readonly bytes tag
    cdef readonly bint settled
    cdef public object context             # the sending code's object for the delivery
    cdef bytes octets
    cdef bytes state                       # encoded delivery state of its first transfer; b"": none
    cdef size_t written                    # number of its octets in the write buffer
    cdef uint32_t message_format
    cdef readonly bint started
    cdef readonly bint written_out         # the last frame is in the write buffer
    cdef bint aborted                      # settled before its last octet was written

cdef enum:
    STATE_MOST = 128           # most octets of the delivery state of a transfer

cdef class Sender(PlainLink):
    cdef object queue                      # deque of SentDelivery that are not fully written
    cdef bint drain
    cdef uint64_t next_tag
    cdef int write_part(self, SentDelivery d, size_t* budget) except -1
    cdef int finish_drain(self) except -1
    cdef int send_state(self, bint drain) except -1

# Raise ValueError if an encoded delivery state is too long for a transfer.
cdef int check_transfer_state(bytes state) except -1
