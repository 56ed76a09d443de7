"""Count of messages that enter the network at this router (management.md 7.1)."""
from libc.stdint cimport uint8_t

from router.ring.layout cimport AddressSlot
from router.stats.counters cimport totals

cdef enum:
    # Kind of a producer's messages. 0: another router has counted them.
    ENTRY_COUNTED = 1
    ENTRY_EDGE = 2             # they come by an edge connection
    ENTRY_CONTAINER = 4        # the producer is a route container


cdef inline void count_entry(uint8_t entry, AddressSlot* slot) noexcept:
    """Count a message. slot: counters of its address; NULL: it is counted at no address."""
    if not entry:
        return
    totals.ingress += 1
    if slot is not NULL:
        slot.ingress += 1
    if entry != ENTRY_COUNTED:
        if entry & ENTRY_EDGE:
            totals.ingress_edge += 1
        if entry & ENTRY_CONTAINER:
            totals.ingress_container += 1
            if slot is not NULL:
                slot.ingress_container += 1
