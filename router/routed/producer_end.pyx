"""Routed links on which the peer sends: frames are passed to the other end as they arrive."""
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memset

from sluice.router.stats.counters cimport count_age, count_drop, count_finished, count_outcome, count_total, totals
from sluice.router.amqp.credit cimport credit_left
from sluice.router.amqp.id_map cimport map_take
from sluice.router.delivery.delivery cimport (
    IN_COMPLETE, IN_DISCARD, IN_ENDED, IN_PRESETTLED, IN_ROUTED, OUT_QUEUED, OutDelivery, in_free,
)
from sluice.router.amqp.endpoint cimport is_detached
from sluice.router.amqp.frames cimport T_RESUME
from sluice.router.routed.routed_link cimport ROUTED_MOST, STATE_MOST, TAG_MOST, count_of_receiver, is_answered
from sluice.router.links.settlement cimport settle_sources
from sluice.router.links.delivery_link cimport check_continues, delivery_begins
from sluice.router.message.content cimport message_awaited
from sluice.router.amqp.session cimport HOLD_OCTETS, Session, note_delivery
from sluice.router.amqp.link cimport CREDIT_OCTETS
from sluice.router.amqp.spec cimport D_REJECTED
from sluice.router.ring.layout cimport DROP_PRODUCER_LOST, DROP_REJECTED

from sluice.router.amqp import codec
from sluice.router.amqp.errors import DECODE_ERROR, RESOURCE_LIMIT

cdef bytes LONG_TAG = codec.encode_described(
    D_REJECTED, [codec.encode_error("amqp:invalid-field", "delivery tag length exceeded")])
cdef bytes NO_OCTETS = codec.encode_described(
    D_REJECTED, [codec.encode_error(DECODE_ERROR, "invalid message format")])


cdef class HeldFirstTransfer:
    """Fields of the first transfer of a delivery, which had no octets."""

    cdef int begin(self, const Transfer* t) except -1:
        self.options = t.options
        self.format = t.message_format
        self.tag = t.tag.data[:t.tag.size]
        self.state = t.state.data[:t.state.size]
        return 0

    cdef void complete(self, const Transfer* t, Transfer* whole, bint settled) noexcept:
        """Make `whole`, the first transfer of the delivery, of t, which has its first octets.

        `whole` points into this object, and must not outlive it.
        """
        whole[0] = t[0]
        whole.options |= self.options
        whole.message_format = self.format
        whole.tag.data = self.tag
        whole.tag.size = len(self.tag)
        whole.settled = whole.settled or settled
        if whole.state.size == 0:
            whole.state.data = self.state
            whole.state.size = len(self.state)


cdef class ProducerEnd(RoutedLink):
    """Routed link on which the peer sends. Owner: its session."""

    cdef int on_transfer(self, const Transfer* t) except -1:
        cdef Session session = self.session
        cdef InDelivery* d = self.current
        cdef bint first = d is NULL
        cdef HeldFirstTransfer beginning
        cdef Transfer whole
        if t.state.size:
            self.session.check_value(&t.state)
        self.slot.octets += t.payload.size
        if first:
            note_delivery(session, t)
        if t.state.size > STATE_MOST // 2:
            # The state might not fit into frames of other connections.
            self.close_with(RESOURCE_LIMIT, "the delivery state is too long for a routed link")
            return 0
        if first:
            # Withdrawn credit counts, for transfers may be under way. Any sender may be wrong by ROUTED_MOST.
            if (self.node.in_count >= 2 * ROUTED_MOST
                    or <int32_t>(self.delivery_count - self.initial_count - self.granted_most) >= ROUTED_MOST):
                self.close_with("amqp:link:transfer-limit-exceeded",
                                "the peer sent far more transfers than it has link credit for")
                return 0
            d = delivery_begins(self, t, IN_ROUTED)
            totals.ingress += 1
            totals.ingress_container += self.slot.container
            self.slot.deliveries += 1
            self.slot.unsettled = self.node.in_count
            self.note_credit(<uint32_t>self.slot.credit - 1 if self.slot.credit > 0 else 0)
            if t.tag.size > TAG_MOST:
                d.flags |= IN_DISCARD
        else:
            check_continues(d, t)
            if t.settled and not d.flags & IN_PRESETTLED:
                map_take(&session.received, d.key)
                d.flags |= IN_PRESETTLED
        self.current = d if t.more and not t.aborted else NULL
        if self.current is NULL:
            d.flags |= IN_COMPLETE
        if d.flags & IN_DISCARD:
            return self.refuse(d, LONG_TAG) if self.current is NULL else 0
        if first or self.beginning is not None:
            if t.payload.size == 0 and not t.aborted and not t.options & T_RESUME:
                return self.wait_for_octets(d, t)
            if self.beginning is not None:
                beginning = self.beginning
                self.beginning = None
                if t.aborted:
                    map_take(&session.received, d.key)
                    self.count_lost(d)
                    return self.skip(d)
                beginning.complete(t, &whole, d.flags & IN_PRESETTLED)
                t = &whole
                first = True
        self.pass_on(d, t, first)
        if t.aborted:
            if not d.flags & IN_PRESETTLED:
                map_take(&session.received, d.key)
            self.count_lost(d)
            return self.done(d)
        if self.streams is not NULL and self.streams.held >= CREDIT_OCTETS:
            self.credit_held = True
        return 0

    cdef bint goes_on(self) noexcept:
        cdef InDelivery* d = self.current
        if is_detached(self) or (d is NULL and self.slot.credit <= 0):
            return False
        if d is not NULL and (d.flags & IN_DISCARD or d.copies is NULL or d.copies.message is NULL
                              or message_awaited(d.copies.message)):
            return True
        return self.streams is NULL or self.streams.held < HOLD_OCTETS

    cdef str give_up(self):
        cdef InDelivery* d = self.node.in_first
        while d is not NULL:
            if d.copies is not NULL and d.copies.flags & OUT_QUEUED:
                d.copies.downstream.calls.abandon(d.copies.downstream.owner, d.copies)
            d = d.next
        self.close_with(RESOURCE_LIMIT, "memory limit reached: the receiver does not take its messages")
        return "the link was closed"

    cdef void content_freed(self) noexcept:
        if self.credit_held and self.streams.held < <size_t>CREDIT_OCTETS // 2:
            self.credit_held = False
            self.release_held_credit()

    cdef void release_held_credit(self) noexcept:
        """Pass credit on that was held back, if it may flow again and the sender has less than half of what it may
        have."""
        if (self.credit_held_back and not is_detached(self) and not self.credit_held
                and 2 * <int64_t>self.credit_written() < <int64_t>ROUTED_MOST - self.node.in_count):
            self.credit_held_back = False
            self.pending_flow.due = True
            self.session.want_flow(self)

    cdef int pass_on(self, InDelivery* d, const Transfer* t, bint first) except -1:
        """Pass a frame to the other end."""
        if self.local_end is not None:
            return self.local_end.deliver(d, t, first, self.streams_meter())
        if self.remote_end is not None:
            return self.remote_end.deliver(d, t, first, self.streams_meter())
        return 0

    cdef int refuse(self, InDelivery* d, bytes why) except -1:
        """Reject a delivery that the receiver must not see: its tag is too long, or it has no octets
        (brokers-and-edge.md LR-22, LR-18a, LR-23)."""
        cdef Slice state
        if not d.flags & IN_PRESETTLED:
            state.data = why
            state.size = len(why)
            self.session.report(<uint32_t>d.key, D_REJECTED, &state, True)
            map_take(&self.session.received, d.key)
            self.count_end(d, D_REJECTED)
        else:
            self.end_presettled(d)
            count_drop(self.slot, DROP_REJECTED)
        return self.skip(d)

    cdef int wait_for_octets(self, InDelivery* d, const Transfer* t) except -1:
        """Keep an empty first frame until octets arrive, or reject the delivery if it ends without any."""
        if not t.more:
            self.beginning = None
            return self.refuse(d, NO_OCTETS)
        if self.beginning is None:
            self.beginning = HeldFirstTransfer()
            self.beginning.begin(t)
        elif t.state.size:
            self.beginning.state = t.state.data[:t.state.size]
        return 0

    cdef int skip(self, InDelivery* d) except -1:
        """Finish a delivery that the other end never sees: the sender gets its credit back."""
        self.skipped += 1
        if self.pending_flow.flow.has_link_credit:
            self.pending_flow.due = True
            self.session.want_flow(self)
        return self.done(d)

    cdef int done(self, InDelivery* d) except -1:
        """Finish a delivery for its sender."""
        count_finished(self.slot, self.session.connection.scheduler.second)
        in_free(d)
        self.slot.unsettled = self.node.in_count
        self.release_held_credit()
        return 0

    # -- counters -----------------------------------------------------------------------------------------------------

    cdef void count_end(self, InDelivery* d, uint8_t kind) noexcept:
        """Count the end of a delivery with this outcome; 0: without an outcome."""
        if not d.flags & IN_ENDED:
            d.flags |= IN_ENDED
            count_outcome(self.slot, kind)
            count_total(kind, True)

    cdef void end_presettled(self, InDelivery* d) noexcept:
        if not d.flags & IN_ENDED:
            d.flags |= IN_ENDED
            self.slot.presettled += 1
            totals.presettled += 1

    cdef void count_lost(self, InDelivery* d) noexcept:
        """Count a delivery whose sender aborted it, or was lost, before its last octet."""
        if not d.flags & IN_ENDED:
            d.flags |= IN_ENDED
            totals.dropped[DROP_PRODUCER_LOST] += 1

    # -- from the receiver --------------------------------------------------------------------------------------------

    cdef int outcome(self, InDelivery* d, uint8_t kind, const Slice* state, bint settled) except -1:
        if not d.flags & IN_PRESETTLED:
            self.session.report(<uint32_t>d.key, kind, state, settled)
        if kind:
            d.kind = kind
        if not settled:
            return 0
        if not d.flags & IN_PRESETTLED:
            map_take(&self.session.received, d.key)
            self.count_end(d, d.kind)
            count_age(self.slot, self.session.connection.scheduler.now_ns - d.since, True)
        if d.flags & IN_COMPLETE:
            return self.done(d)
        d.flags |= IN_PRESETTLED
        return 0

    cdef bint settled(self, OutDelivery** run, uint32_t n, uint8_t kind, const Slice* state) except -1:
        settle_sources(self, run, n, kind, state, True)
        self.slot.unsettled = self.node.in_count
        self.release_held_credit()
        return True

    cdef int returned(self, InDelivery* d) except -1:
        """Finish a settled delivery that has been written."""
        if not d.flags & IN_COMPLETE:
            return 0
        self.end_presettled(d)
        return self.done(d)

    cdef int delivery_update(self, void* entry, uint8_t kind, const Slice* state, bint settled) except -1:
        """Pass the sender's disposition to the other end."""
        cdef InDelivery* d = <InDelivery*>entry
        if d.copies is not NULL:
            d.copies.downstream.calls.producer_update(d.copies.downstream.owner, d.copies, kind, state, settled)
        if not settled:
            return 0
        map_take(&self.session.received, d.key)
        if not d.flags & IN_COMPLETE:
            d.flags |= IN_PRESETTLED
            return 0
        self.count_end(d, d.kind)
        return self.done(d)

    # -- credit -------------------------------------------------------------------------------------------------------

    cdef int on_flow(self, const Flow* f) except -1:
        """Pass the sender's flow to the other end."""
        cdef Flow passed = f[0]
        self.session.check_value(&f.properties)
        passed.given_back = 0
        if f.has_delivery_count and f.delivery_count - self.delivery_count <= 0x7FFFFFFF:
            passed.given_back = f.delivery_count - self.delivery_count
            self.delivery_count = f.delivery_count
        if f.has_link_credit:
            self.note_credit(f.link_credit)
        if passed.given_back and f.has_link_credit and f.link_credit == 0:
            passed.given_back += self.give_back_rest()
        passed.delivery_count -= self.skipped
        if self.local_end is not None:
            return self.local_end.pass_flow(&passed)
        if self.remote_end is not None:
            return self.remote_end.flow(&passed)
        return 0

    cdef int pass_flow(self, const Flow* f) except -1:
        """Take a flow of the receiver.

        A drain that the receiver ended before it could be written is written all the same, before the latest flow. So
        the sender gives back the credit that was to be drained. brokers-and-edge.md LR-20, LR-21.

        A flow without link-credit leaves the credit as it is. It gets that of the latest flow, of which some may be
        held back, with the delivery-count from which that credit counts.
        """
        cdef Flow* pending = &self.pending_flow.flow
        cdef Flow whole = f[0]
        if not f.has_link_credit and pending.has_link_credit:
            whole.has_link_credit = True
            whole.link_credit = pending.link_credit
            whole.has_delivery_count = pending.has_delivery_count
            whole.delivery_count = pending.delivery_count
        if f.drain:
            self.drain_due = False
        elif self.pending_flow.due and pending.drain:
            self.drain = pending[0]
            self.drain.echo = False
            self.drain.properties.size = 0
            self.drain_due = True
        return RoutedLink.pass_flow(self, &whole)

    cdef int grant(self) except -1:
        cdef Flow f
        if self.drain_due and is_answered(self) and not self.output_full():
            self.drain_due = False
            f = self.drain
            f.has_handle = True
            f.handle = self.handle
            self.write_pending(&f)
        return RoutedLink.grant(self)

    cdef uint32_t give_back_rest(self) noexcept:
        """Give back credit of a draining receiver that the sender was never granted.

        Called when the sender has no more messages and has given its credit back. Returns the number of credits.
        """
        cdef uint32_t rest, written
        cdef const Flow* last = &self.pending_flow.flow
        # A flow that is not written yet is answered by the sender.
        if self.pending_flow.due or not self.credit_held_back or not last.drain or not last.has_link_credit:
            return 0
        rest = credit_left(count_of_receiver(self, last) + self.skipped, last.link_credit, self.delivery_count)
        # A flow that was written since the sender gave its credit back is answered by the sender.
        written = self.credit_written()
        rest = rest - written if rest > written else 0
        self.skipped -= rest
        self.credit_held_back = False
        return rest

    cdef uint32_t credit_written(self) noexcept:
        """Return the credit that the sender has left by the last flow written, whatever it reports."""
        return credit_left(self.written.delivery_count, self.written.link_credit, self.delivery_count)

    cdef bint holds(self) noexcept:
        return False

    cdef int write_pending(self, Flow* f) except -1:
        cdef uint32_t credit, granted
        cdef uint32_t room = ROUTED_MOST - self.node.in_count if self.node.in_count < ROUTED_MOST else 0
        if self.credit_held:
            # Octets held here are not taken by the receiver: grant no more than the sender has already.
            room = min(room, self.credit_written())
        if f.has_link_credit:
            # With a delivery-count in any case, so that credit which was held back or given back adds to the earlier.
            f.delivery_count = count_of_receiver(self, f) + self.skipped
            f.has_delivery_count = True
            credit = credit_left(f.delivery_count, f.link_credit, self.delivery_count)
            self.credit_held_back = credit > room
            if self.credit_held_back:
                if <int32_t>(f.delivery_count - self.delivery_count) > 0:
                    f.delivery_count = self.delivery_count     # the receiver counts deliveries that were never sent
                f.link_credit = self.delivery_count + room - f.delivery_count
                credit = room
            granted = f.delivery_count + f.link_credit - self.initial_count
            if <int32_t>(granted - self.granted_most) > 0:
                self.granted_most = granted
            self.note_credit(credit)
        elif f.has_delivery_count:
            f.delivery_count += self.skipped
        return self.write_if_new(f)

    # -- end ----------------------------------------------------------------------------------------------------------

    cdef int abort_current(self) except -1:
        cdef Transfer t
        cdef InDelivery* d = self.current
        if d is NULL:
            return 0
        self.current = NULL
        memset(&t, 0, sizeof(Transfer))
        t.aborted = t.settled = True
        if self.beginning is not None:
            self.beginning = None
        elif not d.flags & IN_DISCARD:
            self.pass_on(d, &t, False)
        map_take(&self.session.received, d.key)
        self.count_lost(d)
        return self.done(d)

    cdef int lose_deliveries(self) except -1:
        cdef InDelivery* d
        while self.node.in_first is not NULL:
            d = self.node.in_first
            map_take(&self.session.received, d.key)
            if not d.flags & IN_COMPLETE:
                self.count_lost(d)
            elif d.flags & IN_PRESETTLED:
                self.end_presettled(d)
            else:
                self.count_end(d, d.kind)
            in_free(d)
        return 0
