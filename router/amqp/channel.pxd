"""A session, as its connection knows it."""
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

from router.amqp.node_list cimport NodeList
from router.amqp.survey cimport Survey

cdef enum:
    FRAME_TAKEN = 0
    FRAME_WAITS = 1            # the connection is paused and this frame is to be offered again

# Owner: its connection.
cdef class Channel:
    cdef NodeList ready                    # links that may be able to write
    cdef Channel next_turn
    cdef bint has_turn                     # it is in the connection's list
    # Give the next link its turn. True: there are more.
    cdef bint turn(self) except *
    cdef void room_again(self) noexcept    # its window was shut because memory was full, and may open
    cdef void shorten_window(self) noexcept  # to what it may promise now
    cdef bint stands_still(self, uint64_t now) noexcept  # … and it has waited in vain for STANDSTILL_MS
    cdef void survey(self, Survey* found) noexcept  # add its links
    cdef readonly uint16_t local_channel
    cdef readonly uint16_t remote_channel
    cdef bint in_dirty
    cdef int frame(self, uint8_t code, const uint8_t* p, const uint8_t* end) except -1
    cdef int flush(self) except -1
    cdef int end(self) except -1
    # It is lost: nothing is read or written any more. Its links end by `lose_some`.
    cdef int lost(self) except -1
    # End up to `most` more of its links, how many is added to `ended`. True: none is left.
    cdef bint lose_some(self, uint32_t most, uint32_t* ended) except *
    cdef readonly bint unanswered           # we began it, and the peer has not yet
    cdef int answered(self, uint16_t number, list items) except -1
