"""Links on which a client sends (AMQP 1.0 part 2, 2.6): deliveries are collected and routed, outcomes reported.

routing-semantics.md 5, 11.6, 11.7. For the credit of the link see granting_link.
"""
from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memcpy, memset

from sluice.router.amqp.connection cimport Connection
from sluice.router.amqp.endpoint cimport is_detached, is_open
from sluice.router.amqp.link_life cimport ON_DECIDED
from sluice.router.amqp.zero cimport zero
from sluice.router.links.granting_link cimport count_presettled, free_credit, is_checkpoint, request_flow, spend_credit
from sluice.router.stats.counters cimport (
    count_age, count_drop, count_finished, count_outcome, count_total, totals,
)
from sluice.router.amqp.id_map cimport map_take
from sluice.router.amqp.states cimport is_outcome, plain_state, state_kind
from sluice.router.delivery.carry cimport carry_whole, is_plain_arrival, octets_out
from sluice.router.delivery.delivery cimport (
    IN_ACCEPT, IN_COLLECT, IN_COMPLETE, IN_DISCARD, IN_FINAL, IN_KEEP_CREDIT, IN_MULTI, IN_PRESETTLED,
    IN_ROUTED, IN_STUCK, IN_REPORTED, IN_TRACED, IN_TRACKED, OUT_STARTED, OUT_TRACED, OutDelivery, in_abandon,
    in_charge_sent, in_free, in_more, in_has_unwritten,
)
from sluice.router.delivery.entry cimport count_entry
from sluice.router.delivery.outcome cimport in_keep_state, in_lost, in_routed, in_settled_late, in_update
from sluice.router.delivery.settled_state cimport settled_state
from sluice.router.amqp.meter cimport Meter, meter_new
from sluice.router.message.content cimport (
    STATE_IN_TRANSFER, STREAM_AT, Message, message_append, message_awaited, message_linearise, message_meter,
    message_new, message_release, message_routed, message_state,
)
from sluice.router.delivery.plan cimport CARRIED, ONE_LEG, SAMPLED_LEG, TAPPED_LEG
from sluice.router.message.sections cimport Sections, scan_needs
from sluice.router.links.settlement cimport settle_sources
from sluice.router.table.forward cimport forward_all
from sluice.router.table.table cimport ForwardingAddress
from sluice.router.links.delivery_link cimport check_continues, delivery_begins
from sluice.router.amqp.scheduler cimport charge
from sluice.router.amqp.session cimport HOLD_OCTETS, Session, note_delivery
from sluice.router.amqp.session_reports cimport report_settled
from sluice.router.amqp.link cimport CREDIT_OCTETS
from sluice.router.amqp.spec cimport D_ACCEPTED, D_MODIFIED, D_REJECTED, D_RELEASED
from sluice.router.links.consumer_link cimport AnnotationsEdit, ConsumerLink
from sluice.router.tracing.context cimport TraceContext, may_have_context
from sluice.router.tracing.tracer cimport (
    RULE_UNITS, SPAN_QUEUED, SPAN_SETTLED, Arrival, annotate, begin_carried, begin_span, decide, decided_context,
    draw_gap, note_span_outcome,
)
from sluice.router.ring.layout cimport DROP_NO_DESTINATION, DROP_OVERFLOW, DROP_PRODUCER_LOST, DROP_REJECTED

from sluice.router.amqp import codec
from sluice.router.amqp.errors import RESOURCE_LIMIT, LocalError

cdef enum:
    DEFAULT_CAPACITY = 250     # deliveries, as in Dispatch
    # Transfers beyond the credit are accepted, as in Dispatch, up to OVERRUN * largest_capacity + OVERRUN_MORE
    # deliveries. Beyond that the link is detached.
    OVERRUN = 2
    OVERRUN_MORE = 16

# Outcome of a message whose sections before the body are larger than the router stores.
SECTIONS_TOO_LARGE = codec.encode_described(
    0x25, [codec.encode_error(RESOURCE_LIMIT, "the sections before the body are too large")])


# Octets of incomplete messages in this process that are collected whole.
cdef Meter* collecting = meter_new(NULL, NULL)


cdef class DeliveryHandler:
    cdef int route(self, ProducerLink link, InDelivery* d, Content* c) except -1:
        raise NotImplementedError

    cdef bint streams(self, ProducerLink link, const Content* c) noexcept:
        return False

    cdef const Plan* plan(self, ProducerLink link, const Transfer* t) noexcept:
        return NULL

    cdef int copy_carried(self, ProducerLink link, const Transfer* t, const Plan* plan) except -1:
        return 0

    cdef int copy_frame(self, ProducerLink link, const Transfer* t) except -1:
        return 0

    cdef int abort_copies(self) except -1:
        return 0


cdef bint fast_path_on = True


cdef void use_fast_path(bint on) noexcept:
    global fast_path_on
    fast_path_on = on


cdef inline void set_head(Content* c) noexcept nogil:
    """Point the content at the first chunk of its stored message."""
    if c.stored.head is not NULL:
        c.data = &c.stored.head.data[0]
        c.size = c.stored.head.size
    c.whole = c.complete and c.stored.head is c.stored.tail


cdef void stored_content(InDelivery* d, Content* c) noexcept nogil:
    """Make content to be routed of the stored part of d."""
    memset(c, 0, sizeof(Content))
    c.stored = d.message
    c.complete = d.message.complete
    c.format = d.message.format
    c.state.data = d.message.state
    c.state.size = d.message.state_size
    c.settled = (d.flags & IN_PRESETTLED) != 0
    set_head(c)


cdef Slice relayed_state(Session session, const Slice* state) except *:
    """Return the delivery state of a transfer as it is relayed. Raises RemoteError if it is malformed."""
    session.check_value(state)
    return state[0] if state.size <= STATE_IN_TRANSFER else plain_state(state_kind(state))


cdef inline void count_end(ProducerLink link, uint8_t kind) noexcept:
    """Count the end of an unsettled delivery."""
    count_finished(link.slot, link.session.connection.scheduler.second)
    count_outcome(link.slot, kind)
    count_total(kind, not link.inter_router)


cdef bint count_unusual_end(ProducerLink link, const InDelivery* d, uint8_t kind) noexcept:
    """Keep the outcome of a delivery for its span, if it has one. Return True if d is tracked, after counting its end:
    a delivery that its producer sent settled counts as presettled, whatever its outcome."""
    if d.flags & IN_TRACED:
        note_span_outcome(d, kind)
    if d.flags & IN_TRACKED:
        count_presettled(link)
        return True
    return False


cdef inline void count_ended(ProducerLink link, const InDelivery* d, uint8_t kind) noexcept:
    """Count the end of d."""
    if d.flags & (IN_TRACKED | IN_TRACED) and count_unusual_end(link, d, kind):
        return
    count_end(link, kind)


cdef inline void count_settled_end(ProducerLink link, const InDelivery* d, uint8_t kind) noexcept:
    """Count the end of d by settlement; unlike `count_ended` this counts its age as well."""
    if d.flags & (IN_TRACKED | IN_TRACED) and count_unusual_end(link, d, kind):
        return
    count_end(link, kind)
    count_age(link.slot, link.session.connection.scheduler.now_ns - d.since, True)


cdef inline int finish(ProducerLink link, InDelivery* d, uint8_t kind, const Slice* state) except -1:
    """Settle d towards its producer, count it and free it."""
    report_settled(link.session, <uint32_t>d.key, kind, state)
    if d.since:
        count_settled_end(link, d, kind)
    map_take(&link.session.received, d.key)
    free_credit(link, d)
    in_free(d)
    return 0


cdef inline int complete_stored(ProducerLink link, InDelivery* d) except -1:
    """Finish the arrival of a routed delivery: its last octet is here."""
    cdef Slice state
    if d.message is not NULL:
        message_release(d.message)
        d.message = NULL
    if d.flags & IN_PRESETTLED:
        count_presettled(link)
        return link.returned(d) if d.live == 0 else 0
    if d.flags & IN_ACCEPT:
        state = plain_state(D_ACCEPTED)
        return link.outcome(d, D_ACCEPTED, &state, True)
    if d.flags & IN_FINAL:
        state.data = d.state
        state.size = d.state_size
        return link.outcome(d, d.kind, &state, True)
    if link.settles_first and is_outcome(d.kind) and d.flags & (IN_MULTI | IN_REPORTED) != IN_MULTI:
        state.data = d.state               # set before the last octet arrived
        state.size = d.state_size
        return link.settle_outcome(d, d.kind, &state)
    return 0


cdef Arrival arrival                   # the last one that was decided about
cdef Plan sampled_plan                 # of the last delivery that was sampled


cdef inline bint pass_by(ProducerLink link, const Transfer* t) noexcept:
    """Return True if nothing observes this delivery, as is usual: the countdown of the link excludes it, and its
    message has no trace context that matters."""
    if link.gap:
        link.gap -= 1
        return True
    if not link.parents_gap or may_have_context(t.payload.data, t.payload.size):
        return False
    link.parents_gap -= 1
    return True


cdef inline bint forward_planned(const Plan* plan, InDelivery* d, Content* c) except -1:
    """Forward a delivery whose plan is EACH_CONSUMER. Returns False, without any effect, if no consumer gets it."""
    c.sections.at = c.sections.end = plan.at
    c.sections.priority = plan.priority
    c.honour = plan.honour
    c.anonymous = plan.anonymous
    c.to = plan.to
    c.phase = plan.phase
    if not forward_all(<ForwardingAddress>plan.address, d, c):
        zero(&c.sections, sizeof(Sections))
        return False
    count_entry(plan.entry, plan.slot)
    return True


cdef inline int route_content(ProducerLink link, InDelivery* d, Content* c, const Plan* plan) except -1:
    """Route a delivery, and take the steps that follow a routing; see `route_delivery`."""
    cdef bint complete = c.complete
    c.producer = link.number
    c.checkpoint = c.settled and is_checkpoint(link, c.size)
    if (plan is NULL or not forward_planned(plan, d, c)) \
            and (link.route_logged(d, c) if link.logged else link.deliveries.route(link, d, c)) == WANTS_MORE:
        if c.whole:
            raise LocalError("link", "amqp:internal-error", "a whole message cannot be routed")
        return WANTS_MORE
    if d.flags & IN_DISCARD:
        return link.complete_discarded(d) if complete else 0
    link.slot.deliveries += 1
    if c.stored is not NULL:
        message_meter(c.stored, link.whole_meter() if complete else link.streams_meter())
        message_routed(c.stored)
        if d.message is NULL:
            # The copies hold references to the message that content_store made.
            message_release(c.stored)
            c.stored = NULL
    if link.credit_on_forward:
        link.forwarded(d)
    if d.flags & (IN_PRESETTLED | IN_ACCEPT):
        in_routed(d)
        if complete:
            return complete_stored(link, d)
        return 0
    if complete and d.message is not NULL:
        message_release(d.message)
        d.message = NULL
    if d.flags & IN_MULTI:
        in_charge_sent(d, link.whole if link.whole is not NULL else link.whole_meter())
    in_routed(d)
    return 0


cdef inline int route_delivery(ProducerLink link, InDelivery* d, Content* c, const Plan* plan=NULL) except -1:
    """Route a delivery. Returns ROUTED (d may be freed), or WANTS_MORE for content that is not whole.

    plan: of a whole message that each consumer gets, or NULL.
    """
    cdef bint stored_here = d.message is NULL and c.stored is NULL
    cdef bint failed = True
    cdef int result
    # Not `except`: that would save the interpreter's state for each delivery.
    try:
        result = route_content(link, d, c, plan)
        failed = False
    finally:
        if failed and stored_here and c.stored is not NULL:
            message_release(c.stored)
            c.stored = NULL
    return result


cdef inline int first_frame(ProducerLink link, const Transfer* t, const Plan* plan, uint8_t observed) except -1:
    """Process the first frame of a delivery: route it if it is the only frame, else store it. plan: as of
    `route_delivery`. observed: as of `ProducerLink.observe`."""
    cdef InDelivery* d
    cdef Content c
    note_delivery(link.session, t)
    if link.credit:
        spend_credit(link)
    elif link.occupied >= OVERRUN * link.largest_capacity + OVERRUN_MORE:
        link.overrun()
        return 0
    link.occupied += 1
    link.slot.unsettled += 1
    d = delivery_begins(link, t, 0)
    if observed & SAMPLE_DELIVERIES:
        link.begin_trace(d, <Transfer*>t)
    if t.aborted:
        return link.abort(d)
    if t.more:
        link.current = d
        link.route_at = 0
        link.head_tried = 0
        d.message = message_new(t.message_format)
        # Before it is routed, it is metered like a whole message, which shuts a window only when memory is full.
        message_meter(d.message, link.whole_meter())
        if t.state.size:
            link.keep_state(d, t)
        return link.store_and_route(d, t)
    zero(&c, sizeof(Content))
    c.data = t.payload.data
    c.size = t.payload.size
    c.complete = c.whole = True
    c.settled = t.settled
    c.format = t.message_format
    if t.state.size:
        c.state = relayed_state(link.session, &t.state)
    d.flags |= IN_COMPLETE
    return route_delivery(link, d, &c, plan)


cdef inline int next_frame(ProducerLink link, const Transfer* t) except -1:
    """Process a further frame of the current delivery."""
    cdef InDelivery* d = link.current
    check_continues(d, t)
    if t.aborted:
        link.current = NULL
        return link.abort(d)
    if t.state.size and d.message is not NULL:
        link.keep_state(d, t)
    if t.settled and not d.flags & IN_PRESETTLED:
        map_take(&link.session.received, d.key)
        in_settled_late(d)
    return link.store_and_route(d, t)


cdef int store_frame(ProducerLink link, InDelivery* d, const Transfer* t) except -1:
    """Store one frame of a delivery of several frames, and route the delivery when possible."""
    cdef Message* m = d.message
    cdef Content c
    if not t.more:
        link.current = NULL
        d.flags |= IN_COMPLETE
    if d.flags & IN_DISCARD:
        return link.complete_discarded(d) if not t.more else 0
    if d.flags & IN_COLLECT:
        return link.collect_frame(d, t)
    message_append(m, t.payload.data, t.payload.size)
    m.complete = not t.more
    if link.streams is not NULL and link.streams.held >= CREDIT_OCTETS and not link.credit_held \
            and not link.inter_router and link.flowing and not link.draining:
        link.credit_held = True
        link.session.want_flow(link)
    if d.flags & IN_ROUTED:
        in_more(d)
        return complete_stored(link, d) if not t.more else 0
    if not m.complete and not link.may_route(m):
        return 0
    stored_content(d, &c)
    if not m.complete and m.size < STREAM_AT and not link.route_at:
        link.head_tried = m.head.size
        if not link.deliveries.streams(link, &c):
            return 0
    return link.route_stored(d, &c)


cdef class ProducerLink(GrantingLink):
    """Link on which the peer sends. Owner: its session."""

    def __cinit__(self, *, capacity=0, initial_delivery_count=0):
        self.capacity = self.largest_capacity = capacity or DEFAULT_CAPACITY
        self.delivery_count = initial_delivery_count
        self.awaits_decision = True

    def from_edge(self):
        """Use the credit rules of an edge connection at an interior router: those of links between routers
        (inter-router.md 14.3)."""
        self.keeps_credit = self.credit_on_forward = True

    def from_interior(self):
        """Use the credit rules of an edge router's uplink: credit whatever can be reached."""
        self.keeps_credit = True

    def settle_first(self):
        """Settle outcomes for the peer: rcv-settle-mode first was agreed (2.7.3).

        Otherwise the peer settles them, as a client with mode second and another Sluice router do.
        """
        self.settles_first = True

    def use(self, DeliveryHandler deliveries not None):
        """Set the handler that routes the link's deliveries."""
        self.deliveries = deliveries

    def sample(self, uint8_t flags, uint32_t sampling):
        """Set how deliveries are observed. flags: Observation. sampling: as of the attribute."""
        self.observed = flags
        self.sampling = sampling
        self.gap = self.parents_gap = 0
        if flags & SAMPLE_DELIVERIES:
            self.draw_next()

    def decided(self):
        """Start to accept the peer's frames for the link: the attach was answered."""
        cdef Connection connection = self.session.connection
        if not connection.relays and self.node.meter is NULL:
            self.node.meter = connection.content_meter()
            self.node.meter.refs += 1
        self.live(ON_DECIDED)

    cdef bint goes_on(self) noexcept:
        cdef InDelivery* d = self.current
        if not is_open(self) or (d is NULL and self.credit == 0):
            return False
        if d is not NULL and (not d.flags & IN_ROUTED or d.flags & IN_DISCARD or message_awaited(d.message)):
            return True
        if self.session.connection.full():
            return self.octets_held() + self.octets_awaited() < HOLD_OCTETS
        return self.streams is NULL or self.streams.held < HOLD_OCTETS

    cdef size_t octets_unrouted(self) noexcept:
        cdef InDelivery* d = self.current
        if d is NULL or d.message is NULL or d.flags & (IN_ROUTED | IN_COLLECT):
            return 0
        return <size_t>d.message.size

    cdef str give_up(self):
        """Release held deliveries of which no consumer, or only some consumer, has got a part."""
        cdef InDelivery* d = self.node.in_first
        cdef InDelivery* following
        while d is not NULL:
            following = d.next
            if d.flags & IN_ROUTED and not d.flags & IN_DISCARD and in_has_unwritten(d):
                self.release_held_delivery(d)
            d = following
        if self.inter_router:
            self.release_unrouted()
            return "its waiting messages were released"
        self.close_with(RESOURCE_LIMIT, "memory limit reached: the consumers of this link do not take its messages")
        return "the link was closed"

    cdef int release_unrouted(self) except -1:
        """Release the message that is arriving and not routed yet; its remaining frames are dropped."""
        cdef InDelivery* d = self.current
        if d is NULL or d.flags & (IN_ROUTED | IN_DISCARD):
            return 0
        self.refuse(d, D_RELEASED, None, False)
        message_release(d.message)
        d.message = NULL
        return 0

    cdef int release_held_delivery(self, InDelivery* d) except -1:
        cdef uint8_t kind = D_RELEASED
        cdef Slice state
        if in_abandon(d):
            kind = D_MODIFIED              # some consumer has got a part
        state = plain_state(kind)
        if d.flags & IN_PRESETTLED:
            count_drop(self.slot, DROP_OVERFLOW)
            if d.flags & IN_COMPLETE:
                return self.returned(d)    # counted when its last octet arrived
            d.since = 0                    # nothing else of it is counted
            count_presettled(self)
            d.flags |= IN_DISCARD
            if d.message is not NULL:
                message_release(d.message)
                d.message = NULL
            return 0
        return self.outcome(d, kind, &state, True)

    # -- deliveries ---------------------------------------------------------------------------------------------------

    cdef int on_transfer(self, const Transfer* t) except -1:
        cdef const Plan* plan = NULL
        cdef uint8_t observed = 0
        self.slot.octets += t.payload.size
        if self.current is not NULL:
            return next_frame(self, t)
        if self.logged and not pass_by(self, t):
            observed = self.observe(t)
        if fast_path_on and is_plain_arrival(self, t):
            if not observed:
                plan = self.deliveries.plan(self, t)
            elif observed == SAMPLE_DELIVERIES:
                plan = self.plan_sampled(t)
            if plan is not NULL and plan.verdict & CARRIED:
                # The compiler expands `carry_whole` only if this is its one call, so all verdicts share it.
                if carry_whole(self, t, plan):
                    return 0 if plan.verdict == ONE_LEG else self.follow_carried(t, plan)
                plan = NULL
        return first_frame(self, t, plan, observed)

    cdef uint8_t observe(self, const Transfer* t) except 255:
        cdef uint8_t logged = self.observed & LOG_MESSAGES
        if not self.observed & SAMPLE_DELIVERIES or t.aborted:
            return logged
        if logged:
            arrival.chosen = draw_gap(self.sampling) == 0
        elif self.parents_gap:
            self.parents_gap -= 1
            arrival.chosen = False
        else:
            arrival.chosen = True
            self.draw_next()
        if not arrival.chosen and not self.observed & SAMPLE_PARENTS:
            return logged
        arrival.threshold = self.sampling
        # The peer is a router, so that the message's router annotations may name its address.
        arrival.honour = self.inter_router or self.session.connection.relays
        arrival.by_address = self.observed & SAMPLE_BY_ADDRESS
        arrival.settled = t.settled
        arrival.searched = False
        if decide(&arrival, self.context, &t.payload):
            logged |= SAMPLE_DELIVERIES
        if arrival.searched:
            charge(self.session.connection.scheduler, RULE_UNITS)
        return logged

    cdef void draw_next(self) noexcept:
        """Choose the next delivery that the ratio samples."""
        if self.observed & LOG_MESSAGES:
            return                         # drawn for each delivery
        if self.observed & SAMPLE_PARENTS:
            self.parents_gap = draw_gap(self.sampling)
        else:
            self.gap = draw_gap(self.sampling)

    cdef const Plan* plan_sampled(self, const Transfer* t) noexcept:
        cdef const Plan* plan = self.deliveries.plan(self, t)
        cdef const TraceContext* context = decided_context()
        cdef AnnotationsEdit* edit = &sampled_plan.leg.edit
        cdef Slice section
        if plan is NULL or plan.verdict != ONE_LEG or plan.leg.link is NULL:
            return NULL                    # the message itself takes the context to another worker, or to several
        memcpy(&sampled_plan, plan, sizeof(Plan))
        if not plan.leg.edited:
            edit.at = context.at
            edit.end = context.end
            section.data = t.payload.data + context.at
            section.size = context.end - context.at
        else:
            section.data = edit.octets
            section.size = edit.size
        if not annotate(&section):
            return NULL
        edit.octets = section.data
        edit.size = section.size
        sampled_plan.leg.edited = True
        sampled_plan.verdict = SAMPLED_LEG
        return &sampled_plan

    cdef int follow_carried(self, const Transfer* t, const Plan* plan) except -1:
        cdef InDelivery* d = NULL if t.settled else self.node.in_last
        cdef OutDelivery* o = NULL if d is NULL else d.copies
        cdef uint8_t flags = SPAN_SETTLED if o is NULL else 0 if o.flags & OUT_STARTED else SPAN_QUEUED
        cdef int begun
        if plan.verdict == TAPPED_LEG:
            return self.deliveries.copy_carried(self, t, plan)
        begun = begin_carried(&arrival, d, o, self.context, (<ConsumerLink>plan.leg.link).context, t.payload.size,
                              octets_out(t, &plan.leg), flags)
        if begun:
            d.flags |= IN_TRACED
        if begun == 2:
            o.flags |= OUT_TRACED
        return 0

    cdef int begin_trace(self, InDelivery* d, Transfer* t) except -1:
        if begin_span(d, &arrival, self.context, &t.payload):
            d.flags |= IN_TRACED
        return 0

    cdef int keep_state(self, InDelivery* d, const Transfer* t) except -1:
        """Apply a delivery state in one of several transfers. Copies that have started are notified; others carry the
        state in their first transfer (routing-semantics.md D-4)."""
        cdef Slice state = relayed_state(self.session, &t.state)
        if state.size:
            message_state(d.message, &state)
        if d.flags & IN_ROUTED:
            in_update(d, state_kind(&state), &state, False)
        return 0

    cdef int store_and_route(self, InDelivery* d, const Transfer* t) except -1:
        """Store one frame of a delivery of several frames, route the delivery when possible, and add the frame to the
        copies that taps have begun with an earlier one."""
        cdef bint tapped = self.tapped
        store_frame(self, d, t)            # may free d
        return self.deliveries.copy_frame(self, t) if tapped else 0

    cdef bint may_route(self, Message* m) noexcept:
        """Return True if routing an incomplete message may now succeed where it did not before.

        Each try costs as much as the message has octets, and a frame may bring only one octet.

        routing-semantics.md F-1.
        """
        if m.size < self.route_at:
            return False
        return m.size >= STREAM_AT or self.route_at or (m.head is not NULL and m.head.size != self.head_tried)

    cdef bint collect(self, InDelivery* d) except *:
        if not d.flags & IN_COLLECT:
            d.flags |= IN_COLLECT
            message_meter(d.message, collecting)
        return collecting.held <= COLLECTING_MOST

    cdef int collect_frame(self, InDelivery* d, const Transfer* t) except -1:
        """Store one frame of a message that is routed when complete, unless it grows too large."""
        cdef Message* m = d.message
        cdef Content c
        message_append(m, t.payload.data, t.payload.size)
        m.complete = not t.more
        if t.more and m.size <= COLLECT_MOST and collecting.held <= COLLECTING_MOST:
            return 0
        stored_content(d, &c)
        return self.route_stored(d, &c)

    cdef int route_stored(self, InDelivery* d, Content* c) except -1:
        """Route a stored delivery by its first chunk, or, if that is not enough, by all octets.

        If all are not enough either, note how many may be.
        """
        cdef Message* m = c.stored
        cdef int result
        cdef size_t room = 0
        cdef bint complete = c.complete
        if not complete:
            m.refs += 1        # a reference of this call, while the message is routed
        result = route_delivery(self, d, c)
        if result == WANTS_MORE and m.head is not m.tail and (complete or not d.flags & IN_COLLECT):
            if not complete:
                # Further octets are appended in place. Room is doubled, so that all copying together is of a few times
                # as many octets as arrived.
                room = 2 * STREAM_AT if m.size >= STREAM_AT else 2 * <size_t>m.size
            if complete or scan_needs(c.data, c.size) <= m.size:
                message_linearise(m, room)
                set_head(c)
                result = route_delivery(self, d, c)
        if complete:
            return 0
        if result == WANTS_MORE:
            # Never more than twice STREAM_AT: larger leading sections are rejected below.
            self.route_at = min(<uint64_t>scan_needs(c.data, c.size), <uint64_t>2 * STREAM_AT)
        if result == ROUTED:
            if d.flags & IN_DISCARD:
                # Its octets are not needed, and neither are those to come.
                if d.message is not NULL:
                    message_release(d.message)
                    d.message = NULL
            message_release(m)
            return 0
        message_release(m)
        if d.flags & IN_COLLECT:
            return 0
        if m.size >= 2 * STREAM_AT:
            # The leading sections alone are larger than any that Dispatch would take.
            self.refuse(d, D_REJECTED, SECTIONS_TOO_LARGE, False)
        return 0

    cdef int route_logged(self, InDelivery* d, Content* c) except -1:
        """Route a message and log it: first, if it is whole; otherwise once it has been routed."""
        cdef int result
        cdef bint whole = c.whole
        if self.observed and not self.observed & LOG_MESSAGES:
            return self.deliveries.route(self, d, c)
        if whole:
            self.trace_message(c.data, c.size)
        result = self.deliveries.route(self, d, c)
        if result == ROUTED and not whole:
            self.trace_message(c.data, c.size)
        return result

    cdef int complete_discarded(self, InDelivery* d) except -1:
        """Finish a discarded delivery whose last octet has arrived, with the outcome fixed before."""
        cdef Slice state
        if d.flags & IN_PRESETTLED:
            if d.since:
                # The producer settled it with the last octet, after it had an outcome.
                count_ended(self, d, d.kind)
            return self.returned(d)
        state.data = d.state
        state.size = d.state_size
        return self.outcome(d, d.kind, &state, True)

    cdef int abort(self, InDelivery* d) except -1:
        """End an aborted delivery. It is implicitly settled (2.7.5): no outcome is reported."""
        if self.tapped:
            self.abort_copies()
        if not d.flags & IN_PRESETTLED:
            map_take(&self.session.received, d.key)
        self.count_unreported_end(d)
        free_credit(self, d)
        return in_lost(d)

    cdef int abort_copies(self) except -1:
        """End the copies that taps make of the current delivery, which stays incomplete."""
        self.tapped = False
        return self.deliveries.abort_copies()

    cdef void count_unreported_end(self, InDelivery* d) noexcept:
        """Count the end of a delivery that its producer aborted, or whose producer is gone."""
        if d.flags & IN_DISCARD:
            if d.since:
                count_ended(self, d, d.kind)
        elif not d.flags & IN_ROUTED:
            return
        elif d.flags & IN_PRESETTLED and (d.live == 0 or d.flags & IN_COMPLETE):
            if not d.flags & IN_COMPLETE:
                count_presettled(self)    # all its consumers are gone already
        elif not d.flags & IN_COMPLETE:
            count_finished(self.slot, self.session.connection.scheduler.second)
            totals.dropped[DROP_PRODUCER_LOST] += not self.inter_router
        else:
            count_ended(self, d, d.kind)

    def overrun(self):
        """Detach the link: it used far more than its credit (2.6.12 leaves the limit to the router)."""
        self.close_with("amqp:link:transfer-limit-exceeded", f"transfers exceed {OVERRUN} times the link's capacity")

    # -- outcomes -----------------------------------------------------------------------------------------------------

    cdef int refuse(self, InDelivery* d, uint8_t kind, bytes state, bint counted) except -1:
        """Refuse a delivery: make no copy, report this outcome. state: its encoding; None: without fields."""
        cdef Slice s
        if state is not None:
            s.data = state
            s.size = len(state)
        else:
            s = plain_state(kind)
        if counted:
            self.slot.deliveries += 1
            if not self.inter_router:
                totals.ingress += 1
                totals.ingress_container += self.slot.container
        if d.flags & IN_PRESETTLED:
            d.since = 0            # nothing else of it is counted
            if counted:
                count_presettled(self)
                count_drop(self.slot, DROP_REJECTED if kind == D_REJECTED else DROP_NO_DESTINATION)
            d.flags |= IN_DISCARD
            return 0
        if not counted:
            d.since = 0
        in_keep_state(d, kind, &s)
        d.flags |= IN_DISCARD
        if not d.flags & IN_COMPLETE:
            self.session.report(<uint32_t>d.key, kind, &s, False)
        return 0

    cdef int unreachable(self, InDelivery* d) except -1:
        """Release a delivery whose address has become unreachable (routing-semantics.md 5, K-6).

        Its credit is withheld, and the producer is asked to drain. From a peer that the router called, the credit is
        withdrawn.
        """
        d.flags |= IN_KEEP_CREDIT
        if not self.draining:
            self.draining = True
            self.drain_due = True
            self.session.want_flow(self)
        return self.refuse(d, D_RELEASED, None, True)

    cdef int outcome(self, InDelivery* d, uint8_t kind, const Slice* state, bint settled) except -1:
        if not settled:
            if self.settles_first and is_outcome(kind) \
                    and d.flags & (IN_COMPLETE | IN_ROUTED) == IN_COMPLETE | IN_ROUTED:
                return self.settle_outcome(d, kind, state)
            return self.session.report(<uint32_t>d.key, kind, state, False)
        if d.flags & IN_COMPLETE:
            return finish(self, d, kind, state)
        # Settled before its last octet: report the outcome now, settle with the last octet, drop the octets in
        # between.
        if state.data is not d.state:
            in_keep_state(d, kind, state)
        d.flags |= IN_FINAL | IN_DISCARD
        if kind:
            self.session.report(<uint32_t>d.key, kind, state, False)
        if d.message is not NULL:
            message_release(d.message)
            d.message = NULL
        return 0

    cdef int settle_outcome(self, InDelivery* d, uint8_t kind, const Slice* state) except -1:
        # Of a multicast delivery, each consumer keeps its own outcome.
        cdef Slice told = plain_state(0) if d.flags & IN_MULTI else settled_state(kind, state)
        report_settled(self.session, <uint32_t>d.key, kind, state)
        in_update(d, kind if told.size else 0, &told, True)
        if d.since:
            count_end(self, kind)
            count_age(self.slot, self.session.connection.scheduler.now_ns - d.since, True)
        map_take(&self.session.received, d.key)
        free_credit(self, d)
        in_free(d)
        return 0

    cdef bint settled(self, OutDelivery** run, uint32_t n, uint8_t kind, const Slice* state) except -1:
        cdef uint64_t since = run[0].source.since      # which ends now
        cdef uint32_t occupied = settle_sources(self, run, n, kind, state, not self.inter_router)
        self.slot.unsettled -= n
        if since:
            self.age = self.session.connection.scheduler.now_ns - since
        if occupied:
            self.occupied -= occupied
            request_flow(self)
        return True

    cdef int returned(self, InDelivery* d) except -1:
        """Finish a presettled delivery, which is counted and occupies its place no more."""
        free_credit(self, d)
        in_free(d)
        return 0

    cdef int delivery_update(self, void* entry, uint8_t kind, const Slice* state, bint settled) except -1:
        """Process the producer's disposition for one delivery."""
        cdef InDelivery* d = <InDelivery*>entry
        cdef Slice known
        if not d.flags & IN_ROUTED and d.message is not NULL and state.size:
            # The message stores the state, and its copies start with it.
            known = relayed_state(self.session, state)
            if known.size:
                message_state(d.message, &known)
        if settled and kind == 0 and d.kind:
            known.data = d.state
            known.size = d.state_size
            in_update(d, d.kind, &known, d.flags & IN_COMPLETE)
        else:
            in_update(d, kind, state, settled and d.flags & IN_COMPLETE)
        if not settled:
            return 0
        map_take(&self.session.received, d.key)
        if not d.flags & IN_COMPLETE:
            return in_settled_late(d)
        count_settled_end(self, d, d.kind)
        free_credit(self, d)
        in_free(d)
        return 0

    cdef uint32_t mark_stuck(self, uint64_t before) noexcept:
        cdef InDelivery* d = self.node.in_first
        cdef uint32_t marked = 0
        while d is not NULL and d.since < before:
            # A message that still arrives is a stream, which may take its time.
            if d.since and not d.flags & (IN_PRESETTLED | IN_STUCK) \
                    and (d.flags & IN_COMPLETE or not d.flags & IN_ROUTED):
                d.flags |= IN_STUCK
                marked += 1
            d = d.next
        return self.count_stuck(marked)

    # -- end ----------------------------------------------------------------------------------------------------------

    cdef int lost(self, uint8_t event) except -1:
        """End the link: complete deliveries continue, incomplete ones are aborted. routing-semantics.md A-18."""
        cdef InDelivery* d
        if is_detached(self):
            return 0
        self.live(event)
        self.current = NULL
        if self.tapped:
            self.abort_copies()
        while self.node.in_first is not NULL:
            d = self.node.in_first
            map_take(&self.session.received, d.key)
            self.count_unreported_end(d)
            in_lost(d)
        return self.session.link_gone(self)
