"""What an incoming link does with its deliveries: routes them by its target, or by what each message says."""
from libc.stdint cimport uint32_t

from router.amqp.codec cimport Slice
from router.amqp.delivery cimport InDelivery
from router.amqp.incoming_link cimport DeliveryHandler, IncomingLink
from router.amqp.message cimport Content
from router.routing.table cimport Address, Table

# Owner: the link.
cdef class Route(DeliveryHandler):
    cdef readonly Table table
    cdef readonly bint honour              # router annotations of messages count (the listener does not strip them)
    cdef str tenant
    cdef bint container                    # the producer is a route container
    cdef void count_ingress(self, Address address) noexcept
    cdef void count_tried(self, Address address) noexcept
    cdef int deliver(self, IncomingLink link, InDelivery* d, Content* c, Address address, bint targeted) except -1
    cdef int deliver_exchange(self, IncomingLink link, InDelivery* d, Content* c, Address address) except -1
    cdef int deliver_local(self, IncomingLink link, InDelivery* d, Content* c, Address address) except -1
    cdef int no_destination(self, IncomingLink link, InDelivery* d, Address address, bint targeted) except -1

cdef class TargetedRoute(Route):
    cdef readonly Address address
    cdef bytes to                          # for x-opt-qd.to, encoded
    cdef int phase
    cdef bint from_fallback                # the producer itself stands in for others: its deliveries are not redirected

cdef class AnonymousRoute(Route):
    cdef bytes last_text                   # the previous message's address, and what it was found to be
    cdef Address last_address
    cdef object last_epoch                 # Table.lookups_key of then
    cdef Address lookup(self, const Slice* text, int phase, bint* unavailable)

cdef class RouterRoute(Route):
    cdef readonly uint32_t conn
    cdef bint streaming
    cdef bint checks
    cdef int scan_subject(self, IncomingLink link, InDelivery* d, Content* c) except -1
    cdef Address lookup(self, const Slice* text, int phase)
