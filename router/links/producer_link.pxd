"""A link on which a client sends (AMQP 1.0 part 2, 2.6): collects deliveries, gives them to others."""
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from router.amqp.codec cimport Slice
from router.delivery.delivery cimport InDelivery
from router.amqp.frames cimport Transfer
from router.message.content cimport Content, Message
from router.links.granting_link cimport GrantingLink
from router.stats.counters cimport note_presettled, totals

# What an incoming link does with deliveries. One object per link. Owner: the worker.
cdef class DeliveryHandler:
    # Find copies for d (whose content is c) and offer it to them; or refuse it (ProducerLink.refuse, unreachable …).
    # Exactly one of these has happened on return, except for content that is not whole and of which more is needed:
    # WANTS_MORE.
    cdef int route(self, ProducerLink link, InDelivery* d, Content* c) except -1
    # The message is not complete and smaller than what is streamed: should it be routed now nevertheless?
    cdef bint streams(self, ProducerLink link, const Content* c) noexcept
    # Pass the delivery of this frame on by the short way (forwarding/short_way.pxd). False: nothing is done.
    cdef bint passes(self, ProducerLink link, const Transfer* t) except -1

cdef enum:
    ROUTED = 0
    WANTS_MORE = 1

cdef enum:
    # Octets of a message for the router itself, which is collected whole before it is routed.
    COLLECT_MOST = 1048576
    # Octets of such messages, incomplete, of all links of this process together; what comes beyond is released.
    COLLECTING_MOST = 33554432
    # One of so many settled deliveries of a producer is followed over other routers (Content.checkpoint), and each that
    # has so many octets: what a producer has on its way is bounded by its capacity, times both for small messages.
    CHECKPOINT_EVERY = 16
    CHECKPOINT_OCTETS = 4096

# What is stored of d, as content to be routed.
cdef void stored_content(InDelivery* d, Content* c) noexcept nogil
# How many incoming links this process has made: the number of the last one.
cdef uint64_t producers_made() noexcept

cdef class ProducerLink(GrantingLink):
    cdef DeliveryHandler deliveries
    cdef InDelivery* current               # incomplete delivery
    cdef uint64_t route_at                 # octets of `current` with which routing it may succeed; 0: it was not tried
    cdef uint32_t head_tried               # octets of its first chunk when `DeliveryHandler.streams` was asked last
    cdef readonly uint64_t number          # of the incoming links of this process, in the order of their making
    cdef bint inter_router                 # another router's: totals count deliveries where they enter the network
    cdef readonly bint keeps_credit        # whatever its address can reach: what reaches nobody is released
    cdef bint settles_first                # an outcome that comes unsettled is settled here (rcv-settle-mode first)
    cdef bint credit_on_forward            # credit for unsettled deliveries is given back when they are forwarded
    cdef int store_and_route(self, InDelivery* d, const Transfer* t) except -1
    cdef int keep_state(self, InDelivery* d, const Transfer* t) except -1
    cdef int collect_frame(self, InDelivery* d, const Transfer* t) except -1
    cdef int complete_discarded(self, InDelivery* d) except -1
    cdef int abort(self, InDelivery* d) except -1
    cdef int route_logged(self, InDelivery* d, Content* c) except -1
    # The handler wants all of d, which is not complete. False: too much is being collected already.
    cdef bint collect(self, InDelivery* d) except *
    cdef int route_stored(self, InDelivery* d, Content* c) except -1
    cdef bint may_route(self, Message* m) noexcept
    cdef int give_up_delivery(self, InDelivery* d) except -1
    cdef int give_up_unrouted(self) except -1
    cdef void count_unheard(self, InDelivery* d) noexcept
    cdef int refuse(self, InDelivery* d, uint8_t kind, bytes state, bint counted) except -1
    # Settle a complete delivery, whose copies all have an outcome and are not settled, towards both sides.
    cdef int settle_outcome(self, InDelivery* d, uint8_t kind, const Slice* state) except -1
    cdef int unreachable(self, InDelivery* d) except -1


# Steps of a delivery on its way in.

cdef inline bint is_checkpoint(ProducerLink link, size_t size) noexcept nogil:
    """The delivery that has just come, settled, is followed over other routers (Content.checkpoint). size: octets known
    of it. Counted by what came: a producer may advance its delivery-count as it likes."""
    # As counted before this one.
    return not link.inter_router and ((link.slot.deliveries + 1) % CHECKPOINT_EVERY == 0 or size >= CHECKPOINT_OCTETS)


cdef inline void spend_credit(ProducerLink link) noexcept:
    link.credit -= 1
    link.slot.credit = link.credit
    if link.credit == 0:
        link.slot.blocked_since = link.session.connection.scheduler.now_ns


cdef inline void count_presettled(ProducerLink link) noexcept:
    note_presettled(link.slot, link.session.connection.scheduler.second)
    totals.presettled += not link.inter_router
