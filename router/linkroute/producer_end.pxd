"""A routed link on which the peer sends."""
from libc.stdint cimport uint8_t, uint32_t

from router.amqp.codec cimport Slice
from router.delivery.delivery cimport InDelivery
from router.amqp.frames cimport Flow, Transfer
from router.linkroute.routed_link cimport RoutedLink

# The fields of the first transfer of a delivery, which had no octets. Owner: its link.
cdef class Beginning:
    cdef bytes tag
    cdef bytes state
    cdef uint32_t format
    cdef uint8_t options
    cdef int begin(self, const Transfer* t) except -1
    cdef void complete(self, const Transfer* t, Transfer* whole, bint settled) noexcept

cdef class ProducerEnd(RoutedLink):
    cdef InDelivery* current               # incomplete delivery …
    cdef uint32_t skipped                  # deliveries, less credit given back, that only our end has seen
    cdef bint capped                       # credit is held back
    cdef void uncap(self) noexcept
    cdef Flow drain                        # a drain that the receiver has ended since …
    cdef bint drain_due                    # … and that is to be written before the pending flow
    cdef Beginning beginning               # … of which no octets have come: the other end has seen nothing of it
    cdef int pass_on(self, InDelivery* d, const Transfer* t, bint first) except -1
    cdef int wait_for_octets(self, InDelivery* d, const Transfer* t) except -1
    cdef int refuse(self, InDelivery* d, bytes why) except -1
    cdef int skip(self, InDelivery* d) except -1
    cdef uint32_t give_back_rest(self) noexcept
    cdef int done(self, InDelivery* d) except -1
    cdef void count_end(self, InDelivery* d, uint8_t kind) noexcept
    cdef void end_presettled(self, InDelivery* d) noexcept
    cdef void count_lost(self, InDelivery* d) noexcept
