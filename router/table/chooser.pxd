"""Choice of the consumer that gets a delivery of a balanced or closest address (routing-semantics.md 8.2, 8.3).

`choose` has no effect. A choice also advances rotations and random numbers. Their new values are part of the result;
`choice_used` stores them when a delivery is carried by this choice.
"""
from libc.stdint cimport uint32_t, uint64_t

from sluice.router.amqp.codec cimport Slice
from sluice.router.ring.layout cimport AddressSlot
from sluice.router.stats.counters cimport totals
from sluice.router.table.choice cimport Choice
from sluice.router.table.consumer cimport Consumer
from sluice.router.table.network cimport DEFAULT_PRIORITY
from sluice.router.table.table cimport ForwardingAddress

cdef enum:
    # Largest number of consumers that are all compared for a delivery. Of more, the next one in rotation gets the
    # delivery if it is idle; otherwise it is compared with two random ones. If all three are at their capacity,
    # FEW_CONSUMERS others are compared as well (decision 0039).
    FEW_CONSUMERS = 16

# Choose the consumer of a producer's next delivery. Multicast and unavailable addresses have no such consumer. The
# paths of the address must be current (ForwardingAddress.version).
# came_by: number of the inter-router or edge connection that the message arrived by; 0: another kind of connection.
# producer: number of the producer's link. priority: of the message's header; negative: it has none. ingress: the
# message's ingress annotation; NULL: it has none.
cdef void choose(ForwardingAddress address, uint32_t came_by, uint64_t producer, int priority, const Slice* ingress,
                 Choice* choice) noexcept
# Choose by load among the consumers of a balanced address that has at most FEW_CONSUMERS, all on this router.
cdef void choose_least_loaded(ForwardingAddress address, uint32_t came_by, Choice* choice) noexcept


cdef inline bint returns_to_edge(void* consumer, uint32_t came_by) noexcept:
    """Return True if the delivery arrived by the edge connection that the consumer is on (inter-router.md 14.3).

    An edge router uses one number for all its edge connections: a delivery that arrived by any of them, of whichever
    role, goes to local consumers only. consumer: Consumer, borrowed.
    """
    return came_by != 0 and (<Consumer>consumer).edge == came_by


cdef inline void choice_used(void* address, const Choice* choice) noexcept:
    """Store the rotations and random numbers of a choice that is used. address: the ForwardingAddress, borrowed."""
    if choice.moves:
        (<ForwardingAddress>address).start = choice.start
        (<ForwardingAddress>address).turn = choice.turn
        (<ForwardingAddress>address).network.chance = choice.chance


cdef inline void count_choice(AddressSlot* slot, const Choice* choice) noexcept:
    """Count a copy for the chosen consumer. slot: counters of the address."""
    if choice.remote:
        slot.transit += 1
        totals.transit += 1
        return
    slot.egress += 1
    totals.egress += 1
    if (<Consumer>choice.consumer).container:
        slot.egress_container += 1
        totals.egress_container += 1


# routing-semantics.md F-5, 11.5.
cdef inline int priority_at(ForwardingAddress address, int priority) noexcept:
    """Return the priority that selects one of a next hop's links for a message. priority: its own; negative: none."""
    if address.priority >= 0:
        return address.priority
    return priority if priority >= 0 else DEFAULT_PRIORITY
