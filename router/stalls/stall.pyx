"""Stall detection: why no delivery moves on a link, decided here and stored in the link's slot.

A worker checks its links once a second (workers/stalls.py). A link stalls if nothing moved since the previous check and
there is a reason why nothing can move, whether or not a delivery waits. Where the start of the reason is unknown, the
stall is confirmed by the second check that finds the reason, and is dated to the first one.
"""
from libc.stdint cimport uint32_t, uint64_t

from sluice.router.amqp.buffer cimport buffer_used
from sluice.router.amqp.connection cimport PAUSE_ATTACH, PAUSE_MEMORY, Connection
from sluice.router.amqp.endpoint cimport is_open
from sluice.router.amqp.session cimport Session
from sluice.router.delivery.delivery cimport InDelivery
from sluice.router.ring.layout cimport LinkSlot
from sluice.router.links.delivery_link cimport DeliveryLink
from sluice.router.links.granting_link cimport GrantingLink
from sluice.router.links.pause cimport PAUSE_CONTROL, PAUSE_LOCAL, PAUSE_RING
from sluice.router.policy.quota cimport TenantQuota

from enum import IntEnum

# The reasons by name, for Python.
Stall = IntEnum("Stall", {
    "STALL_NONE": STALL_NONE, "STALL_UNREAD": STALL_UNREAD, "STALL_MEMORY": STALL_MEMORY, "STALL_RING": STALL_RING,
    "STALL_SUPERVISOR": STALL_SUPERVISOR, "STALL_CREDIT": STALL_CREDIT, "STALL_WINDOW": STALL_WINDOW,
    "STALL_NO_CONSUMER": STALL_NO_CONSUMER, "STALL_UNSETTLED": STALL_UNSETTLED, "STALL_QUOTA": STALL_QUOTA,
    "STALL_ROUTED": STALL_ROUTED,
}, module=__name__)

cdef enum:
    UNREAD_MS = 1000           # age of unsent octets from which the peer counts as not reading
    MILLISECOND = 1000000      # ns
    EXAMINED = 64              # unsettled deliveries of a producer that are searched for a local consumer

# Result of a check: the reason of a stall, and details.
cdef struct Finding:
    uint32_t reason
    uint64_t since             # start of the stall in ns; 0: unknown
    uint32_t consumer          # identity of a link that holds a delivery of the producer; 0: unknown
    bint undecided             # a flow is due to be sent; the next check decides


cdef bint is_unread(Connection connection, const LinkSlot* slot, Finding* found) noexcept:
    """Return whether octets for the peer have been unsent for UNREAD_MS or longer."""
    cdef uint64_t since = connection.last_sent * MILLISECOND
    if not buffer_used(&connection.out) or connection.scheduler.now - connection.last_sent < UNREAD_MS:
        return False
    if connection.dirty and (slot.stall != STALL_UNREAD or slot.stall_since != since):
        return False                       # written in this wake; the socket has not been tried yet
    found.since = since
    return True


cdef uint32_t pause_reason(uint32_t paused) noexcept:
    """Return the reason why frames of a paused connection are not read."""
    if paused & PAUSE_RING:
        return STALL_RING
    if paused & PAUSE_MEMORY:
        return STALL_MEMORY
    if paused & (PAUSE_ATTACH | PAUSE_LOCAL | PAUSE_CONTROL):
        return STALL_SUPERVISOR
    return STALL_NONE


cdef uint32_t consumer_of(DeliveryLink link) except? 0:
    """Return the identity of a link of this worker that holds a delivery of this producer, 0 if none is found."""
    cdef InDelivery* d = link.node.in_first
    cdef int left = EXAMINED
    while d is not NULL and left:
        if d.copies is not NULL:
            owner = <object>d.copies.downstream.owner
            if isinstance(owner, DeliveryLink):
                return <uint32_t>getattr((<DeliveryLink>owner).context, "identity", 0)
        d = d.next
        left -= 1
    return 0


cdef int find_consumer_stall(DeliveryLink link, Finding* found) except -1:
    """Find the stall reason of a link on which the peer receives."""
    cdef Session session = link.session
    if not link.slot.blocked_since and session.remote_incoming_window:
        return 0
    found.reason = pause_reason(session.connection.paused)
    if found.reason:
        return 0                           # flows of the peer are not read
    if link.slot.blocked_since:
        found.reason = STALL_CREDIT
        found.since = link.slot.blocked_since
    else:
        found.reason = STALL_WINDOW
    return 0


cdef int find_window_stall(DeliveryLink link, Finding* found) except -1:
    """Find the reason why the router keeps the window of a producer's session closed."""
    cdef Session session = link.session
    cdef object quota = session.connection.quota
    found.undecided = session.window_changed
    if isinstance(quota, TenantQuota) and session in (<TenantQuota>quota).sessions:
        found.reason = STALL_QUOTA
    elif session.waits or session.connection.full():
        found.reason = STALL_MEMORY
    elif session.shut:
        found.reason = STALL_UNSETTLED
        found.consumer = consumer_of(link)
    return 0


cdef int find_credit_stall(GrantingLink link, Finding* found) except -1:
    """Find the reason why the router grants a producer no credit."""
    cdef object quota = link.session.connection.quota
    found.since = link.slot.blocked_since
    found.undecided = link.needs_flow
    if isinstance(quota, TenantQuota) and link in (<TenantQuota>quota).links:
        found.reason = STALL_QUOTA
    elif link.draining or not link.flowing:
        found.reason = STALL_NO_CONSUMER
    elif link.credit_withheld:
        found.reason = STALL_MEMORY
    elif link.credit_held or link.occupied >= link.capacity:
        found.reason = STALL_UNSETTLED
        found.consumer = consumer_of(link)
    return 0


cdef int find_producer_stall(DeliveryLink link, Finding* found) except -1:
    """Find the stall reason of a link on which the peer sends."""
    found.reason = pause_reason(link.session.connection.paused)
    if found.reason:
        return 0
    if link.session.window_left() <= 0:
        find_window_stall(link, found)
    if found.reason or found.undecided or not link.slot.blocked_since:
        return 0
    if isinstance(link, GrantingLink):
        return find_credit_stall(link, found)
    found.reason = STALL_ROUTED
    found.since = link.slot.blocked_since
    return 0


cdef int find_stall(DeliveryLink link, Finding* found) except -1:
    """Find the reason why no delivery can move on a link."""
    found.reason = STALL_NONE
    found.since = 0
    found.consumer = 0
    found.undecided = False
    if not is_open(link) or link.session.ended or link.session.connection.finished:
        return 0
    if is_unread(link.session.connection, link.slot, found):
        found.reason = STALL_UNREAD
        return 0
    return find_producer_stall(link, found) if link.incoming else find_consumer_stall(link, found)


cdef inline void set_stall(LinkSlot* slot, uint32_t reason, uint64_t since, uint32_t detail) noexcept:
    """Store a stall in the slot. Equal values are not written again, because other processes read the slot."""
    if slot.stall != reason or slot.stall_since != since or slot.stall_detail != detail:
        slot.stall_since = since
        slot.stall_detail = detail
        slot.stall = reason


cdef int update_stall(DeliveryLink link, uint64_t now) except -1:
    cdef LinkSlot* slot = link.slot
    cdef uint64_t mark = slot.octets + slot.deliveries + slot.finished
    cdef bint moved = mark != slot.stall_mark
    cdef Finding found
    if moved:
        slot.stall_mark = mark
    find_stall(link, &found)
    if found.undecided and not moved:
        return 0
    # Octets written for a peer that does not read count as moved, so progress does not exclude STALL_UNREAD.
    if not found.reason or (moved and found.reason != STALL_UNREAD):
        set_stall(slot, STALL_NONE, 0, 0)
        return 0
    if found.since:
        set_stall(slot, found.reason, found.since, found.consumer)
    elif slot.stall & ~<uint32_t>STALL_UNCONFIRMED == found.reason:
        set_stall(slot, found.reason, slot.stall_since, found.consumer)
    else:
        set_stall(slot, found.reason | STALL_UNCONFIRMED, now, found.consumer)
    return 0
