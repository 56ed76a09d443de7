"""The consumers' links of this worker by their slots, for the records of other workers."""
from libc.stdint cimport uint32_t

# Place of a slot. The link clears it at the latest when its memory is freed, so it never points to a freed link.
cdef struct LinkPlace:
    void* link                             # ConsumerLink (borrowed), NULL: the slot has none
    uint32_t generation                    # of the slot, for this link

cdef struct LinkPlaces:
    LinkPlace* by_slot
    uint32_t size                          # slots
    uint32_t end                           # one behind the highest slot that ever had a link

# Owner: the worker.
cdef class LinkTable:
    cdef LinkPlaces places


cdef inline void* link_at(const LinkPlaces* places, uint32_t slot, uint32_t generation) noexcept:
    """The link that has the slot in this generation, borrowed; NULL: it is gone."""
    if slot < places.size and places.by_slot[slot].generation == generation:
        return places.by_slot[slot].link
    return NULL
