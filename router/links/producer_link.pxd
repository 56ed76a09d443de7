"""Links on which a client sends (AMQP 1.0 part 2, 2.6): deliveries are collected and handed to forwarders."""
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from sluice.router.amqp.codec cimport Slice
from sluice.router.delivery.delivery cimport InDelivery
from sluice.router.delivery.plan cimport Plan
from sluice.router.amqp.frames cimport Transfer
from sluice.router.message.content cimport Content, Message
from sluice.router.links.granting_link cimport GrantingLink

# Handler that routes an incoming link's deliveries. One object for each link. Owner: the worker.
cdef class DeliveryHandler:
    # Offer copies of d, whose content is c, to consumers, or refuse it (ProducerLink.refuse, unreachable …). Exactly
    # one of these has happened on return. The exception is content that is not whole and of which more is needed:
    # WANTS_MORE.
    cdef int route(self, ProducerLink link, InDelivery* d, Content* c) except -1
    # Return True if a message that is incomplete, and smaller than what is streamed, should be routed now
    # nevertheless.
    cdef bint streams(self, ProducerLink link, const Content* c) noexcept
    # Return the plan for the delivery of this frame, remembered or made anew; NULL: it needs the slow path. Has no
    # effect. The result is borrowed until the next call.
    cdef const Plan* plan(self, ProducerLink link, const Transfer* t) noexcept
    # Copy the message of this frame, which its plan has carried, for the taps of its address.
    cdef int copy_carried(self, ProducerLink link, const Transfer* t, const Plan* plan) except -1
    # Add a further frame of the current delivery to the copies that taps have begun of it.
    cdef int copy_frame(self, ProducerLink link, const Transfer* t) except -1
    # End these copies: the delivery stays incomplete.
    cdef int abort_copies(self) except -1

cdef enum:
    ROUTED = 0
    WANTS_MORE = 1

cdef enum:
    # Octets of the longest message for the router itself. Such a message is collected whole before it is routed.
    COLLECT_MOST = 1048576
    # Octets of incomplete messages of this kind that the process may hold, over all links; more are released.
    COLLECTING_MOST = 33554432

# Switch the fast path on or off. For tests: off, every delivery takes the slow path.
cdef void use_fast_path(bint on) noexcept
# Make content to be routed of the stored part of d.
cdef void stored_content(InDelivery* d, Content* c) noexcept nogil

# Flags of ProducerLink.observed.
cdef enum Observation:
    LOG_MESSAGES = 1           # the handler is shown each message
    SAMPLE_DELIVERIES = 2      # some deliveries have spans (router/tracing)
    SAMPLE_BY_ADDRESS = 4      # with SAMPLE_DELIVERIES: the address in each message decides
    SAMPLE_PARENTS = 8         # with SAMPLE_DELIVERIES: so does the trace context in each message

# Link on which the peer sends. Owner: its session.
cdef class ProducerLink(GrantingLink):
    cdef DeliveryHandler deliveries
    cdef InDelivery* current               # incomplete delivery, or NULL
    cdef uint64_t route_at                 # octets of `current` at which routing it may succeed; 0: it was not tried
    cdef uint32_t head_tried               # octets of its first chunk at the last call of DeliveryHandler.streams
    cdef bint tapped                       # taps copy `current`, and need its further frames
    cdef readonly uint8_t observed         # Observation; `logged` is True if any flag is set
    cdef readonly uint32_t sampling        # probability that a delivery is sampled, of 2**32; UINT32_MAX: 1
    # Deliveries that come before the next one that the ratio samples: `gap`, or with SAMPLE_PARENTS `parents_gap`; the
    # other one is 0. Both are 0 with LOG_MESSAGES.
    cdef uint32_t gap
    cdef uint32_t parents_gap
    cdef bint settles_first                # unsettled outcomes are settled here (rcv-settle-mode first)
    # Decide how the delivery of a first frame, on a link with `logged`, is observed. Return SAMPLE_DELIVERIES if it has
    # a span, and LOG_MESSAGES if its message is logged. Methods are never inlined, so these add no instruction to links
    # that nothing observes.
    cdef uint8_t observe(self, const Transfer* t) except 255
    cdef void draw_next(self) noexcept
    # Return the plan of a sampled delivery: its usual plan, with the trace context of its span in the edit. NULL: the
    # delivery takes the slow path. The result is borrowed until the next call.
    cdef const Plan* plan_sampled(self, const Transfer* t) noexcept
    # Take the steps of a verdict other than ONE_LEG that follow `carry_whole`: copies of taps, or spans.
    cdef int follow_carried(self, const Transfer* t, const Plan* plan) except -1
    # Begin the span of a sampled delivery on the slow path, with its first frame. Then the frame's octets are replaced
    # by octets with the trace context of the span, which are borrowed until the next sampled delivery arrives.
    cdef int begin_trace(self, InDelivery* d, Transfer* t) except -1
    cdef int store_and_route(self, InDelivery* d, const Transfer* t) except -1
    cdef int keep_state(self, InDelivery* d, const Transfer* t) except -1
    cdef int collect_frame(self, InDelivery* d, const Transfer* t) except -1
    cdef int complete_discarded(self, InDelivery* d) except -1
    cdef int abort(self, InDelivery* d) except -1
    cdef int abort_copies(self) except -1
    cdef int route_logged(self, InDelivery* d, Content* c) except -1
    # Collect all of d, which is incomplete. False: too much is being collected already.
    cdef bint collect(self, InDelivery* d) except *
    cdef int route_stored(self, InDelivery* d, Content* c) except -1
    cdef bint may_route(self, Message* m) noexcept
    cdef int release_held_delivery(self, InDelivery* d) except -1
    cdef int release_unrouted(self) except -1
    cdef void count_unreported_end(self, InDelivery* d) noexcept
    cdef int refuse(self, InDelivery* d, uint8_t kind, bytes state, bint counted) except -1
    # Settle a complete delivery towards both sides. All its copies have an outcome, and none is settled.
    cdef int settle_outcome(self, InDelivery* d, uint8_t kind, const Slice* state) except -1
    cdef int unreachable(self, InDelivery* d) except -1
