"""Consumer links of this worker by slot, for records of other workers."""
from libc.stdint cimport uint32_t

# Entry of a slot. The link clears it at the latest when its memory is freed, so it never points to a freed link.
cdef struct LinkPlace:
    void* link                             # ConsumerLink (borrowed); NULL: the slot has none
    uint32_t generation                    # generation of the slot for this link

cdef struct LinkPlaces:
    LinkPlace* by_slot
    uint32_t size                          # number of slots
    uint32_t end                           # highest slot that ever had a link, plus 1

# Consumer links by slot. Owner: the worker.
cdef class LinkTable:
    cdef LinkPlaces places


cdef inline void* link_at(const LinkPlaces* places, uint32_t slot, uint32_t generation) noexcept:
    """Return the link that has the slot in this generation, borrowed; NULL: it is gone."""
    if slot < places.size and places.by_slot[slot].generation == generation:
        return places.by_slot[slot].link
    return NULL
