"""The link on which a client sends (part 2, 2.6): grants credit, collects deliveries, hands them to what routes them.

Credit to producers is one equation: credit = capacity - occupied, where a delivery occupies its place until it is
settled (unsettled), has left an overfull queue (presettled) or, withheld, until its address is reachable again.
"""
from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memset

from router.amqp.counters cimport (
    count_age, count_drop, count_finished, count_outcome, count_total, totals, unblock,
)
from router.amqp.delivery cimport (
    IN_ACCEPT, IN_COLLECT, IN_COMPLETE, IN_CREDITED, IN_DISCARD, IN_FINAL, IN_KEEP_CREDIT, IN_PRESETTLED, IN_ROUTED,
    IN_STUCK, in_abandon, in_free, in_keep_state, in_lost, in_more, in_new, in_routed, in_settled_late, in_update,
    in_waits, map_put, map_take, plain_state, state_kind,
)
from router.amqp.frames cimport Flow
from router.amqp.message cimport (
    STATE_IN_TRANSFER, STREAM_AT, Message, Meter, message_append, message_awaited, message_linearise, message_meter,
    message_new, message_release, message_routed, message_state, meter_new,
)
from router.amqp.routed_link cimport check_value
from router.amqp.session cimport CREDIT_OCTETS, HOLD_OCTETS, Session
from router.amqp.spec cimport D_ACCEPTED, D_MODIFIED, D_REJECTED, D_RELEASED
from router.ipc.layout cimport DROP_NO_DESTINATION, DROP_OVERFLOW, DROP_PRODUCER_LOST, DROP_REJECTED

from router.amqp import codec
from router.amqp.errors import RESOURCE_LIMIT, SESSION_INVALID_FIELD, LocalError, RemoteError

cdef enum:
    DEFAULT_CAPACITY = 250     # deliveries, of Dispatch
    # Transfers beyond the credit are taken (Dispatch does) up to so many times the capacity; then the link is detached.
    OVERRUN = 2
    OVERRUN_MORE = 16
    # One of so many settled deliveries of a producer is followed over other routers (Content.checkpoint).
    CHECKPOINT_EVERY = 16

# A message whose first sections cannot be read: amqp:decode-error.
MALFORMED = codec.encode_described(0x25, [codec.encode_error("amqp:decode-error", "invalid message format")])


# What this process holds of incomplete messages that are collected whole.
cdef Meter* collecting = meter_new(NULL, NULL)
cdef uint64_t made = 0         # incoming links


cdef uint64_t producers_made() noexcept:
    return made


cdef class DeliveryHandler:
    cdef int route(self, IncomingLink link, InDelivery* d, Content* c) except -1:
        raise NotImplementedError

    cdef bint streams(self, IncomingLink link, const Content* c) noexcept:
        return False


cdef inline void set_head(Content* c) noexcept nogil:
    """Point the content at the first chunk of its stored message."""
    if c.stored.head is not NULL:
        c.data = &c.stored.head.data[0]
        c.size = c.stored.head.size
    c.whole = c.complete and c.stored.head is c.stored.tail


cdef void stored_content(InDelivery* d, Content* c) noexcept nogil:
    """What is stored of d, as content to be routed."""
    memset(c, 0, sizeof(Content))
    c.stored = d.message
    c.complete = d.message.complete
    c.format = d.message.format
    c.state.data = d.message.state
    c.state.size = d.message.state_size
    c.settled = (d.flags & IN_PRESETTLED) != 0
    set_head(c)


cdef Slice relayed_state(const Slice* state) except *:
    """What goes on of a delivery state in a transfer. Raises RemoteError when it is not well formed."""
    check_value(state)
    return state[0] if state.size <= STATE_IN_TRANSFER else plain_state(state_kind(state))


cdef class IncomingLink(Link):
    """A link on which the peer sends. Owner: its session."""

    def __cinit__(self, *, capacity=0, initial_delivery_count=0):
        self.capacity = capacity or DEFAULT_CAPACITY
        global made
        self.delivery_count = initial_delivery_count
        self.pending = True
        made += 1
        self.number = made

    # -- credit -------------------------------------------------------------------------------------------------------

    cpdef set_flowing(self, bint flowing):
        """Grant credit (the address is reachable, or there is none) or not yet."""
        self.flowing = flowing
        if flowing:
            self.occupied -= self.withheld
            self.withheld = 0
            self.draining = False
            self.session.want_flow(self)

    cdef void take_back(self) noexcept:
        """The address is unreachable. A client keeps its credit until it sends; a broker that the router called would
        have messages released and count them as tried."""
        if self.called and self.flowing and not self.draining:
            self.draining = self.drain_due = True
            self.session.want_flow(self)

    def use(self, DeliveryHandler deliveries not None):
        """What becomes of the link's deliveries."""
        self.deliveries = deliveries

    def begin_at(self, uint32_t initial_delivery_count):
        """The peer has answered our attach: this is where it begins to count."""
        self.delivery_count = initial_delivery_count
        self.called = True

    def decided(self):
        """The attach was answered: the peer's frames for the link are taken from now on."""
        self.pending = False

    cdef void free_credit(self, InDelivery* d) noexcept:
        self.slot.unsettled -= 1
        if d.flags & IN_CREDITED:
            return
        if d.flags & IN_KEEP_CREDIT and self.draining:
            self.withheld += 1
            return
        self.occupied -= 1
        if self.flowing and not self.draining:
            self.session.want_flow(self)

    cdef int grant(self) except -1:
        cdef Flow f
        if self.draining:
            if not self.drain_due:
                return 0
            self.drain_due = False
            if self.called:
                # Brokers have queues behind their links, and RabbitMQ 3.10 ends the session when such a link is
                # drained. What it sent before it sees this may still come.
                self.credit = 0
        elif not self.flowing:
            return 0
        elif self.holds_back():
            if self.credit == 0 or not self.credit_held:
                return 0
            self.credit = 0                # what it was granted and has not used yet is taken back
        else:
            self.credit = self.capacity - self.occupied if self.capacity > self.occupied else 0
        self.note_credit()
        f.has_handle = True
        f.echo = False
        f.handle = self.handle
        f.delivery_count = self.delivery_count
        f.link_credit = self.credit
        f.drain = self.draining and not self.called
        return self.session.send_flow(&f)

    cdef bint holds_back(self) noexcept:
        """Credit for more would only fill memory: it comes when what is held has been taken."""
        if self.credit_held:
            return True
        if not self.session.connection.full() or self.octets_held() == 0:
            return False
        if not self.credit_withheld:
            self.credit_withheld = True
            self.session.connection.withhold(self)
        return True

    cdef bint goes_on(self) noexcept:
        cdef InDelivery* d = self.current
        if self.detached or self.pending or (d is NULL and self.credit == 0):
            return False
        if d is not NULL and (not d.flags & IN_ROUTED or d.flags & IN_DISCARD or message_awaited(d.message)):
            return True
        if self.session.connection.full():
            return self.octets_held() < HOLD_OCTETS
        return self.streams is NULL or self.streams.held < HOLD_OCTETS

    cdef str give_up(self):
        """Give up what is held: nobody has seen it, or only a part of it."""
        cdef InDelivery* d = self.in_first
        cdef InDelivery* following
        while d is not NULL:
            following = d.next
            if d.flags & IN_ROUTED and not d.flags & IN_DISCARD and in_waits(d):
                self.give_up_delivery(d)
            d = following
        if self.between:
            return "its messages that wait were released"
        self.close_with(RESOURCE_LIMIT, "the consumers of this link do not take its messages, and others wait for that")
        return "the link was closed"

    cdef int give_up_delivery(self, InDelivery* d) except -1:
        cdef uint8_t kind = D_RELEASED
        cdef Slice state
        if in_abandon(d):
            kind = D_MODIFIED              # some of it has been seen
        state = plain_state(kind)
        if d.flags & IN_PRESETTLED:
            count_drop(self.slot, DROP_OVERFLOW)
            if d.flags & IN_COMPLETE:
                return self.returned(d)    # it was counted when its last octet came
            d.since = 0                    # this is all that is counted
            self.count_presettled()
            d.flags |= IN_DISCARD
            if d.message is not NULL:
                message_release(d.message)
                d.message = NULL
            return 0
        if d.flags & IN_COMPLETE:
            return self.finish(d, kind, &state)
        return self.outcome(d, kind, &state, True)

    cdef void note_credit(self) noexcept:
        self.slot.credit = self.credit
        if self.slot.blocked_since == 0:
            if self.credit == 0:
                self.slot.blocked_since = self.session.connection.scheduler.now_ns
        elif self.credit:
            unblock(self.slot)

    cdef int on_flow(self, const Flow* f) except -1:
        """The producer's view: it may have given credit back (drain)."""
        cdef Flow answer
        cdef uint32_t ahead
        if f.has_delivery_count:
            ahead = f.delivery_count - self.delivery_count
            if ahead <= 0x7FFFFFFF:
                # It may give back more than it has here: some was taken back meanwhile.
                self.delivery_count = f.delivery_count
                self.credit = self.credit - ahead if self.credit > ahead else 0
                self.note_credit()
                if ahead and not self.draining:
                    # The answer to a drain that was called off meanwhile: what it gave back is granted again.
                    self.session.want_flow(self)
        if f.echo:
            answer.has_handle = True
            answer.echo = False
            answer.handle = self.handle
            answer.delivery_count = self.delivery_count
            answer.link_credit = self.credit
            answer.drain = self.draining and not self.called
            self.session.send_flow(&answer)
        return 0

    # -- deliveries ---------------------------------------------------------------------------------------------------

    cdef int on_transfer(self, const Transfer* t) except -1:
        if self.current is NULL:
            return self.first_frame(t)
        return self.next_frame(t)

    cdef int first_frame(self, const Transfer* t) except -1:
        cdef Session session = self.session
        cdef InDelivery* d
        cdef Content c
        session.new_delivery(t)
        self.delivery_count += 1
        if self.credit:
            self.credit -= 1
            self.slot.credit = self.credit
            if self.credit == 0:
                self.slot.blocked_since = session.connection.scheduler.now_ns
        elif self.occupied >= OVERRUN * self.capacity + OVERRUN_MORE:
            self.overrun()
            return 0
        self.occupied += 1
        self.slot.unsettled += 1
        self.slot.last_delivery = session.connection.scheduler.now_ns
        d = in_new(self, t.delivery_id, self.slot.last_delivery, IN_PRESETTLED if t.settled else 0)
        if not t.settled:
            map_put(&session.received, t.delivery_id, d)
        if t.aborted:
            return self.abort(d)
        if t.more:
            self.current = d
            d.message = message_new(t.message_format)
            if t.state.size:
                self.keep_state(d, t)
            return self.store_and_route(d, t)
        memset(&c, 0, sizeof(Content))
        c.data = t.payload.data
        c.size = t.payload.size
        c.complete = c.whole = True
        c.settled = t.settled
        c.format = t.message_format
        if t.state.size:
            c.state = relayed_state(&t.state)
        d.flags |= IN_COMPLETE
        return self.route(d, &c)

    cdef int next_frame(self, const Transfer* t) except -1:
        cdef InDelivery* d = self.current
        if t.has_delivery_id and t.delivery_id != <uint32_t>d.key:
            raise RemoteError("link", SESSION_INVALID_FIELD,
                              f"transfer: delivery-id {t.delivery_id} within delivery {<uint32_t>d.key}")
        if t.aborted:
            self.current = NULL
            return self.abort(d)
        if t.state.size and d.message is not NULL:
            self.keep_state(d, t)
        if t.settled and not d.flags & IN_PRESETTLED:
            map_take(&self.session.received, d.key)
            in_settled_late(d)
        return self.store_and_route(d, t)

    cdef int keep_state(self, InDelivery* d, const Transfer* t) except -1:
        """A state in one of several transfers: copies that have begun to leave are told it, others say it (D-4)."""
        cdef Slice state = relayed_state(&t.state)
        if state.size:
            message_state(d.message, &state)
        if d.flags & IN_ROUTED:
            in_update(d, state_kind(&state), &state, False)
        return 0

    cdef int store_and_route(self, InDelivery* d, const Transfer* t) except -1:
        """One frame of a delivery of several."""
        cdef Message* m = d.message
        cdef Content c
        if not t.more:
            self.current = NULL
            d.flags |= IN_COMPLETE
        if d.flags & IN_DISCARD:
            return self.complete_discarded(d) if not t.more else 0
        if d.flags & IN_COLLECT:
            return self.collect_frame(d, t)
        message_append(m, t.payload.data, t.payload.size)
        m.complete = not t.more
        if self.streams is not NULL and self.streams.held >= CREDIT_OCTETS and not self.credit_held \
                and not self.between and self.flowing and not self.draining:
            self.credit_held = True
            self.session.want_flow(self)
        if d.flags & IN_ROUTED:
            in_more(d)
            return self.complete_stored(d) if not t.more else 0
        stored_content(d, &c)
        if not m.complete and m.size < STREAM_AT and not self.deliveries.streams(self, &c):
            return 0
        return self.route_stored(d, &c)

    cdef bint collect(self, InDelivery* d) except *:
        if not d.flags & IN_COLLECT:
            d.flags |= IN_COLLECT
            message_meter(d.message, collecting)
        return collecting.held <= COLLECTING_MOST

    cdef int collect_frame(self, InDelivery* d, const Transfer* t) except -1:
        """One more frame of a message that is routed when it is complete, unless it grows too large."""
        cdef Message* m = d.message
        cdef Content c
        message_append(m, t.payload.data, t.payload.size)
        m.complete = not t.more
        if t.more and m.size <= COLLECT_MOST and collecting.held <= COLLECTING_MOST:
            return 0
        stored_content(d, &c)
        return self.route_stored(d, &c)

    cdef int route_stored(self, InDelivery* d, Content* c) except -1:
        """Route by the first chunk; when that is not enough, by all there is."""
        cdef Message* m = c.stored
        cdef int result
        cdef bint complete = c.complete
        if not complete:
            m.refs += 1        # ours, while it is routed
        result = self.route(d, c)
        if result == WANTS_MORE and m.head is not m.tail and (complete or not d.flags & IN_COLLECT):
            message_linearise(m, <size_t>m.size)
            set_head(c)
            result = self.route(d, c)
        if complete:
            return 0
        if result == ROUTED:
            if d.flags & IN_DISCARD:
                # Its octets are of no use; neither are those to come.
                if d.message is not NULL:
                    message_release(d.message)
                    d.message = NULL
            message_release(m)
            return 0
        message_release(m)
        if d.flags & IN_COLLECT:
            return 0
        if m.size >= 2 * STREAM_AT:
            # The first sections alone are larger than any that Dispatch would take.
            self.refuse(d, D_REJECTED, MALFORMED, False)
        return 0

    cdef int route(self, InDelivery* d, Content* c) except -1:
        """ROUTED (d may be freed), or WANTS_MORE for content that is not whole."""
        cdef bint complete = c.complete
        c.producer = self.number
        c.checkpoint = c.settled and not self.between and self.delivery_count % CHECKPOINT_EVERY == 0
        if (self.route_logged(d, c) if self.logged else self.deliveries.route(self, d, c)) == WANTS_MORE:
            if c.whole:
                raise LocalError("link", "amqp:internal-error", "a whole message cannot be routed")
            return WANTS_MORE
        if d.flags & IN_DISCARD:
            return self.complete_discarded(d) if complete else 0
        self.slot.deliveries += 1
        if c.stored is not NULL:
            if c.stored.meter is NULL:
                message_meter(c.stored, self.whole_meter() if complete else self.streams_meter())
            message_routed(c.stored)
            if d.message is NULL:
                # The copies hold what content_store made.
                message_release(c.stored)
                c.stored = NULL
        if self.eager:
            self.forwarded(d)
        if d.flags & (IN_PRESETTLED | IN_ACCEPT):
            in_routed(d)
            if complete:
                return self.complete_stored(d)
            return 0
        if complete and d.message is not NULL:
            message_release(d.message)
            d.message = NULL
        in_routed(d)
        return 0

    cdef void forwarded(self, InDelivery* d) noexcept:
        """An unsettled delivery is on its way: the producer may send the next one."""
        d.flags |= IN_CREDITED
        self.occupied -= 1
        self.session.want_flow(self)

    cdef int route_logged(self, InDelivery* d, Content* c) except -1:
        """Route, and show the message: before, when all of it is here, else when it has been found to go."""
        cdef int result
        cdef bint whole = c.whole
        if whole:
            self.show_message(c.data, c.size)
        result = self.deliveries.route(self, d, c)
        if result == ROUTED and not whole:
            self.show_message(c.data, c.size)
        return result

    cdef int complete_stored(self, InDelivery* d) except -1:
        """The last octet of a routed delivery is here."""
        cdef Slice state
        if d.message is not NULL:
            message_release(d.message)
            d.message = NULL
        if d.flags & IN_PRESETTLED:
            self.count_presettled()
            return self.returned(d) if d.live == 0 else 0
        if d.flags & IN_ACCEPT:
            state = plain_state(D_ACCEPTED)
            return self.finish(d, D_ACCEPTED, &state)
        if d.flags & IN_FINAL:
            state.data = d.state
            state.size = d.state_size
            return self.finish(d, d.kind, &state)
        return 0

    cdef int complete_discarded(self, InDelivery* d) except -1:
        """Its octets went nowhere; the outcome was fixed before."""
        cdef Slice state
        if d.flags & IN_PRESETTLED:
            if d.since:
                # It had an outcome before its producer settled it with the last octet.
                self.count_end(d.kind)
            return self.returned(d)
        state.data = d.state
        state.size = d.state_size
        return self.finish(d, d.kind, &state)

    cdef int abort(self, InDelivery* d) except -1:
        """An aborted delivery is implicitly settled (2.7.5): no outcome is reported."""
        if not d.flags & IN_PRESETTLED:
            map_take(&self.session.received, d.key)
        self.count_unheard(d)
        self.free_credit(d)
        return in_lost(d)

    cdef void count_unheard(self, InDelivery* d) noexcept:
        """Its producer aborted it or is gone: how it ended, for the counters only."""
        if d.flags & IN_DISCARD:
            if d.since:
                self.count_end(d.kind)
        elif not d.flags & IN_ROUTED:
            return
        elif d.flags & IN_PRESETTLED and (d.live == 0 or d.flags & IN_COMPLETE):
            if not d.flags & IN_COMPLETE:
                self.count_presettled()    # whoever was to get it has gone before
        elif not d.flags & IN_COMPLETE:
            totals.dropped[DROP_PRODUCER_LOST] += not self.between
        else:
            self.count_end(d.kind)

    cdef void count_end(self, uint8_t kind) noexcept:
        count_finished(self.slot, self.session.connection.scheduler.second)
        count_outcome(self.slot, kind)
        count_total(kind, not self.between)

    cdef void count_presettled(self) noexcept:
        count_finished(self.slot, self.session.connection.scheduler.second)
        self.slot.presettled += 1
        totals.presettled += not self.between

    def overrun(self):
        """Far more transfers than credit: the link ends (2.6.12 leaves how much to us)."""
        self.close_with("amqp:link:transfer-limit-exceeded", f"more than {OVERRUN} times the credit was used")

    def close_with(self, condition, description):
        """Detach from our side; what comes for the handle until the peer's detach is absorbed."""
        if self.detached:
            return
        self.answer_closed = True
        self.lost()
        self.answers_later = False
        self.decide_no_more()
        self.session.send_detach(self.handle, True, condition, description)

    # -- outcomes -----------------------------------------------------------------------------------------------------

    cdef int refuse(self, InDelivery* d, uint8_t kind, bytes state, bint counted) except -1:
        """A handler's decision: no copy is made, this outcome goes back. state: its octets, None for a plain one."""
        cdef Slice s
        if state is not None:
            s.data = state
            s.size = len(state)
        else:
            s = plain_state(kind)
        if counted:
            self.slot.deliveries += 1
            if not self.between:
                totals.ingress += 1
                totals.ingress_container += self.slot.container
        if d.flags & IN_PRESETTLED:
            d.since = 0            # this is all that is counted
            if counted:
                self.count_presettled()
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
        """The address has no destination any more: released, credit withheld, producer drained (5, K-6); of a peer that
        the router called, the credit is taken back."""
        d.flags |= IN_KEEP_CREDIT
        if not self.draining:
            self.draining = True
            self.drain_due = True
            self.session.want_flow(self)
        return self.refuse(d, D_RELEASED, None, True)

    cdef int outcome(self, InDelivery* d, uint8_t kind, const Slice* state, bint settled) except -1:
        if not settled:
            return self.session.report(<uint32_t>d.key, kind, state, False)
        if d.flags & IN_COMPLETE:
            return self.finish(d, kind, state)
        # Settled before its last octet came: the outcome now, settlement with the last octet; the rest goes nowhere.
        if state.data is not d.state:
            in_keep_state(d, kind, state)
        d.flags |= IN_FINAL | IN_DISCARD
        if kind:
            self.session.report(<uint32_t>d.key, kind, state, False)
        if d.message is not NULL:
            message_release(d.message)
            d.message = NULL
        return 0

    cdef int finish(self, InDelivery* d, uint8_t kind, const Slice* state) except -1:
        """Settled by the consumer (or by us): tell the producer, count, free."""
        self.session.report(<uint32_t>d.key, kind, state, True)
        if d.since:
            self.count_end(kind)
            count_age(self.slot, self.session.connection.scheduler.now_ns - d.since, True)
        map_take(&self.session.received, d.key)
        self.free_credit(d)
        in_free(d)
        return 0

    cdef int returned(self, InDelivery* d) except -1:
        """A presettled delivery has been counted and holds nothing back any more."""
        self.free_credit(d)
        in_free(d)
        return 0

    cdef int delivery_update(self, InDelivery* d, uint8_t kind, const Slice* state, bint settled) except -1:
        """The producer's disposition."""
        cdef Slice known
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
        self.count_end(d.kind)
        count_age(self.slot, self.session.connection.scheduler.now_ns - d.since, True)
        self.free_credit(d)
        in_free(d)
        return 0

    cdef uint32_t mark_stuck(self, uint64_t before) noexcept:
        cdef InDelivery* d = self.in_first
        cdef uint32_t marked = 0
        while d is not NULL and d.since < before:
            # What still arrives while it leaves is a stream: it may take its time.
            if d.since and not d.flags & (IN_PRESETTLED | IN_STUCK) \
                    and (d.flags & IN_COMPLETE or not d.flags & IN_ROUTED):
                d.flags |= IN_STUCK
                marked += 1
            d = d.next
        self.slot.stuck += marked
        totals.stuck += marked
        return marked

    cdef void unstuck(self) noexcept:
        self.slot.stuck -= 1
        totals.stuck -= 1

    # -- end ----------------------------------------------------------------------------------------------------------

    cdef int lost(self) except -1:
        """The producer is gone: what is complete goes on, what is not is aborted."""
        cdef InDelivery* d
        if self.detached:
            return 0
        self.detached = True
        self.current = NULL
        while self.in_first is not NULL:
            d = self.in_first
            map_take(&self.session.received, d.key)
            self.count_unheard(d)
            in_lost(d)
        return self.session.link_gone(self)
