"""Routing of the deliveries of a link with a target, to the address that was bound at attach."""
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from router.amqp.codec cimport Slice
from router.delivery.delivery cimport InDelivery
from router.links.producer_link cimport DeliveryHandler, ProducerLink
from router.message.content cimport Content
from router.delivery.plan cimport Plan
from router.table.table cimport ForwardingAddress, NotFoundReason, Table
from router.policy.messages cimport MessageRules
from router.policy.names cimport NameRules
from router.delivery.producer_handler cimport ProducerHandler

# Handler of a link with a target: deliveries go to the address that was bound at attach.
cdef class TargetedHandler(ProducerHandler):
    cdef readonly ForwardingAddress address
    cdef Slice to                          # encoded string for x-opt-qd.to; data NULL: none
    cdef bytes to_owner                    # keeps its octets
    cdef int phase
