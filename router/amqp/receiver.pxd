"""A link on which we receive (part 2, 2.6)."""
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from router.amqp.frames cimport Transfer
from router.amqp.plain_link cimport PlainLink, Unsettled

# A received delivery. Owner: the code that took it.
cdef class Received:
    cdef readonly object link              # its Receiver
    cdef readonly uint32_t id
    cdef readonly bytes tag
    cdef readonly uint32_t message_format
    cdef readonly bint settled             # by either side
    cdef readonly bytes octets             # of the message, encoded
    cdef list parts                        # … while more frames are to come
    cdef uint64_t size

cdef class Receiver(PlainLink):
    cdef readonly uint64_t max_message_size  # octets, 0: any
    cdef readonly bint draining
    cdef bint known                        # the sender's delivery-count is
    cdef Received current                  # incomplete delivery
    cdef uint32_t granted                  # the most credit that the sender has had
    cdef uint32_t beyond                   # deliveries beyond its credit
    # The first transfer of a delivery: its id and the credit for it. False: it has detached the link.
    cdef bint count_delivery(self, const Transfer* t) except *
    cdef int complete(self, Received d) except -1
