"""Routing of the deliveries of a link with a target, to the address that was bound at attach."""
from sluice.router.amqp.codec cimport Slice
from sluice.router.table.table cimport ForwardingAddress
from sluice.router.delivery.producer_handler cimport ProducerHandler

# Handler of a link with a target: deliveries go to the address that was bound at attach.
cdef class TargetedHandler(ProducerHandler):
    cdef readonly ForwardingAddress address
    cdef Slice to                          # encoded string for x-opt-qd.to; data NULL: none
    cdef bytes to_owner                    # keeps its octets
    cdef int phase
