"""Routing of the deliveries of an incoming link, by its target or by the address in each message."""
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from sluice.router.amqp.codec cimport Slice
from sluice.router.delivery.delivery cimport InDelivery
from sluice.router.links.producer_link cimport DeliveryHandler, ProducerLink
from sluice.router.message.content cimport Content
from sluice.router.delivery.cached_prefix cimport CachedPrefix, find_prefix
from sluice.router.delivery.plan cimport LeadingSections, Plan
from sluice.router.delivery.planner cimport make_plan
from sluice.router.delivery.producer_origin cimport ProducerOrigin
from sluice.router.message.sections cimport ScanResult
from sluice.router.table.table cimport ForwardingAddress, NotFoundReason, Table
from sluice.router.table.tap cimport Tap
from sluice.router.policy.messages cimport MessageRules
from sluice.router.policy.names cimport NameRules

cdef enum:
    # Octets of the sections up to the message-annotations, and of the address in these. With all targets they must fit
    # into one record to another worker.
    MOST_SECTIONS = 131072
    MOST_TO = 65536

# Base of the handlers that route an incoming link's deliveries. Owner: the link.
cdef class ProducerHandler(DeliveryHandler):
    cdef readonly Table table
    cdef readonly bint honour              # router annotations of messages are used (the listener does not strip them)
    cdef str tenant
    cdef MessageRules rules                # of the link's connection; None: nothing in a message is restricted
    cdef readonly uint32_t edge            # number of the edge connection that the link is on; 0: on none
    cdef bytes mark                        # on an uplink: own mark in x-opt-sluice.served, encoded; else None
    cdef bint checks                       # the peer tracks settled messages, as this router does (decision 0013)
    cdef list cached_prefixes                   # CachedPrefix: cached prefixes of messages with annotations; None: none
    cdef uint32_t others                   # messages with annotations whose prefix was not cached
    cdef list arriving                     # ArrivingCopy of the message that is arriving; None: none
    cdef bint from_fallback                # the producer serves a fallback: its deliveries are not redirected again
    cdef Plan plain                        # for messages without annotations
    cdef uint8_t entry                     # kind of its messages, see `count_entry`
    cdef bint anonymous                    # Plan.anonymous of its messages
    cdef int use_origin(self, ProducerOrigin origin) except -1
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
    cdef int deliver(self, ProducerLink link, InDelivery* d, Content* c, ForwardingAddress address,
                     bint targeted) except -1
    cdef int deliver_tapped(self, ProducerLink link, InDelivery* d, Content* c, ForwardingAddress address,
                            bint targeted) except -1
    cdef int deliver_required(self, ProducerLink link, InDelivery* d, Content* c, ForwardingAddress address,
                              bint targeted) except -1
    # Refuse a message that cannot wait for copies, or whose copies have no consumer. address: of the message; None: it
    # is not known here.
    cdef int refuse_required(self, ProducerLink link, InDelivery* d, const Content* c, tuple taps,
                             ForwardingAddress address, bint targeted) except -1
    cdef int begin_copy(self, ProducerLink link, Tap tap, InDelivery* d, const Content* c, bytes to) except -1
    cdef int copy_for_taps(self, ProducerLink link, InDelivery* d, const Content* c, tuple taps, bytes to) except -1
    # Cache the prefix of one in PREFIX_CACHE_EVERY messages whose prefix is not cached.
    cdef int cache_prefix(self, const Content* c) except -1
    cdef int refuse_unaddressed(self, ProducerLink link, InDelivery* d) except -1
    cdef int no_destination(self, ProducerLink link, InDelivery* d, ForwardingAddress address, bint targeted) except -1

# Encode a rejected outcome with this error.
cdef bytes rejection(condition, description)
# Refuse a delivery whose leading sections are malformed or too large, and leave any other untouched. Returns ROUTED,
# or WANTS_MORE if that cannot be told yet. most: routers in a trace, at most.
cdef int check_sections(ProducerLink link, InDelivery* d, Content* c, ScanResult result, uint32_t most) except -1


cdef inline bint plan_for(ProducerHandler handler, Plan* plan, ForwardingAddress address, uint32_t came_by,
                          uint64_t producer, const LeadingSections* said, const Slice* to, int phase) noexcept:
    """Make a plan for the handler's messages; see `make_plan`."""
    plan.entry = handler.entry
    plan.honour = handler.honour
    plan.anonymous = handler.anonymous
    return make_plan(plan, address, handler.table.recent.version, came_by, producer, said, to, phase)


cdef inline void* use_cached_prefix(ProducerHandler handler, Content* c) noexcept:
    """Take a message's sections from its cached prefix. Returns the CachedPrefix, borrowed; NULL: it is not cached."""
    cdef void* beginning = find_prefix(<void*>handler.cached_prefixes, c.data, c.size)
    if beginning is not NULL:
        c.sections = (<CachedPrefix>beginning).last.sections
    return beginning
