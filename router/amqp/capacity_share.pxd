"""Share of the deliveries in flight that the links of one event loop may have, see docs/internals/credit.md."""
from libc.stdint cimport uint32_t, uint64_t

from sluice.router.amqp.clock cimport Clock

cdef enum:
    LARGEST_CAPACITY = 4000    # deliveries in flight on one link whose capacity adapts
    SHARED_CAPACITY = 4000     # deliveries in flight on all links that are limited by credit, if they are settled soon
    WINDOW_NS = 100000000      # ns in which links that run out of credit are counted
    IDLE_PARTS = 8             # a loop is idle that waits for events for more than this part of a window
    SOON_NS = 5000000          # age of settled deliveries above which the peers are distant, or settle in batches

# Links of one connection that ran out of credit. Owner: the connection. All zero: none did.
cdef struct LimitedLinks:
    uint32_t window            # number of the last window in which one did
    uint32_t links             # links that did in that window
    uint32_t links_before      # links that did in the window before that

# Owner: the scheduler.
cdef class CapacityShare:
    cdef Clock clock
    cdef uint32_t window       # number of the present window, from 1
    cdef uint64_t ends_ns
    cdef uint32_t connections  # connections with links that ran out of credit in this window
    cdef uint32_t connections_before  # connections with such links in the window before
    cdef uint64_t waited_ns    # ns of this window in which the loop waited for events
    cdef bint idle             # the loop waited for more than 1/IDLE_PARTS of the window before
    cdef void end_window(self) noexcept
    cdef uint32_t of_link(self, uint32_t* counted_in, LimitedLinks* of_connection, uint64_t age_ns) noexcept
