"""Session as its connection knows it."""
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

from sluice.router.amqp.node_list cimport NodeList
from sluice.router.amqp.survey cimport Survey

cdef enum:
    FRAME_TAKEN = 0
    FRAME_WAITS = 1            # the connection is paused, and the frame is to be offered again

# Base class of sessions. Owner: its connection.
cdef class Channel:
    cdef NodeList ready                    # links that may be able to write
    cdef Channel next_turn
    cdef bint has_turn                     # in the connection's list of sessions with a turn
    # Give the next link its turn. True: more links wait for one.
    cdef bint turn(self) except *
    cdef void reopen_window(self) noexcept    # reopen the window, which was shut because memory was full
    cdef void shorten_window(self) noexcept  # shorten the window to what it may promise now
    # True if the session has waited for room in vain for STANDSTILL_MS.
    cdef bint has_waited_too_long(self, uint64_t now) noexcept
    cdef void survey(self, Survey* found) noexcept  # add what its links hold
    cdef readonly uint16_t local_channel
    cdef readonly uint16_t remote_channel
    cdef bint in_dirty
    cdef int frame(self, uint8_t code, const uint8_t* p, const uint8_t* end) except -1
    cdef int flush(self) except -1
    cdef int end(self) except -1
    # Mark the session as lost: nothing is read or written. Its links end by `end_some_links`.
    cdef int lost(self) except -1
    # End up to `most` links; their number is added to `ended`. True: none is left.
    cdef bint end_some_links(self, uint32_t most, uint32_t* ended) except *
    cdef readonly bint unanswered           # begin sent by this side, and the peer has not answered
    cdef int answered(self, uint16_t number, list items) except -1
