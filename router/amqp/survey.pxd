"""What a look at the links that hold messages finds, at a bound of memory."""
from libc.stdint cimport uint32_t, uint64_t

from router.amqp.meter cimport Meter

cdef enum:
    STANDSTILL_MS = 2000       # at a bound of memory: nothing was taken for so long, although others wait for it

# What a look at the links that hold messages has found. Valid until anything else is done.
cdef struct Survey:
    uint64_t now
    bint consumers             # what is looked for: consumers with messages that are of no producer here
    const Meter* connection    # … but came by links of this connection that are gone; NULL: or from other workers
    uint32_t budget            # … of which so many are looked at
    size_t stuck               # octets of links of which nobody has taken any for STANDSTILL_MS
    size_t moving              # … of those of which somebody has
    void* most                 # the link that holds most of `stuck`, or NULL
    # Octets of deliveries whose outcome is awaited: by the peers of the links that are looked at, or from them.
    size_t awaited
    void* awaited_by           # of consumers: the connection that has most of them, or NULL
    size_t awaited_most        # octets of its
    size_t most_held           # octets that it holds
    # Messages that are coming in and are not routed yet, apart: their links may wait for a window that is shut. A link
    # ends for them where they are what fills the memory.
    size_t unrouted            # octets of all
    void* unrouted_link        # the link that has most and has had them for STANDSTILL_MS, or NULL
    size_t unrouted_held       # octets of its message
