"""Routes the deliveries of an incoming link, by its target or by the address in each message."""
from libc.stdint cimport uint32_t, uint64_t

from router.amqp.codec cimport Slice
from router.amqp.frames cimport Transfer
from router.delivery.delivery cimport InDelivery
from router.links.producer_link cimport DeliveryHandler, ProducerLink
from router.message.content cimport Content
from router.forwarding.short_way cimport Answer, Said
from router.forwarding.table cimport Address, Nowhere, Table
from router.policy.messages cimport MessageRules
from router.policy.names cimport NameRules

# For tests: every delivery takes the general way.
cdef void use_short_way(bint on) noexcept

# Owner: the link.
cdef class ProducerHandler(DeliveryHandler):
    cdef readonly Table table
    cdef readonly bint honour              # router annotations of messages count (the listener does not strip them)
    cdef str tenant
    cdef bint container                    # the producer is a route container
    cdef bint counted_before               # what it routes was counted where it entered the network
    cdef MessageRules rules                # of its connection; None: messages may say anything
    cdef readonly uint32_t edge            # number of the edge connection that it is on, 0: it is on none
    cdef bytes mark                        # on an uplink: this edge router's in x-opt-sluice.served, encoded; else None
    cdef bint checks                       # the peer tracks settled messages, as this router does (decision 0013)
    cdef list beginnings                   # Beginning, of the last messages that had annotations, or None
    cdef uint32_t others                   # messages with annotations that began like none of these
    cdef Answer plain                      # what is to be done with messages that come without any, by the short way
    cdef bint forged(self, ProducerLink link, InDelivery* d, const Content* c) except -1
    cdef bint exceeds_all(self, const Content* c, Address address) except *
    cdef void count_tried(self, Address address) noexcept
    cdef int deliver_elsewhere(self, ProducerLink link, InDelivery* d, Content* c, Address address,
                               bint targeted) except -1
    cdef int deliver_exchange(self, ProducerLink link, InDelivery* d, Content* c, Address address) except -1
    cdef int deliver_local(self, ProducerLink link, InDelivery* d, Content* c, Address address) except -1
    cdef int deliver_uplink(self, ProducerLink link, InDelivery* d, Content* c) except -1
    cdef bint deliver_edge(self, InDelivery* d, Content* c) except -1
    cdef Address edge_of(self, const Content* c)
    cdef bint has_come(self, ProducerLink link, InDelivery* d, const Content* c) except -1
    cdef void note_edge(self, InDelivery* d, Content* c) noexcept
    cdef int no_destination(self, ProducerLink link, InDelivery* d, Address address, bint targeted) except -1

cdef class TargetedHandler(ProducerHandler):
    cdef readonly Address address
    cdef Slice to                          # for x-opt-qd.to, encoded; data NULL: none
    cdef bytes to_owner                    # keeps its octets
    cdef int phase
    cdef bint from_fallback                # the producer itself stands in for others: its deliveries are not redirected

cdef class AnonymousHandler(ProducerHandler):
    cdef bytes last_text                   # the previous message's address, and what it was found to be
    cdef Address last_address
    cdef object last_epoch                 # Table.lookups_key of then
    cdef NameRules last_targets            # which allowed that address; None: there are no rules
    cdef bint repeats(self, const Slice* text) noexcept
    cdef bint allowed(self, const Slice* text, bint again) noexcept
    cdef Address lookup(self, const Slice* text, int phase, bint again, Nowhere* why)
    cdef int deliver_limited(self, ProducerLink link, InDelivery* d, Content* c, const Slice* text, int phase) except -1
    cdef int deliver_beyond(self, ProducerLink link, InDelivery* d, Content* c, const Slice* text) except -1

cdef class RouterHandler(ProducerHandler):
    cdef readonly uint32_t conn
    cdef bint streaming
    cdef bint finds(self, ProducerLink link, const Said* said, void* beginning) noexcept
    cdef int scan_subject(self, ProducerLink link, InDelivery* d, Content* c) except -1
    cdef Address lookup(self, const Slice* text, int phase)
