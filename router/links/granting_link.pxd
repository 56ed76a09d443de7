"""A link on which the peer sends, and the credit that it is granted (AMQP 1.0 part 2, 2.6.7)."""
from libc.stdint cimport uint32_t

from router.amqp.frames cimport Flow
from router.delivery.delivery cimport IN_CREDITED, IN_KEEP_CREDIT, InDelivery
from router.links.delivery_link cimport DeliveryLink

cdef class GrantingLink(DeliveryLink):
    cdef readonly uint32_t credit          # what the producer may still send
    cdef readonly uint32_t occupied        # of the capacity: deliveries unsettled, held back, or withheld
    cdef uint32_t withheld                 # … arrived while the address was unreachable
    cdef readonly bint flowing             # credit is granted
    cdef bint draining                     # drain was asked for, credit is not granted until reachable again
    cdef bint drain_due
    cdef bint called                       # the router attached it (an auto link), the peer answered
    cpdef set_flowing(self, bint flowing)
    cdef void take_back(self) noexcept
    cdef void forwarded(self, InDelivery* d) noexcept
    cdef bint holds_back(self) noexcept
    cdef uint32_t within_quota(self, uint32_t free) except? 0xFFFFFFFF
    cdef void note_credit(self) noexcept


cdef inline void place_free(GrantingLink link) noexcept:
    """Of its capacity more is free than was: the producer gets credit for it."""
    if not link.needs_flow and link.flowing and not link.draining:
        link.session.want_flow(link)


cdef inline void free_credit(GrantingLink link, const InDelivery* d) noexcept:
    """d has ended: its place is free, unless it was before or is withheld."""
    link.slot.unsettled -= 1
    if d.flags & IN_CREDITED:
        return
    if d.flags & IN_KEEP_CREDIT and link.draining:
        link.withheld += 1
        return
    link.occupied -= 1
    place_free(link)
