"""The consumers' links of this worker by their slots, for the records of other workers."""
from libc.stdint cimport uint32_t

cdef struct LinkPlaces:
    void** links                           # ConsumerLink (borrowed), NULL: the slot has none
    uint32_t size                          # slots

# Owner: the worker.
cdef class LinkTable:
    cdef LinkPlaces places


cdef inline void* link_at(const LinkPlaces* places, uint32_t slot) noexcept:
    return places.links[slot] if slot < places.size else NULL
