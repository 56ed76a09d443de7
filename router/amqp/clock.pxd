"""The time of a wake, and what is to be looked at again soon."""
from libc.stdint cimport uint32_t, uint64_t

# Owner: the worker. What is shared by all that runs in one event loop.
cdef class Clock:
    cdef readonly uint64_t now        # ms, CLOCK_MONOTONIC: time of this wake, or of the read of a socket in it
    cdef readonly uint64_t now_ns     # the same
    cdef readonly uint32_t second     # the same
    # What has a check_starved() that is to be called soon: outgoing links that hold credit back and get none
    # (OVERFLOW_THROTTLE), connections and the process at their bounds of memory.
    cdef list starved
    cdef void set_clock(self, uint64_t now_ns) noexcept
