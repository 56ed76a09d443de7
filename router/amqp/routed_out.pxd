"""A routed link on which the peer receives."""
from libc.stdint cimport uint8_t, uint32_t

from router.amqp.codec cimport Slice
from router.amqp.delivery cimport InDelivery, OutDelivery
from router.amqp.frames cimport Flow, Transfer
from router.amqp.message cimport Meter
from router.amqp.routed_link cimport RoutedLink

cdef class RoutedOut(RoutedLink):
    cdef OutDelivery* partial              # written so far as it came
    cdef uint32_t held_count               # the sender's delivery-count when the held flow came, as we count
    cdef int write_now(self, OutDelivery* o, const Transfer* t, bint first) except -1
    cdef int start(self, OutDelivery* o) except -1
    cdef int write_part(self, OutDelivery* o, size_t* budget) except -1
    cdef int write_abort(self, OutDelivery* o) except -1
    cdef int complete(self, OutDelivery* o) except -1
    cdef int settle_sent(self, OutDelivery* o) except -1
