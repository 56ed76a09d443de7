"""Routing of the deliveries of a link without a target, by the address in each message.

routing-semantics.md 7.
"""
from libc.stdint cimport uint32_t

from sluice.router.amqp.codec cimport Slice
from sluice.router.delivery.delivery cimport InDelivery
from sluice.router.links.producer_link cimport ProducerLink
from sluice.router.message.content cimport Content
from sluice.router.table.table cimport ForwardingAddress, NotFoundReason
from sluice.router.delivery.producer_handler cimport ProducerHandler

# Handler of a link without a target: each message names its address.
cdef class AnonymousHandler(ProducerHandler):
    cdef list addresses                    # RememberedAddress: recent addresses of its messages; None: none
    cdef uint32_t further                  # messages whose address was not remembered
    cdef bint allowed(self, const Slice* text, void* remembered) noexcept
    cdef ForwardingAddress lookup(self, const Slice* text, int phase, void* remembered, NotFoundReason* why)
    cdef int remember(self, bytes text, ForwardingAddress address, void* remembered) except -1
    cdef int deliver_limited(self, ProducerLink link, InDelivery* d, Content* c, const Slice* text, int phase) except -1
    cdef int deliver_tapped_to_interior(self, ProducerLink link, InDelivery* d, Content* c, const Slice* text) except -1
    cdef int deliver_to_interior(self, ProducerLink link, InDelivery* d, Content* c, const Slice* text) except -1
