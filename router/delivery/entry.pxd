"""Count of messages that enter the network at this router (management.md 7.1)."""
from libc.stdint cimport uint8_t

from sluice.router.ring.layout cimport AddressSlot
from sluice.router.stats.counters cimport totals

cdef enum:
    # Kind of a producer's messages, as flags. 0: the router where they entered the network has counted them.
    ENTRY_COUNTED = 1          # counted at this router
    ENTRY_EDGE = 2             # they arrive by an edge connection
    ENTRY_CONTAINER = 4        # the producer is a route container


cdef inline bint is_entry(uint8_t entry) noexcept nogil:
    """Return True for messages of this router's own clients and brokers: taps copy these (decision 0087)."""
    return entry & (ENTRY_COUNTED | ENTRY_EDGE) == ENTRY_COUNTED


cdef inline void count_entry(uint8_t entry, AddressSlot* slot) noexcept:
    """Count a message that enters the network here; do nothing for others. slot: counters of its address."""
    if not entry:
        return
    totals.ingress += 1
    slot.ingress += 1
    if entry != ENTRY_COUNTED:
        if entry & ENTRY_EDGE:
            totals.ingress_edge += 1
        if entry & ENTRY_CONTAINER:
            totals.ingress_container += 1
            slot.ingress_container += 1


cdef inline void count_entry_by_fallback(uint8_t entry) noexcept:
    """Count a message of a producer that serves a fallback, in the totals but not at its address."""
    totals.ingress += entry != 0
    totals.ingress_edge += entry & ENTRY_EDGE != 0
    totals.ingress_container += entry & ENTRY_CONTAINER != 0
