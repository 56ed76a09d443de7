"""Addresses that messages were for, found again without a dictionary."""
from libc.stdint cimport uint32_t, uint64_t

from router.amqp.codec cimport Slice

cdef enum:
    RECENT = 4096              # places, a power of two; each text has one, which it may have to give to another
    RECENT_TEXT = 1024         # octets of a text that is kept

# Owner: the table.
cdef class Recent:
    cdef list texts                        # bytes by place
    cdef list found                        # what was found for it
    cdef int* phases
    cdef uint64_t* versions                # of the table, when it was found
    cdef uint64_t version
    # What was found for this text and phase, by way of `known`; False: it has to be looked up. The place for `put`.
    cdef bint get(self, const Slice* text, int phase, uint32_t* place, void** found) noexcept
    cdef int put(self, uint32_t place, bytes text, int phase, object found) except -1
