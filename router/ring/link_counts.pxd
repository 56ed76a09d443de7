"""Numbers of a link that are computed from several counters of its slot."""
from libc.stdint cimport uint32_t, uint64_t

from sluice.router.ring.atomics cimport RELAXED, load32, load64
from sluice.router.ring.layout cimport LinkSlot


cdef inline uint32_t link_unsettled(LinkSlot* slot) noexcept nogil:
    """Return the deliveries of a link that wait to be settled.

    `LinkSlot.unsettled` of a producer counts all deliveries that occupy a place. Settled ones among them have been
    counted as finished.
    """
    cdef uint32_t held = load32(&slot.unsettled, RELAXED)
    cdef uint64_t finished
    cdef uint64_t begun
    if slot.direction != 1 or not held:
        return held
    finished = load64(&slot.finished, RELAXED)
    begun = load64(&slot.deliveries, RELAXED)
    if begun <= finished:
        return 0
    return held if begun - finished > held else <uint32_t>(begun - finished)
