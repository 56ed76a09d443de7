"""The consumers' links of this worker by their slots, for the records of other workers."""
from libc.stdint cimport uint32_t

# Owner: the worker.
cdef class LinkTable:
    cdef void** links                      # ConsumerLink (borrowed), NULL: the slot has none
    cdef uint32_t size                     # slots


cdef inline void* link_at(LinkTable table, uint32_t slot) noexcept:
    return table.links[slot] if slot < table.size else NULL
