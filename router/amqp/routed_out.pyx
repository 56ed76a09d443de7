"""A routed link on which the peer receives: frames of the other end are written as they come, or wait their turn."""
from libc.stdlib cimport free
from libc.string cimport memcpy, memset

from router.amqp.buffer cimport buffer_room, buffer_used
from router.amqp.connection cimport LINK_QUANTUM, OUTPUT_HIGH, TURN_DONE, TURN_MORE, TURN_WINDOW, Connection
from router.amqp.counters cimport count_age, count_finished, count_outcome, totals
from router.amqp.credit cimport credit_left
from router.amqp.delivery cimport (
    OUT_ABORT, OUT_LATE_SETTLED, OUT_QUEUED, OUT_SETTLED, OUT_STARTED, Party, map_put, map_take, out_free, out_new,
    queue_append, queue_remove, sent_append, sent_remove,
)
from router.amqp.frames cimport TRANSFER_ROOM, write_routed_transfer
from router.amqp.message cimport Content, cursor_close, cursor_read, message_release
from router.amqp.routed_link cimport check_value, head_transfer, keep_head, store_frame
from router.amqp.session cimport Session


cdef class RoutedOut(RoutedLink):
    """A link on which the peer receives from the other end."""

    cdef int deliver(self, InDelivery* d, const Transfer* t, bint first, Meter* m) except -1:
        """A frame of the other end: written now if it can be, else it waits. d is finished by its upstream."""
        cdef Connection connection = self.session.connection
        cdef OutDelivery* o = d.outs
        cdef Content c
        if self.detached or connection.close_sent:
            return 0
        if first:
            memset(&c, 0, sizeof(Content))
            c.settled = t.settled
            o = out_new(self, d, &c, True)
            if self.session.routers:
                totals.transit += 1
            else:
                totals.egress += 1
                totals.egress_container += self.slot.container
        elif o is NULL:
            return 0
        if self.queue_first is NULL and o.message is NULL and self.answered \
                and self.session.remote_incoming_window and not self.session.contended \
                and buffer_used(&connection.out) < OUTPUT_HIGH \
                and t.payload.size + t.state.size + TRANSFER_ROOM <= connection.remote_max_frame:
            return self.write_now(o, t, first)
        self.partial = NULL
        if t.settled and o.flags & OUT_STARTED and not o.flags & OUT_SETTLED:
            map_take(&self.session.sent, o.id)
        store_frame(o, t, first, m)
        if not o.flags & OUT_QUEUED:
            queue_append(self, o)
            self.slot.undelivered += 1
        self.mark_ready()
        return 0

    cdef int write_now(self, OutDelivery* o, const Transfer* t, bint first) except -1:
        """One frame, straight from where it is."""
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
        connection.out.end += size + t.payload.size
        session.next_outgoing_id += 1
        session.remote_incoming_window -= 1
        connection.mark_dirty()
        if t.settled and not o.flags & OUT_SETTLED:
            map_take(&session.sent, o.id)
            o.flags |= OUT_SETTLED
        self.partial = o if t.more and not t.aborted else NULL
        if t.aborted:
            map_take(&session.sent, o.id)
            out_free(o)
            return 0
        return 0 if t.more else self.complete(o)

    cdef int start(self, OutDelivery* o) except -1:
        """It gets the next delivery-id."""
        cdef Session session = self.session
        o.flags |= OUT_STARTED
        o.id = session.next_delivery_id
        session.next_delivery_id += 1
        self.delivery_count += 1
        self.slot.last_delivery = session.connection.scheduler.now_ns
        self.note_credit(<uint32_t>self.slot.credit - 1 if self.slot.credit > 0 else 0)
        if not o.flags & OUT_SETTLED:
            map_put(&session.sent, o.id, o)
        return 0

    cdef int complete(self, OutDelivery* o) except -1:
        """The last octet is in the write buffer."""
        cdef InDelivery* d = o.peer
        self.slot.deliveries += 1
        if not o.flags & OUT_SETTLED:
            sent_append(self, o)
            self.slot.unsettled += 1
            return 0
        if not o.kind:
            count_finished(self.slot, self.session.connection.scheduler.second)
            self.slot.presettled += 1
        out_free(o)
        if d is not NULL:
            (<Party>d.upstream).returned(d)
        return 0

    # -- the queue ----------------------------------------------------------------------------------------------------

    cdef int pump(self, size_t budget) except -1:
        cdef OutDelivery* o
        cdef Session session = self.session
        if self.detached or session.ended or not self.answered:
            return TURN_DONE
        while self.queue_first is not NULL:
            o = self.queue_first
            if not session.remote_incoming_window:
                return TURN_WINDOW
            if o.flags & OUT_ABORT:
                self.write_abort(o)
                continue
            if buffer_used(&session.connection.out) >= OUTPUT_HIGH or budget == 0:
                return TURN_MORE
            if self.write_part(o, &budget) == 0:
                return TURN_DONE
        self.grant()
        if self.detach_due:
            self.write_detach(self.due_closed, self.due_error)
            if self.near is None and self.far is None:
                self.end()
        return TURN_DONE

    cdef int write_part(self, OutDelivery* o, size_t* budget) except -1:
        """One frame of o. Returns 0 when nothing is there to write yet."""
        cdef Session session = self.session
        cdef Connection connection = session.connection
        cdef size_t left = <size_t>(o.message.size - o.taken)
        cdef size_t most, part, head_size
        cdef bint first = not o.flags & OUT_STARTED
        cdef bint more
        cdef Transfer t
        cdef uint8_t* w
        if left == 0 and not o.message.complete:
            return 0
        head_transfer(o, &t)
        most = connection.remote_max_frame - TRANSFER_ROOM
        most = most - t.state.size if most > t.state.size else 1
        if most > LINK_QUANTUM:
            most = LINK_QUANTUM
        part = left if left < most else most
        more = part < left or not o.message.complete
        if first:
            self.start(o)
        w = buffer_room(&connection.out, TRANSFER_ROOM + t.state.size + part)
        head_size = write_routed_transfer(
            w, session.local_channel, self.handle, o.id, &t, first,
            (o.flags & OUT_SETTLED) and not (o.flags & OUT_LATE_SETTLED and more), more, False, part)
        cursor_read(&o.cursor, w + head_size, part)
        o.taken += part
        connection.out.end += head_size + part
        session.next_outgoing_id += 1
        session.remote_incoming_window -= 1
        part += TRANSFER_ROOM              # a frame counts, too: messages may be tiny
        budget[0] = budget[0] - part if budget[0] > part else 0
        free(o.prefix)
        o.prefix = NULL
        if not more:
            queue_remove(self, o)
            self.slot.undelivered -= 1
            cursor_close(&o.cursor)
            message_release(o.message)
            o.message = NULL
            self.complete(o)
        return 1

    cdef int write_abort(self, OutDelivery* o) except -1:
        """The rest will not come. The receiver counts the delivery in any case, as its sender does."""
        cdef Session session = self.session
        cdef bint first = not o.flags & OUT_STARTED
        cdef Transfer t
        cdef uint8_t* w
        head_transfer(o, &t)
        if first:
            self.start(o)
        w = buffer_room(&session.connection.out, TRANSFER_ROOM + t.state.size)
        session.connection.out.end += write_routed_transfer(w, session.local_channel, self.handle, o.id, &t, first,
                                                            True, False, True, 0)
        session.next_outgoing_id += 1
        session.remote_incoming_window -= 1
        map_take(&session.sent, o.id)
        queue_remove(self, o)
        self.slot.undelivered -= 1
        out_free(o)
        return 0

    cdef int abandon(self, OutDelivery* o) except -1:
        if not o.flags & OUT_STARTED:
            queue_remove(self, o)
            self.slot.undelivered -= 1
            out_free(o)
            return 0
        o.flags |= OUT_ABORT
        cursor_close(&o.cursor)            # what it holds is free from now on
        return self.mark_ready()

    cdef int more(self, OutDelivery* o) except -1:
        return 0

    # -- outcomes -----------------------------------------------------------------------------------------------------

    cdef int delivery_outcome(self, OutDelivery* o, uint8_t kind, const Slice* state, bint settled) except -1:
        """The receiver's disposition."""
        cdef InDelivery* d = o.peer
        if kind:
            o.kind = kind
        if settled:
            map_take(&self.session.sent, o.id)
            count_finished(self.slot, self.session.connection.scheduler.second)
            count_outcome(self.slot, o.kind)
            count_age(self.slot, self.session.connection.scheduler.now_ns - o.since, False)
        if d is not NULL:
            (<Party>d.upstream).outcome(d, kind, state, settled)
        if not settled:
            return 0
        if o.flags & OUT_QUEUED or o is self.partial:
            # The sender decides what becomes of the rest.
            o.flags |= OUT_SETTLED | OUT_LATE_SETTLED
            return 0
        return self.settle_sent(o)

    cdef int settle_sent(self, OutDelivery* o) except -1:
        sent_remove(self, o)
        self.slot.unsettled -= 1
        out_free(o)
        return 0

    cdef int producer_update(self, OutDelivery* o, uint8_t kind, const Slice* state, bint settled) except -1:
        """The sender's disposition."""
        cdef Transfer t
        if not o.flags & OUT_STARTED:
            if settled:
                o.flags |= OUT_SETTLED
            if state.size:
                # Its first transfer says so.
                head_transfer(o, &t)
                t.state = state[0]
                keep_head(o, &t)
            return 0
        if o.flags & OUT_SETTLED:
            return 0
        self.session.report_now(False, o.id, o.id, state, settled)
        if not settled:
            return 0
        map_take(&self.session.sent, o.id)
        if o.flags & OUT_QUEUED or o is self.partial:
            o.flags |= OUT_SETTLED | OUT_LATE_SETTLED
            return 0
        count_finished(self.slot, self.session.connection.scheduler.second)
        return self.settle_sent(o)

    # -- credit -------------------------------------------------------------------------------------------------------

    cdef int on_flow(self, const Flow* f) except -1:
        """The receiver's view, for the sender."""
        check_value(&f.properties)
        if f.has_link_credit:
            self.note_credit(credit_left(f.delivery_count if f.has_delivery_count else self.delivery_count,
                                         f.link_credit, self.delivery_count))
        if self.near is not None:
            return self.near.pass_flow(f)
        if self.far is not None:
            return self.far.flow(f)
        return 0

    cdef int pass_flow(self, const Flow* f) except -1:
        RoutedLink.pass_flow(self, f)
        if self.detached:
            return 0
        # Deliveries that wait are ones that the sender had counted, but for the one that has begun to leave.
        self.delivery_count += f.given_back
        self.held_count = self.delivery_count + self.slot.undelivered
        if self.queue_first is not NULL and self.queue_first.flags & OUT_STARTED:
            self.held_count -= 1
        return 0

    cdef int write_held(self, Flow* f) except -1:
        """What the sender said, as of the deliveries that are written: some may have come behind it."""
        cdef uint32_t since
        if f.has_delivery_count:
            since = self.delivery_count - self.held_count
            f.delivery_count = self.delivery_count
            f.link_credit = f.link_credit - since if f.link_credit > since else 0
            if f.has_link_credit:
                self.note_credit(f.link_credit)
        return self.session.send_whole_flow(f)

    # -- end ----------------------------------------------------------------------------------------------------------

    cdef int lose_deliveries(self) except -1:
        cdef OutDelivery* o
        if self.partial is not NULL:
            map_take(&self.session.sent, self.partial.id)
            out_free(self.partial)
            self.partial = NULL
        while self.queue_first is not NULL:
            o = self.queue_first
            if o.flags & OUT_STARTED:
                map_take(&self.session.sent, o.id)
            queue_remove(self, o)
            out_free(o)
        while self.sent_first is not NULL:
            o = self.sent_first
            map_take(&self.session.sent, o.id)
            sent_remove(self, o)
            out_free(o)
        self.slot.undelivered = self.slot.unsettled = 0
        return 0
