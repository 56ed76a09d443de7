"""Forwarders: which consumers of an address get a delivery."""
from libc.stdint cimport uint32_t, uint64_t

from router.amqp.items cimport item_at, items_in
from router.delivery.delivery cimport InDelivery
from router.forwarding.consumer cimport Consumer
from router.forwarding.table cimport CLOSEST, Address
from router.links.consumer_link cimport OVERFLOW_DROP_OLDEST, OVERFLOW_REMOTE, OVERFLOW_TRACKED
from router.message.content cimport Content
from router.message.sections cimport Sections
from router.stats.counters cimport Tally, totals

cdef enum:
    # So many consumers are compared with each other. Of more, the next one in turn and two that chance picks are; where
    # all have as many deliveries as they should, so many others beside them.
    FEW_CONSUMERS = 16

# From so many consumers on multicast copies are spread over turns; 0: the usual number. For tests.
cdef void use_spread(Py_ssize_t least) noexcept

# The same as `forward` for an exchange: to its address, the next hops of its bindings, or its alternate address.
cdef int forward_exchange(Address address, InDelivery* d, Content* c) except -1
# The same for those who stand in for consumers of the address, which has a fallback.
cdef int forward_fallback(Address address, InDelivery* d, Content* c) except -1
# The same, whatever consumers there are.
cdef int forward_any(Address address, InDelivery* d, Content* c) except -1


# Where a delivery for another router goes next.
cdef struct Step:
    void* link                 # Consumer of a data link of the next hop, borrowed; NULL: nowhere
    Tally* outstanding         # of the router chosen, for what is unsettled on its way there; NULL: it is not counted
    bint alone                 # the next delivery of that producer goes there, too, while the network stays as it is

# Where the next delivery of that producer, with this priority and these annotations (NULL: none), goes for an address
# that only other routers have consumers of. link NULL: that takes more than a look. Nothing is changed.
cdef void next_step(Address address, int priority, const Sections* sections, uint64_t producer, Step* step) noexcept
# The one of at most FEW_CONSUMERS that a `balanced` address gives its next delivery to, if that came by this edge
# connection (0: by none). NULL: none. idle: it has nothing, and the list turns (`turn`). Nothing is changed; what is
# returned is borrowed.
cdef void* least_loaded(Address address, uint32_t came_by, bint* idle) noexcept


cdef inline void turn(Address address) noexcept:
    address.start = address.start + 1 if address.start + 1 < items_in(<void*>address.consumers) else 0


cdef inline void next_nearest(Address address) noexcept:
    """The next one of several routers at one distance has its turn."""
    address.turn += 1


cdef inline bint goes_back(Consumer consumer, const Content* c) noexcept:
    """It came by the edge connection that the consumer is on (inter-router.md 14.3). At an edge router all of those
    have one number: what came by one, of whichever role, is for consumers here alone."""
    return c.came_by != 0 and consumer.edge == c.came_by


cdef inline int overflow_of(Address address, const Content* c) noexcept:
    if not c.came_by or address.overflow == OVERFLOW_DROP_OLDEST or not (c.settled or c.checkpoint):
        return address.overflow
    return OVERFLOW_REMOTE if c.unbounded else address.overflow | OVERFLOW_TRACKED


cdef inline int forward(Address address, InDelivery* d, Content* c) except -1:
    """Passes d to consumers of the address by its treatment; returns the number of copies, 0: there is no consumer.

    Most addresses have one consumer, of this worker: it is found without a call.
    """
    cdef Consumer only
    cdef void* consumers = <void*>address.consumers
    if items_in(consumers) == 1 and address.treatment <= CLOSEST and address.remotes is None and not address.limits:
        only = <Consumer>item_at(consumers, 0)
        if only.link is not None and not only.container and not goes_back(only, c):
            only.link.offer(d, c, overflow_of(address, c))
            address.slot.egress += 1
            totals.egress += 1
            return 1
    return forward_any(address, d, c)
