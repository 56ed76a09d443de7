"""Routed links on which the peer receives: frames of the other end are written as they arrive, or queued."""
from libc.string cimport memcpy

from sluice.router.amqp.buffer cimport buffer_room
from sluice.router.amqp.connection cimport Connection
from sluice.router.stats.counters cimport count_presettled_delivery, totals
from sluice.router.amqp.credit cimport credit_left
from sluice.router.amqp.id_map cimport map_take
from sluice.router.delivery.delivery cimport (
    OUT_LATE_SETTLED, OUT_PARTIAL, OUT_QUEUED, OUT_SETTLED, OUT_STARTED, out_free, out_routed, queue_append,
    queue_remove, sent_remove,
)
from sluice.router.delivery.outcome cimport out_left
from sluice.router.amqp.endpoint cimport is_detached
from sluice.router.amqp.frames cimport TRANSFER_ROOM, write_routed_transfer
from sluice.router.links.delivery_link cimport (
    copy_written, frame_written, can_write_now, note_settled, settle_sent, start_copy,
)
from sluice.router.links.settlement cimport settle_copies
from sluice.router.routed.routed_link cimport count_of_receiver, is_answered, routed_head, store_frame, update_queued
from sluice.router.amqp.session cimport Session


cdef inline void set_partial(ConsumerEnd link, OutDelivery* o) noexcept:
    """Make o the link's partial delivery: all of it that has arrived is written. NULL: there is none."""
    if link.partial is not NULL:
        link.partial.flags &= ~OUT_PARTIAL
    link.partial = o
    if o is not NULL:
        o.flags |= OUT_PARTIAL


cdef class ConsumerEnd(RoutedLink):
    """Routed link on which the peer receives. Owner: its session."""

    cdef int deliver(self, InDelivery* d, const Transfer* t, bint first, Meter* m) except -1:
        """Write a frame of the other end now, if possible, else queue it. The upstream finishes d.

        brokers-and-edge.md LR-25.
        """
        cdef Connection connection = self.session.connection
        cdef OutDelivery* o = d.copies
        if is_detached(self) or connection.close_sent:
            return 0
        if first:
            o = out_routed(&self.node, d, t.settled)
            if self.session.routers:
                totals.transit += 1
            else:
                totals.egress += 1
                totals.egress_container += self.slot.container
        elif o is NULL:
            return 0
        if can_write_now(self) and o.message is NULL and is_answered(self) \
                and t.payload.size + t.state.size + TRANSFER_ROOM <= connection.remote_max_frame:
            return self.write_now(o, t, first)
        set_partial(self, NULL)
        if t.settled and o.flags & OUT_STARTED and not o.flags & OUT_SETTLED:
            map_take(&self.session.sent, o.id)
        try:
            store_frame(o, t, first, m)
        except BaseException:
            if first:
                out_free(o)                # nothing else refers to it yet
            raise
        if not o.flags & OUT_QUEUED:
            queue_append(&self.node, o)
            self.slot.undelivered += 1
        self.mark_ready()
        return 0

    cdef int write_now(self, OutDelivery* o, const Transfer* t, bint first) except -1:
        """Write one frame, straight from where the payload is."""
        cdef Session session = self.session
        cdef Connection connection = session.connection
        cdef uint8_t* w
        cdef size_t size
        if first:
            self.start(o)
        w = buffer_room(&connection.out, TRANSFER_ROOM + t.state.size + t.payload.size)
        size = write_routed_transfer(w, session.local_channel, self.handle, o.id, t, first, t.settled, t.more,
                                     t.aborted, t.payload.size)
        if t.payload.size:
            memcpy(w + size, t.payload.data, t.payload.size)
            o.octets += <uint32_t>t.payload.size
            self.slot.octets += t.payload.size
        connection.out.end += size + t.payload.size
        frame_written(session)
        connection.mark_dirty()
        if t.settled and not o.flags & OUT_SETTLED:
            map_take(&session.sent, o.id)
            o.flags |= OUT_SETTLED
        if t.more or self.partial is not NULL:
            set_partial(self, o if t.more and not t.aborted else NULL)
        if t.aborted:
            map_take(&session.sent, o.id)
            out_free(o)
            return 0
        return 0 if t.more else copy_written(self, o)

    # -- the queue ----------------------------------------------------------------------------------------------------

    cdef int start(self, OutDelivery* o) except -1:
        start_copy(self, o)
        self.note_credit(<uint32_t>self.slot.credit - 1 if self.slot.credit > 0 else 0)
        return 0

    cdef size_t write_head(self, uint8_t* w, OutDelivery* o, const Slice* state, bint first, bint settled, bint more,
                           bint aborted, size_t payload) noexcept:
        cdef Transfer t
        routed_head(o, first, state, &t)
        return write_routed_transfer(w, self.session.local_channel, self.handle, o.id, &t, first, settled, more,
                                     aborted, payload)

    cdef int left_settled(self, OutDelivery* o) except -1:
        if not o.kind:
            count_presettled_delivery(self.slot, self.session.connection.scheduler.second)
        out_left(o)
        out_free(o)
        return 0

    cdef int more(self, OutDelivery* o) except -1:
        return 0

    # -- outcomes -----------------------------------------------------------------------------------------------------

    cdef int delivery_outcome(self, void* entry, uint8_t kind, const Slice* state, bint settled) except -1:
        """Pass the receiver's disposition to the other end (brokers-and-edge.md LR-24)."""
        cdef OutDelivery* o = <OutDelivery*>entry
        cdef InDelivery* d = o.source
        if kind:
            o.kind = kind
        if settled:
            note_settled(self, o, o.kind)
        if d is not NULL:
            d.upstream.calls.outcome(d.upstream.owner, d, kind, state, settled)
        if not settled:
            return 0
        if o.flags & (OUT_QUEUED | OUT_PARTIAL):
            # The sender decides whether the rest is sent or aborted.
            o.flags |= OUT_SETTLED | OUT_LATE_SETTLED
            return 0
        return settle_sent(self, o)

    cdef uint32_t deliveries_settled(self, void* entry, uint32_t most, uint8_t kind, const Slice* state) except 0:
        cdef uint32_t settled = settle_copies(self, <OutDelivery*>entry, most, kind, state)
        if settled:
            return settled
        self.delivery_outcome(entry, kind, state, True)
        return 1

    cdef int producer_update(self, OutDelivery* o, uint8_t kind, const Slice* state, bint settled) except -1:
        """Pass the sender's disposition to the receiver."""
        if not o.flags & OUT_STARTED:
            return update_queued(o, state, settled)
        if settled and not o.flags & OUT_SETTLED and o.flags & (OUT_QUEUED | OUT_PARTIAL):
            self.session.report_outcome(False, o.id, 1, state)
        return self.update_started(o, state, settled)

    # -- credit -------------------------------------------------------------------------------------------------------

    cdef int on_flow(self, const Flow* f) except -1:
        """Pass the receiver's flow to the other end."""
        self.session.check_value(&f.properties)
        if f.has_link_credit:
            self.note_credit(credit_left(count_of_receiver(self, f), f.link_credit, self.delivery_count))
        if self.local_end is not None:
            return self.local_end.pass_flow(f)
        if self.remote_end is not None:
            return self.remote_end.flow(f)
        return 0

    cdef int pass_flow(self, const Flow* f) except -1:
        RoutedLink.pass_flow(self, f)
        if is_detached(self):
            return 0
        self.delivery_count += f.given_back
        if not f.has_delivery_count and not f.has_link_credit:
            # Without credit of its own, the flow leaves that of an earlier one, which then counts from here.
            self.held_count += f.given_back
            return 0
        # The sender has counted the deliveries that wait. The one that has started is counted here as well.
        self.held_count = self.delivery_count + self.slot.undelivered
        if self.node.queue_first is not NULL and self.node.queue_first.flags & OUT_STARTED:
            self.held_count -= 1
        return 0

    cdef int write_pending(self, Flow* f) except -1:
        """Write the sender's flow, adjusted to the deliveries written so far: some may have arrived after it."""
        cdef uint32_t since
        if f.has_delivery_count:
            since = self.delivery_count - self.held_count
            f.delivery_count = self.delivery_count
            f.link_credit = f.link_credit - since if f.link_credit > since else 0
            if f.has_link_credit:
                self.note_credit(f.link_credit)
        return self.write_if_new(f)

    # -- end ----------------------------------------------------------------------------------------------------------

    cdef int lose_deliveries(self) except -1:
        cdef OutDelivery* o
        if self.partial is not NULL:
            o = self.partial
            set_partial(self, NULL)
            map_take(&self.session.sent, o.id)
            out_free(o)
        while self.node.queue_first is not NULL:
            o = self.node.queue_first
            if o.flags & OUT_STARTED:
                map_take(&self.session.sent, o.id)
            queue_remove(&self.node, o)
            out_free(o)
        while self.node.sent_first is not NULL:
            o = self.node.sent_first
            map_take(&self.session.sent, o.id)
            sent_remove(&self.node, o)
            out_free(o)
        self.slot.undelivered = self.slot.unsettled = 0
        return 0
