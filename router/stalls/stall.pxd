"""Reasons why no delivery moves on a link."""
from libc.stdint cimport uint64_t

from router.links.delivery_link cimport DeliveryLink

cpdef enum Stall:
    STALL_NONE = 0
    # Of links of both directions:
    STALL_UNREAD = 1           # the peer does not read its connection: octets for it do not leave
    STALL_MEMORY = 2           # the connection, or the process, holds as many octets of messages as it may
    STALL_RING = 3             # the ring to another worker is full: frames of the connection are not taken
    STALL_SUPERVISOR = 4       # frames of the connection wait for an answer of the supervisor
    # Of a link on which the peer receives:
    STALL_CREDIT = 5           # the peer grants no credit
    STALL_WINDOW = 6           # the incoming window of the peer's session is shut
    # Of a link on which the peer sends, which has no credit or no window:
    STALL_NO_CONSUMER = 7      # no consumer of its address can be reached
    STALL_UNSETTLED = 8        # consumers have not settled, or not taken, as many deliveries as the link may have
    STALL_QUOTA = 9            # a quota of the policy is used up
    STALL_ROUTED = 10          # the peer at the other end of its link route grants no credit

cdef enum:
    # Added to the reason in the slot of a link that was found to stall by one check only.
    STALL_UNCONFIRMED = 256

# Check a link, and note the result in its slot. now: ns.
cdef int note_stall(DeliveryLink link, uint64_t now) except -1
