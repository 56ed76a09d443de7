"""Links on which the peer sends, and the credit granted to it (AMQP 1.0 part 2, 2.6.7)."""
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from sluice.router.amqp.frames cimport Flow
from sluice.router.delivery.delivery cimport IN_CREDITED, IN_KEEP_CREDIT, InDelivery
from sluice.router.links.delivery_link cimport DeliveryLink
from sluice.router.stats.counters cimport count_presettled_delivery, totals

cdef enum:
    # Of a producer's settled deliveries, one in CHECKPOINT_EVERY is tracked over other routers (Content.checkpoint),
    # and each of CHECKPOINT_OCTETS or more. So a producer's deliveries under way are bounded by its capacity, or
    # CHECKPOINT_EVERY times that for small messages.
    CHECKPOINT_EVERY = 16
    CHECKPOINT_OCTETS = 4096
    # Capacity of a link that adapts, see `adapt`.
    QUICK_NS = 100000000       # age of settled deliveries up to which the capacity grows
    LATE_NS = 1000000000       # age from which it shrinks
    # Times in succession that the newest delivery waits for a consumer's credit until the capacity shrinks, and
    # deliveries, in capacities, until it grows again.
    QUEUED_MOST = 4
    GROWS_AGAIN = 64
    GROWN_OCTETS = 1048576     # octets of messages of mean size in flight up to which the capacity grows

# Return the number of incoming links this process has made, which is the number of the last one.
cdef uint64_t producers_made() noexcept

# Base of ProducerLink. Owner: its session.
cdef class GrantingLink(DeliveryLink):
    cdef readonly uint64_t number          # of this link among the incoming links of the process, in order of creation
    cdef readonly bint keeps_credit        # credit whatever its address can reach: messages for nobody are released
    cdef readonly uint32_t least_capacity  # of a capacity that adapts; 0: it is fixed
    cdef uint32_t largest_capacity         # so far: deliveries for withdrawn credit arrive after the capacity shrank
    cdef uint64_t grow_at                  # number of deliveries of the link from which its capacity may grow
    cdef uint8_t queued                    # times in succession that the newest delivery waited for a consumer's credit
    cdef uint8_t without_drain             # a flow with `draining` takes the credit back instead of asking for a drain
    cdef readonly uint8_t withdrawn        # no credit any more: the router is about to close the connection
    cdef bint crowded                      # the capacity was reduced for that reason, so it grows by quarters
    cdef uint32_t counted_in               # window of the capacity share in which this link was counted
    cdef bint used_up                      # the producer has sent deliveries for all of its credit
    cdef bint gave_back                    # the producer has given credit back since some was granted: it had too much
    cdef uint64_t age                      # ns from arrival to settlement of a delivery that was settled lately
    cdef readonly uint32_t credit          # deliveries that the producer may still send
    cdef readonly uint32_t occupied        # occupied places of the capacity: unsettled, held back or withheld
    cdef uint32_t withheld                 # deliveries that arrived while the address was unreachable
    cdef readonly bint flowing             # credit is granted
    cdef bint draining                     # the producer was asked to drain; no credit until the address is reachable
    cdef bint drain_due                    # the flow with this drain is to be written
    cdef bint inter_router                 # another router's link: totals count deliveries where they enter the network
    cdef bint credit_on_forward            # credit of unsettled deliveries is given back when they are forwarded
    cdef bint called                       # the router attached the link (an auto link), and the peer has answered
    cpdef set_flowing(self, bint flowing)
    cpdef withdraw_credit(self)
    cdef void take_back(self) noexcept
    cdef void pause_credit(self) noexcept
    cdef bint asks_drain(self) noexcept
    cdef void forwarded(self, InDelivery* d) noexcept
    cdef bint withholds_credit(self) noexcept
    cdef void adapt(self) noexcept
    cdef void change_capacity(self, uint32_t capacity) noexcept
    cdef uint32_t within_quota(self, uint32_t free) except? 0xFFFFFFFF
    cdef void note_credit(self) noexcept


cdef inline void request_flow(GrantingLink link) noexcept:
    """Let the producer have credit for a place that has become free."""
    if not link.needs_flow and link.flowing and not link.draining:
        link.session.want_flow(link)


cdef inline void free_credit(GrantingLink link, const InDelivery* d) noexcept:
    """Free the place of a delivery that has ended, unless it was freed before or is withheld."""
    link.slot.unsettled -= 1
    if d.flags & IN_CREDITED:
        return
    if d.flags & IN_KEEP_CREDIT and link.draining:
        link.withheld += 1
        return
    link.occupied -= 1
    request_flow(link)


# Steps of an incoming delivery

cdef inline bint is_checkpoint(GrantingLink link, size_t size) noexcept nogil:
    """Return True if the settled delivery that has just arrived is tracked over other routers (Content.checkpoint).

    size: octets of it known so far. Deliveries are counted by arrival, since a producer may advance its delivery-count
    as it likes. This delivery is not counted yet.
    """
    return not link.inter_router and ((link.slot.deliveries + 1) % CHECKPOINT_EVERY == 0 or size >= CHECKPOINT_OCTETS)


cdef inline void spend_credit(GrantingLink link) noexcept:
    """Spend one credit of the producer."""
    link.credit -= 1
    link.slot.credit = link.credit
    if link.credit == 0:
        link.used_up = not link.gave_back
        link.slot.blocked_since = link.session.connection.scheduler.now_ns


cdef inline void count_presettled(GrantingLink link) noexcept:
    count_presettled_delivery(link.slot, link.session.connection.scheduler.second)
    totals.presettled += not link.inter_router
