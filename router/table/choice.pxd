"""Consumer chosen for a delivery, and the changes of rotations and random numbers by this choice (chooser.pxd)."""
from libc.stdint cimport uint32_t, uint64_t

from sluice.router.stats.counters cimport Tally

cdef struct Choice:
    void* consumer             # Consumer, borrowed; NULL: no consumer may get the delivery
    bint remote                # the consumer is a data link of a next hop
    Tally* outstanding         # counts unsettled deliveries to the chosen router; NULL: they are not counted
    bint alone                 # the producer's next delivery gets the same consumer while the table does not change
    bint moves                 # the next three fields have new values, which `choice_used` stores
    int start                  # ForwardingAddress.start
    uint32_t turn              # ForwardingAddress.turn
    uint64_t chance            # Network.chance
