"""Cache of address look-ups by the octets of an address, without a dictionary."""
from libc.stdint cimport uint32_t, uint64_t

from sluice.router.amqp.codec cimport Slice

cdef enum:
    RECENT = 4096              # entries, a power of two; texts with the same hash replace each other
    RECENT_TEXT = 1024         # octets of the longest text that is cached

# A direct-mapped cache of look-ups, valid for one version of the table. Owner: the table.
cdef class AddressCache:
    cdef list texts                        # by entry: the text, bytes
    cdef list found                        # by entry: the result of the look-up
    cdef int* phases                       # by entry
    cdef uint64_t* versions                # by entry: `version` when the entry was made
    cdef uint64_t version                  # number of the table's present state; other entries are void
    # Look up a text and phase. True: `found` is set (borrowed). False: not cached. `place` is set in either case, for
    # `put`.
    cdef bint get(self, const Slice* text, int phase, uint32_t* place, void** found) noexcept
    cdef int put(self, uint32_t place, bytes text, int phase, object found) except -1
