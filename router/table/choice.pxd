"""Consumer chosen for a delivery, and what the choice changes for the next one (chooser.pxd)."""
from libc.stdint cimport uint32_t, uint64_t

from router.stats.counters cimport Tally

cdef struct Choice:
    void* consumer             # Consumer, borrowed; NULL: no consumer may get the delivery
    bint remote                # the consumer is a data link of a next hop
    Tally* outstanding         # counts unsettled deliveries to the chosen router; NULL: they are not counted
    bint alone                 # the producer's next delivery gets the same one while the table does not change
    bint moves                 # the next three fields differ from those of the address
    int start                  # ForwardingAddress.start
    uint32_t turn              # ForwardingAddress.turn
    uint64_t chance            # Network.chance
