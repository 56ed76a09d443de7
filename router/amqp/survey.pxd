"""Memory survey: the search for the links and connections that hold most at a bound of memory."""
from libc.stdint cimport uint32_t, uint64_t

from sluice.router.amqp.meter cimport Meter

cdef enum:
    # Time at a bound of memory without progress, while others wait, after which a link or connection is evicted.
    STANDSTILL_MS = 2000

# Parameters and result of a memory survey. Pointers are valid until any other call.
cdef struct Survey:
    uint64_t now
    bint consumers             # parameter: survey consumers' links, for messages that belong to no producer here
    # Parameter: count only messages that came by ended links of this connection; NULL: of any, or from other workers.
    const Meter* connection
    uint32_t budget            # parameter: most messages to examine
    size_t stuck               # octets held by links of which nothing was taken for STANDSTILL_MS
    size_t moving              # octets held by links of which something was taken
    void* most                 # the link that holds most of `stuck`, or NULL
    # Octets of deliveries whose outcome is awaited: from the peers of the surveyed links, or by them.
    size_t awaited
    void* awaited_by           # of a survey of consumers: the connection with most of `awaited`, or NULL
    size_t largest_awaited        # octets of that connection
    size_t most_held           # octets held by `most`
    # Unrouted messages that are still arriving are counted apart: their links may wait for a window that is shut. A
    # link is evicted for one only if such messages fill the memory.
    size_t unrouted            # octets of all unrouted messages
    void* unrouted_link        # the link that holds most of them and has held them for STANDSTILL_MS, or NULL
    size_t unrouted_held       # octets held by that link
