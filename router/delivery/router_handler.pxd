"""Routing of the deliveries of a link from another router, by the address in each message.

inter-router.md 10.4.
"""
from libc.stdint cimport uint32_t

from sluice.router.amqp.codec cimport Slice
from sluice.router.delivery.delivery cimport InDelivery
from sluice.router.links.producer_link cimport ProducerLink
from sluice.router.message.content cimport Content
from sluice.router.table.table cimport ForwardingAddress
from sluice.router.delivery.producer_handler cimport ProducerHandler

# Handler of a link from another router: each message names its address.
cdef class RouterHandler(ProducerHandler):
    cdef readonly uint32_t conn            # number of the link's connection
    cdef bint streaming                    # the peer uses the link for streams
    cdef int scan_subject(self, ProducerLink link, InDelivery* d, Content* c) except -1
    cdef ForwardingAddress lookup(self, const Slice* text, int phase)
