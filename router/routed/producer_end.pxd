"""Routed links on which the peer sends."""
from libc.stdint cimport uint8_t, uint32_t

from sluice.router.amqp.codec cimport Slice
from sluice.router.delivery.delivery cimport InDelivery
from sluice.router.amqp.frames cimport Flow, Transfer
from sluice.router.routed.routed_link cimport RoutedLink

# Fields of the first transfer of a delivery, which had no octets. Owner: its link.
cdef class HeldFirstTransfer:
    cdef bytes tag
    cdef bytes state
    cdef uint32_t format
    cdef uint8_t options
    cdef int begin(self, const Transfer* t) except -1
    # Make `whole`, the first transfer of the delivery, of t, which has its first octets. It points into this object.
    cdef void complete(self, const Transfer* t, Transfer* whole, bint settled) noexcept

# Routed link on which the peer sends. Owner: its session.
cdef class ProducerEnd(RoutedLink):
    cdef InDelivery* current               # incomplete delivery, or NULL
    # Deliveries that this end ended itself, so that the other end has not seen them, less credit given back here on
    # behalf of the sender: the difference of delivery-count between the two ends.
    cdef uint32_t skipped
    cdef bint credit_held_back                       # some credit of the receiver is held back here
    # Highest delivery-limit (delivery-count + link-credit, part 2, 2.6.7) of all flows written to the sender, from its
    # initial delivery-count on.
    cdef uint32_t granted_most
    cdef uint32_t credit_written(self) noexcept
    cdef void release_held_credit(self) noexcept
    # A drain that the receiver has ended since. If `drain_due`, it is written before the pending flow.
    cdef Flow drain
    cdef bint drain_due
    # of `current` while no octets of it have arrived, so nothing is passed on
    cdef HeldFirstTransfer beginning
    cdef int pass_on(self, InDelivery* d, const Transfer* t, bint first) except -1
    cdef int wait_for_octets(self, InDelivery* d, const Transfer* t) except -1
    cdef int refuse(self, InDelivery* d, bytes why) except -1
    cdef int skip(self, InDelivery* d) except -1
    cdef uint32_t give_back_rest(self) noexcept
    cdef int done(self, InDelivery* d) except -1
    cdef void count_end(self, InDelivery* d, uint8_t kind) noexcept
    cdef void end_presettled(self, InDelivery* d) noexcept
    cdef void count_lost(self, InDelivery* d) noexcept
