"""Forwarders: the choice of the consumers that get a delivery."""
from libc.stdint cimport uint32_t, uint64_t

from router.amqp.items cimport item_at, items_in
from router.delivery.delivery cimport InDelivery
from router.table.consumer cimport Consumer
from router.table.table cimport CLOSEST, ForwardingAddress
from router.links.consumer_link cimport OVERFLOW_DROP_OLDEST, OVERFLOW_REMOTE, OVERFLOW_TRACKED
from router.message.content cimport Content
from router.message.sections cimport Sections
from router.stats.counters cimport Tally, totals

cdef enum:
    # Up to this many consumers are all compared for a delivery. Of more, the next one in rotation and two random ones
    # are compared; if these are all at their capacity, this many others as well (decision 0039).
    FEW_CONSUMERS = 16

# Set the number of consumers from which multicast copies are spread over several slices; 0: the default. For tests.
cdef void use_spread(Py_ssize_t least) noexcept

# Forward a delivery to an exchange: to its own address and the next hops of its bindings, else to its alternate
# address. Returns the number of copies, as the two functions below do.
cdef int forward_exchange(ForwardingAddress address, InDelivery* d, Content* c) except -1
# Forward a delivery to the fallback of an address. The address must have one.
cdef int forward_fallback(ForwardingAddress address, InDelivery* d, Content* c) except -1
# Forward a delivery by the treatment of its address, for any number and kind of consumers: the slow path of `forward`.
cdef int forward_any(ForwardingAddress address, InDelivery* d, Content* c) except -1


# Choice of the next hop for a delivery to another router.
cdef struct NextHopChoice:
    void* link                 # Consumer of a data link of the next hop, borrowed; NULL: there is none
    Tally* outstanding         # counts unsettled deliveries to the chosen router; NULL: they are not counted
    bint alone                 # the producer's next delivery takes the same link while the network does not change

# Choose the next hop for a producer's next delivery to an address with consumers on other routers only. sections: of
# the message's annotations; NULL: none. link is NULL when the choice needs the slow path. Has no effect.
cdef void choose_next_hop(ForwardingAddress address, int priority, const Sections* sections, uint64_t producer,
                          NextHopChoice* step) noexcept
# Choose the consumer of a `balanced` address, which has FEW_CONSUMERS at most, for a delivery that arrived by the edge
# connection `came_by` (0: by none). NULL: none may get it. idle: the chosen consumer has no deliveries, so the caller
# must rotate the list (`rotate_consumers`). Has no effect; the result is borrowed.
cdef void* least_loaded(ForwardingAddress address, uint32_t came_by, bint* idle) noexcept


cdef inline void rotate_consumers(ForwardingAddress address) noexcept:
    """Rotate the list of consumers by one."""
    address.start = address.start + 1 if address.start + 1 < items_in(<void*>address.consumers) else 0


cdef inline void rotate_nearest_routers(ForwardingAddress address) noexcept:
    """Advance the rotation among routers at the same distance."""
    address.turn += 1


cdef inline bint returns_to_edge(Consumer consumer, const Content* c) noexcept:
    """Return True if the delivery arrived by the edge connection that the consumer is on (inter-router.md 14.3).

    An edge router uses one number for all its edge connections: a delivery that arrived by any of them, of whichever
    role, goes to local consumers only.
    """
    return c.came_by != 0 and consumer.edge == c.came_by


cdef inline int overflow_of(ForwardingAddress address, const Content* c) noexcept:
    """Return the overflow policy (Overflow) for a copy of this message.

    Settled messages from other routers get a bound in octets as well (ConsumerLink.make_routed_room).
    """
    if not c.came_by or address.overflow == OVERFLOW_DROP_OLDEST or not (c.settled or c.checkpoint):
        return address.overflow
    return OVERFLOW_REMOTE if c.unbounded else address.overflow | OVERFLOW_TRACKED


cdef inline int forward(ForwardingAddress address, InDelivery* d, Content* c) except -1:
    """Forward a delivery to consumers of the address by its treatment; return the number of copies.

    0: no consumer may get it. Most addresses have one consumer, on this worker: the inline part handles these.
    """
    cdef Consumer only
    cdef void* consumers = <void*>address.consumers
    if items_in(consumers) == 1 and address.treatment <= CLOSEST and address.remotes is None and not address.limits:
        only = <Consumer>item_at(consumers, 0)
        if only.link is not None and not only.container and not returns_to_edge(only, c):
            only.link.offer(d, c, overflow_of(address, c))
            address.slot.egress += 1
            totals.egress += 1
            return 1
    return forward_any(address, d, c)
