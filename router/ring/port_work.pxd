"""Set of a worker's ports that have work: a wake visits these ports and no others."""
from libc.stdint cimport uint64_t

cdef extern from *:
    int trailing_zeros "__builtin_ctzll"(unsigned long long word) noexcept nogil

# Ports with work, as bits by the number of their peer. Owner: the loop. Each port sets and clears its own bits.
cdef class PortWork:
    cdef uint64_t dirty                    # something is to be done at the end of this wake
    cdef uint64_t rung                     # its doorbell was taken, and not everything behind it is done
    cdef uint64_t stuck                    # something waits for room in the ring to the peer
    cdef uint64_t outcomes_due                    # outcomes wait for the peer to wake up by itself
    cdef uint64_t now                      # ns, of this wake
    cdef bint patient                      # outcomes may wait: the loop can wait for less than a millisecond


cdef inline uint64_t bit_of(int peer) noexcept nogil:
    """Return the bit of a peer."""
    return <uint64_t>1 << peer


cdef inline int take_lowest(uint64_t* bits) noexcept nogil:
    """Return the number of the lowest bit, and clear it. At least one must be set."""
    cdef int lowest = trailing_zeros(bits[0])
    bits[0] &= bits[0] - 1
    return lowest
