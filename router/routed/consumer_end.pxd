"""Routed links on which the peer receives."""
from libc.stdint cimport uint8_t, uint32_t

from sluice.router.amqp.codec cimport Slice
from sluice.router.delivery.delivery cimport InDelivery, OutDelivery
from sluice.router.amqp.frames cimport Flow, Transfer
from sluice.router.amqp.meter cimport Meter
from sluice.router.routed.routed_link cimport RoutedLink

# Routed link on which the peer receives. Owner: its session.
cdef class ConsumerEnd(RoutedLink):
    cdef OutDelivery* partial              # the delivery that is OUT_PARTIAL, or NULL
    cdef uint32_t held_count               # sender's delivery-count when the pending flow arrived, as counted here
    cdef int write_now(self, OutDelivery* o, const Transfer* t, bint first) except -1
