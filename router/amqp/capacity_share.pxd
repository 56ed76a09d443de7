"""Share of the deliveries in flight that the links of one event loop may have, see docs/internals/credit.md."""
from libc.stdint cimport uint32_t, uint64_t

from sluice.router.amqp.clock cimport Clock

cdef enum:
    LARGEST_CAPACITY = 4000    # deliveries in flight on one link whose capacity adapts
    SHARED_CAPACITY = 2000     # deliveries in flight on all links that are limited by credit, if they are settled soon
    WINDOW_NS = 100000000      # ns in which links that run out of credit are counted
    SOON_NS = 5000000          # age of settled deliveries above which the peers are distant, or settle in batches

# Owner: the scheduler.
cdef class CapacityShare:
    cdef Clock clock
    cdef uint32_t window       # number of the present window, from 1
    cdef uint64_t ends_ns
    cdef uint32_t links        # links that ran out of credit in this window
    cdef uint32_t links_before  # links that did in the window before
    cdef uint64_t cpu_ns       # CPU time of the thread at the beginning of the window
    cdef bint idle             # the thread used less than half of the processor's time in the window before
    cdef void end_window(self) noexcept
    cdef uint32_t of_link(self, uint32_t* counted_in, uint64_t age_ns) noexcept
