"""Time of a wake, and the list of objects to check soon."""
from libc.stdint cimport uint32_t, uint64_t

# Clock and list shared by everything in one event loop. Owner: the worker.
cdef class Clock:
    cdef readonly uint64_t now        # ms, CLOCK_MONOTONIC: time of this wake, or of a later read of a socket in it
    cdef readonly uint64_t now_ns     # time of the wake in ns
    cdef readonly uint32_t second     # time of the wake in s
    # Objects whose check_starved() is to be called soon: outgoing links that hold credit back and get none
    # (OVERFLOW_THROTTLE), and connections and the process at their bounds of memory.
    cdef list starved
    cdef void set_clock(self, uint64_t now_ns) noexcept
