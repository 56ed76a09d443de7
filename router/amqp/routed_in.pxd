"""A routed link on which the peer sends."""
from libc.stdint cimport uint8_t, uint32_t

from router.amqp.codec cimport Slice
from router.amqp.delivery cimport InDelivery
from router.amqp.frames cimport Flow, Transfer
from router.amqp.routed_link cimport RoutedLink

cdef class RoutedIn(RoutedLink):
    cdef InDelivery* current               # incomplete delivery
    cdef uint32_t skipped                  # deliveries that the other end never saw
    cdef bint capped                       # credit is held back
    cdef int refuse_tag(self, InDelivery* d) except -1
    cdef void uncap(self) noexcept
    cdef int done(self, InDelivery* d) except -1
    cdef void count_end(self, InDelivery* d, uint8_t kind) noexcept
    cdef void count_presettled(self, InDelivery* d) noexcept
    cdef void count_lost(self, InDelivery* d) noexcept
