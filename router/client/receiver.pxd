"""Receiving link (part 2, 2.6)."""
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from sluice.router.amqp.frames cimport Transfer
from sluice.router.client.plain_link cimport PlainLink, UnsettledEntry

# Received delivery. Owner: the code that took it.
cdef class ReceivedDelivery:
    cdef readonly object link              # its Receiver
    cdef readonly uint32_t id
    cdef readonly bytes tag
    cdef readonly uint32_t message_format
    cdef readonly bint settled             # true if settled by either side
    cdef readonly bytes octets             # the encoded message
    cdef readonly bytes state              # encoded delivery state of its transfers; b"": none
    cdef list parts                        # payloads of its frames until it is complete
    cdef uint64_t size

cdef class Receiver(PlainLink):
    cdef readonly uint64_t max_message_size  # largest message in octets; 0: any size
    cdef readonly bint draining
    cdef bint known                        # the sender's delivery-count is known
    cdef ReceivedDelivery current                  # incomplete delivery
    cdef uint32_t granted                  # most credit that the sender has had
    cdef uint32_t beyond                   # number of deliveries beyond the credit
    # Count the first transfer of a delivery: its id and its credit. False: the link was detached for it.
    cdef bint count_delivery(self, const Transfer* t) except *
    cdef int complete(self, ReceivedDelivery d) except -1
