"""Routing of the deliveries of an incoming link, by its target or by the address in each message."""
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from router.amqp.codec cimport Slice
from router.delivery.delivery cimport InDelivery
from router.links.producer_link cimport DeliveryHandler, ProducerLink
from router.message.content cimport Content
from router.delivery.plan cimport Plan
from router.forwarding.table cimport ForwardingAddress, NotFoundReason, Table
from router.policy.messages cimport MessageRules
from router.policy.names cimport NameRules

# Base of the handlers that route an incoming link's deliveries. Owner: the link.
cdef class ProducerHandler(DeliveryHandler):
    cdef readonly Table table
    cdef readonly bint honour              # router annotations of messages are used (the listener does not strip them)
    cdef str tenant
    cdef bint container                    # the producer is a route container
    cdef bint counted_before               # deliveries were counted by the router where they entered the network
    cdef MessageRules rules                # of the link's connection; None: nothing in a message is restricted
    cdef readonly uint32_t edge            # number of the edge connection that the link is on; 0: on none
    cdef bytes mark                        # on an uplink: own mark in x-opt-sluice.served, encoded; else None
    cdef bint checks                       # the peer tracks settled messages, as this router does (decision 0013)
    cdef list cached_prefixes                   # CachedPrefix: cached prefixes of messages with annotations; None: none
    cdef uint32_t others                   # messages with annotations whose prefix was not cached
    cdef Plan plain                        # for messages without annotations
    cdef uint8_t entry                     # Plan.entry of its messages
    cdef bint forged(self, ProducerLink link, InDelivery* d, const Content* c) except -1
    cdef bint exceeds_all(self, const Content* c, ForwardingAddress address) except *
    cdef void count_undeliverable(self, ForwardingAddress address) noexcept
    cdef int deliver_elsewhere(self, ProducerLink link, InDelivery* d, Content* c, ForwardingAddress address,
                               bint targeted) except -1
    cdef int deliver_exchange(self, ProducerLink link, InDelivery* d, Content* c, ForwardingAddress address) except -1
    cdef int deliver_local(self, ProducerLink link, InDelivery* d, Content* c, ForwardingAddress address) except -1
    cdef int deliver_uplink(self, ProducerLink link, InDelivery* d, Content* c) except -1
    cdef bint deliver_edge(self, InDelivery* d, Content* c) except -1
    cdef ForwardingAddress edge_of(self, const Content* c)
    cdef bint refuse_if_served(self, ProducerLink link, InDelivery* d, const Content* c) except -1
    cdef void mark_edge_arrival(self, InDelivery* d, Content* c) noexcept
    cdef int no_destination(self, ProducerLink link, InDelivery* d, ForwardingAddress address, bint targeted) except -1

# Handler of a link with a target: deliveries go to the address that was bound at attach.
cdef class TargetedHandler(ProducerHandler):
    cdef readonly ForwardingAddress address
    cdef Slice to                          # encoded string for x-opt-qd.to; data NULL: none
    cdef bytes to_owner                    # keeps its octets
    cdef int phase
    cdef bint from_fallback                # the producer serves a fallback: its deliveries are not redirected again

# Handler of a link without a target: each message names its address.
cdef class AnonymousHandler(ProducerHandler):
    cdef list addresses                    # RememberedAddress: recent addresses of its messages; None: none
    cdef uint32_t further                  # messages whose address was not remembered
    cdef bint allowed(self, const Slice* text, void* remembered) noexcept
    cdef ForwardingAddress lookup(self, const Slice* text, int phase, void* remembered, NotFoundReason* why)
    cdef int remember(self, bytes text, ForwardingAddress address, void* remembered) except -1
    cdef int deliver_limited(self, ProducerLink link, InDelivery* d, Content* c, const Slice* text, int phase) except -1
    cdef int deliver_to_interior(self, ProducerLink link, InDelivery* d, Content* c, const Slice* text) except -1

# Handler of a link from another router: each message names its address.
cdef class RouterHandler(ProducerHandler):
    cdef readonly uint32_t conn            # number of the link's connection
    cdef bint streaming                    # the peer uses the link for streams
    cdef int scan_subject(self, ProducerLink link, InDelivery* d, Content* c) except -1
    cdef ForwardingAddress lookup(self, const Slice* text, int phase)
