"""Which of a worker's ports have something to do: a wake looks at these, and at no other."""
from libc.stdint cimport uint64_t

cdef extern from *:
    int trailing_zeros "__builtin_ctzll"(unsigned long long word) noexcept nogil

# Ports by their peer's number, as bits. Owner: the loop; ports set and clear theirs.
cdef class PortWork:
    cdef uint64_t dirty                    # something is to be done at the end of this wake
    cdef uint64_t rung                     # their bell was taken, and not all that it was for
    cdef uint64_t stuck                    # something waits for room in the ring to the peer
    cdef uint64_t owing                    # outcomes wait for a wake of the peer
    cdef uint64_t now                      # ns, of this wake
    cdef bint patient                      # … may wait: the loop can wait for less than a millisecond


cdef inline uint64_t bit_of(int peer) noexcept nogil:
    return <uint64_t>1 << peer


cdef inline int take_lowest(uint64_t* bits) noexcept nogil:
    """The number of the lowest bit, which is cleared. There is one."""
    cdef int lowest = trailing_zeros(bits[0])
    bits[0] &= bits[0] - 1
    return lowest
