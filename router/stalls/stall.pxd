"""Stall reasons of links."""
from libc.stdint cimport uint64_t

from sluice.router.links.delivery_link cimport DeliveryLink

cdef enum:
    STALL_NONE = 0
    # Links of both directions:
    STALL_UNREAD = 1           # the peer does not read its connection, so octets for it cannot be sent
    STALL_MEMORY = 2           # the connection, or the process, holds the maximum of message octets
    STALL_RING = 3             # the ring to another worker is full, so frames of the connection are not read
    STALL_SUPERVISOR = 4       # frames of the connection wait for an answer of the supervisor
    # Links on which the peer receives:
    STALL_CREDIT = 5           # the peer grants no credit
    STALL_WINDOW = 6           # the incoming window of the peer's session is closed
    # Links on which the peer sends and has no credit or no window:
    STALL_NO_CONSUMER = 7      # no consumer of the address can be reached
    STALL_UNSETTLED = 8        # the maximum of the link's deliveries is unsettled or waits for consumers
    STALL_QUOTA = 9            # a quota of the policy is used up
    STALL_ROUTED = 10          # the peer at the other end of the link route grants no credit

cdef enum:
    # Added to the reason in the slot of a link whose stall was found by only one check so far.
    STALL_UNCONFIRMED = 256

# Check a link for a stall, and store the result in its slot. `now` in ns.
cdef int update_stall(DeliveryLink link, uint64_t now) except -1
