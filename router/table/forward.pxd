"""Forwarders: a copy of a delivery for each consumer that gets one."""
from sluice.router.delivery.delivery cimport InDelivery
from sluice.router.table.table cimport ForwardingAddress
from sluice.router.links.consumer_link cimport OVERFLOW_DROP_OLDEST, OVERFLOW_REMOTE, OVERFLOW_TRACKED
from sluice.router.message.content cimport Content

# Set the number of consumers from which multicast copies are spread over several slices; 0: the default. For tests.
cdef void use_spread(Py_ssize_t least) noexcept

# All forwarders below return the number of copies; 0: no consumer may get the delivery.

# Forward a delivery to an exchange: to its own address and the next hops of its bindings, else to its alternate
# address.
cdef int forward_exchange(ForwardingAddress address, InDelivery* d, Content* c) except -1
# Forward a delivery to the fallback of an address. The address must have one.
cdef int forward_fallback(ForwardingAddress address, InDelivery* d, Content* c) except -1
# Forward a delivery to consumers of the address by its treatment.
cdef int forward(ForwardingAddress address, InDelivery* d, Content* c) except -1
# Forward as `forward` does, but without comparing the length with limits of consumers (ForwardingAddress.limits).
cdef int forward_all(ForwardingAddress address, InDelivery* d, Content* c) except -1


cdef inline int overflow_of(ForwardingAddress address, const Content* c) noexcept:
    """Return the overflow policy (Overflow) for a copy of this message.

    Settled messages from other routers get a bound in octets as well (ConsumerLink.make_routed_room).
    """
    if not c.came_by or address.overflow == OVERFLOW_DROP_OLDEST or not (c.settled or c.checkpoint):
        return address.overflow
    return OVERFLOW_REMOTE if c.unbounded else address.overflow | OVERFLOW_TRACKED
