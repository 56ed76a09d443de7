"""The link on which a client receives (part 2, 2.6): sends deliveries within credit and window, or queues them.

The fast path is `send_now`: one frame, from where the message came in, straight into the connection's write buffer.
`offer` decides; everything else (no credit, no window, a queue, several frames) goes through the queue.
"""
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from router.amqp.buffer cimport buffer_room, buffer_used
from router.amqp.codec cimport Slice
from router.amqp.connection cimport LINK_QUANTUM, TURN_DONE, TURN_MORE, TURN_WINDOW, Connection, Scheduler
from router.amqp.counters cimport (
    count_age, count_drop, count_finished, count_outcome, totals, unblock,
)
from router.amqp.credit cimport credit_left, shown_credit
from router.amqp.delivery cimport (
    IN_OWN, OUT_ABORT, OUT_CHECK, OUT_DROPPABLE, OUT_LATE_SETTLED, OUT_QUEUED, OUT_REPORT, OUT_SETTLED, OUT_STARTED,
    OUT_STUCK, OWN_FLOWING, OWN_QUEUED, map_put, map_take, out_free, out_left, out_new, out_update, own_charge,
    plain_state, queue_append, queue_remove, sent_append, sent_remove, state_kind,
)
from router.amqp.frames cimport TRANSFER_ROOM, Flow, write_transfer
from router.amqp.message cimport (
    Message, compose, compose_room, content_store, cursor_close, cursor_open, cursor_read, message_release,
    message_state,
)
from router.amqp.session cimport Session
from router.amqp.spec cimport D_ACCEPTED, D_MODIFIED, D_RELEASED
from router.ipc.layout cimport DROP_CONSUMER_LOST, DROP_OVERFLOW

cdef enum:
    DEFAULT_CAPACITY = 250     # deliveries, of Dispatch
    TAG_OCTETS = 8
    # Capacities that wait for one consumer of what comes from routers that cannot slow its producers.
    REMOTE_QUEUE = 10

cdef uint64_t next_tag = 0
cdef uint8_t* scratch = NULL   # annotations being composed
cdef size_t scratch_size = 0


cdef uint8_t* scratch_room(size_t size) except NULL:
    global scratch, scratch_size
    if size > scratch_size:
        free(scratch)
        scratch = NULL
        scratch_size = 0
        scratch = <uint8_t*>malloc(size)
        if scratch is NULL:
            raise MemoryError("annotations")
        scratch_size = size
    return scratch


def set_tag_space(worker):
    """Delivery tags are unique in a router: the worker's number is their last octet, a counter the others."""
    global next_tag
    next_tag = <uint64_t>worker << 56


cdef uint32_t mark_copies(OutDelivery* o, uint64_t before) noexcept nogil:
    """Mark as stuck the copies of this list from before that time; how many. The list is nearly in order of time."""
    cdef uint32_t marked = 0
    while o is not NULL and o.since < before:
        # What still arrives while it leaves is a stream: it may take its time.
        if o.since and not o.flags & OUT_STUCK and (o.message is NULL or o.message.complete):
            o.flags |= OUT_STUCK
            marked += 1
        o = o.next
    return marked


cdef class OutgoingLink(Link):
    """A link on which the peer receives. Owner: its session."""

    def __cinit__(self, *, capacity=0, settles=False, annotations=False):
        self.capacity = capacity or DEFAULT_CAPACITY
        self.settles = settles
        self.annotations = annotations
        self.pending = True

    def settle_all(self):
        """The peer's answer to our attach asks for settled deliveries."""
        self.settles = True

    def decided(self):
        """The attach was answered: deliveries may be written from now on."""
        self.pending = False
        self.starved_since = 0 if self.credit else self.session.connection.scheduler.now
        self.mark_ready()

    # -- deliveries in ------------------------------------------------------------------------------------------------

    cdef int offer(self, InDelivery* d, Content* c, int overflow) except -1:
        """Take a copy of d: straight into the connection's buffer when it can leave now, else into the queue."""
        cdef Session session = self.session
        cdef size_t composed = 0
        cdef size_t size = c.size
        if self.queue_first is not NULL or not self.credit or not c.whole or self.pending \
                or not session.remote_incoming_window or session.contended \
                or buffer_used(&session.connection.out) >= self.output_high:
            return self.enqueue(d, c, overflow)
        if self.annotations or c.sections.rewrite:
            composed = compose(scratch_room(compose_room(c)), c, self.annotations)
            size += composed - (c.sections.end - c.sections.at)
        if size + TRANSFER_ROOM + c.state.size > session.connection.remote_max_frame:
            return self.enqueue(d, c, overflow)
        return self.send_now(d, c, composed)

    cdef int send_now(self, InDelivery* d, Content* c, size_t composed) except -1:
        """One frame, straight from where the message is."""
        cdef Session session = self.session
        cdef Connection connection = session.connection
        cdef bint rewrite = self.annotations or c.sections.rewrite
        cdef size_t size = c.size
        cdef uint32_t delivery_id = session.next_delivery_id
        cdef bint settled = c.settled or self.settles or (c.checkpoint and not c.checking)
        cdef OutDelivery* o
        cdef uint8_t* w
        cdef Slice accepted
        global next_tag
        if rewrite:
            size += composed - (c.sections.end - c.sections.at)
        w = buffer_room(&connection.out, TRANSFER_ROOM + c.state.size + size)
        if not settled:
            o = out_new(self, d, c, True)
            o.flags |= OUT_STARTED
            o.id = delivery_id
            sent_append(self, o)
            map_put(&session.sent, delivery_id, o)
            self.slot.unsettled += 1
        w += write_transfer(w, session.local_channel, self.handle, delivery_id, <uint8_t*>&next_tag, TAG_OCTETS,
                            c.format, settled, False, False, c.state.data, c.state.size, size)
        if rewrite:
            memcpy(w, c.data, c.sections.at)
            w += c.sections.at
            memcpy(w, scratch, composed)
            w += composed
            memcpy(w, c.data + c.sections.end, c.size - c.sections.end)
            w += c.size - c.sections.end
        else:
            memcpy(w, c.data, size)
            w += size
        connection.out.end = w - connection.out.data
        next_tag += 1
        session.next_delivery_id += 1
        session.next_outgoing_id += 1
        session.remote_incoming_window -= 1
        self.delivery_count += 1
        self.use_credit()
        self.slot.deliveries += 1
        self.slot.last_delivery = connection.scheduler.now_ns
        connection.mark_dirty()
        if self.logged:
            self.show_message(c.data, c.size)
        if settled:
            count_finished(self.slot, connection.scheduler.second)
            self.slot.presettled += 1
            if not c.settled:
                o = out_new(self, d, c, True)
                accepted = plain_state(D_ACCEPTED)
                out_update(o, D_ACCEPTED, &accepted, True)
                out_free(o)
        return 0

    cdef void use_credit(self) noexcept:
        self.credit -= 1
        self.slot.credit = shown_credit(self.credit)
        if self.credit == 0:
            self.no_credit()

    cdef void no_credit(self) noexcept:
        cdef Scheduler scheduler = self.session.connection.scheduler
        if not self.starved_since:
            self.starved_since = scheduler.now
            self.slot.blocked_since = scheduler.now_ns

    cdef void count_presettled(self) noexcept:
        count_finished(self.slot, self.session.connection.scheduler.second)
        self.slot.presettled += 1

    cdef void count_settled(self, uint8_t kind) noexcept:
        count_finished(self.slot, self.session.connection.scheduler.second)
        count_outcome(self.slot, kind)

    cdef int enqueue(self, InDelivery* d, Content* c, int overflow) except -1:
        cdef Message* m
        cdef OutDelivery* o
        cdef bint hold = False
        cdef bint checkpoint = c.checkpoint and not c.checking and not c.settled
        cdef size_t composed
        cdef uint32_t charge = 0
        if d.flags & IN_OWN:
            charge = own_charge(self, c, OWN_FLOWING if self.credit else OWN_QUEUED)
            if charge == 0:
                self.count_presettled()
                count_drop(self.slot, DROP_OVERFLOW)
                return 0
        if (c.settled or checkpoint) and self.slot.undelivered >= self.capacity:
            hold = self.make_room(overflow)
        m = content_store(c)
        o = out_new(self, d, c, not c.settled or not c.complete or hold)
        o.charge = charge
        if (self.settles or checkpoint) and not c.settled:
            o.flags |= OUT_SETTLED | OUT_REPORT
        if checkpoint:
            o.flags |= OUT_CHECK
        o.message = m
        m.refs += 1
        if self.annotations or c.sections.rewrite:
            composed = compose(scratch_room(compose_room(c)), c, self.annotations)
            o.prefix_size = <uint32_t>(c.sections.at + composed)
            if o.prefix_size:
                o.prefix = <uint8_t*>malloc(o.prefix_size)
                if o.prefix is NULL:
                    raise MemoryError("annotations")
                memcpy(o.prefix, c.data, c.sections.at)
                memcpy(o.prefix + c.sections.at, scratch, composed)
            o.taken = c.sections.end
        cursor_open(&o.cursor, m, o.taken)
        queue_append(self, o)
        self.droppable(o)
        self.slot.undelivered += 1
        if not c.complete:
            self.slot.busy += 1
        self.mark_ready()
        return 0

    cdef bint make_room(self, int overflow) except *:
        """The queue is full and a presettled delivery comes. True: its producer's credit is to be held back."""
        cdef OutDelivery* o
        cdef OutDelivery* following
        cdef Connection connection = self.session.connection
        self.overflow = overflow
        if overflow == OVERFLOW_REMOTE:
            if self.slot.undelivered >= REMOTE_QUEUE * self.capacity:
                self.drop_oldest()
            return False
        if overflow == OVERFLOW_DROP_OLDEST:
            o = self.oldest
            while o is not NULL:
                following = o.newer
                if o is not self.queue_first:
                    self.drop_queued(o, DROP_OVERFLOW)
                o = following
            return False
        if overflow == OVERFLOW_THROTTLE:
            if self.starved_since and connection.scheduler.now - self.starved_since >= STARVED_MS:
                self.drop_oldest()
            elif not self.watched:
                self.watched = True
                connection.scheduler.starved.append(self)
        return True

    cdef bint drop_oldest(self) except *:
        cdef OutDelivery* o
        while self.oldest is not NULL:
            o = self.oldest
            if o.message.complete:
                self.drop_queued(o, DROP_OVERFLOW)
                return True
            self.undroppable(o)        # until its last octet is here
        return False

    cdef void droppable(self, OutDelivery* o) noexcept:
        """A queued copy may be dropped from now on, if it is presettled."""
        if not o.flags & OUT_SETTLED or o.flags & (OUT_STARTED | OUT_ABORT | OUT_DROPPABLE) \
                or (o.flags & OUT_REPORT and not o.flags & OUT_CHECK):
            return
        o.flags |= OUT_DROPPABLE
        o.newer = NULL
        o.older = self.newest
        if self.newest is not NULL:
            self.newest.newer = o
        else:
            self.oldest = o
        self.newest = o

    cdef void undroppable(self, OutDelivery* o) noexcept:
        """It may not be dropped, or has left the queue."""
        if not o.flags & OUT_DROPPABLE:
            return
        o.flags &= ~OUT_DROPPABLE
        if o.older is not NULL:
            o.older.newer = o.newer
        else:
            self.oldest = o.newer
        if o.newer is not NULL:
            o.newer.older = o.older
        else:
            self.newest = o.older

    def check_starved(self):
        """For links in the scheduler's list: drop what a starved consumer keeps from coming. Returns when (ms) to look
        again, 0: never."""
        cdef uint64_t now = self.session.connection.scheduler.now
        if self.detached or self.slot.undelivered <= self.capacity:
            self.watched = False
            return 0
        if not self.starved_since:
            return now + STARVED_MS
        if now - self.starved_since < STARVED_MS:
            return self.starved_since + STARVED_MS
        while self.slot.undelivered > self.capacity and self.drop_oldest():
            pass
        self.watched = False
        return 0

    cdef int drop_queued(self, OutDelivery* o, int reason) except -1:
        """A presettled copy that was not started leaves the queue unwritten."""
        cdef Slice released
        self.undroppable(o)
        queue_remove(self, o)
        self.slot.undelivered -= 1
        if not o.message.complete and not o.flags & OUT_ABORT:
            self.slot.busy -= 1
        self.count_presettled()
        count_drop(self.slot, reason)
        if o.flags & OUT_REPORT:
            released = plain_state(D_RELEASED)
            out_update(o, D_RELEASED, &released, True)
        else:
            out_left(o)
        out_free(o)
        return 0

    cdef int abandon(self, OutDelivery* o) except -1:
        if o.flags & OUT_ABORT:
            return 0
        if not o.message.complete:
            self.slot.busy -= 1
        if not o.flags & OUT_STARTED:
            return self.write_abort(o)
        o.flags |= OUT_ABORT
        cursor_close(&o.cursor)            # the consumer may let it wait here for long
        return self.mark_ready()

    cdef int more(self, OutDelivery* o) except -1:
        if o.message is not NULL and (o.message.complete or o.message.aborted) and not o.flags & OUT_ABORT:
            self.slot.busy -= 1
            if o.message.aborted:
                if not o.flags & OUT_STARTED:
                    return self.write_abort(o)      # wherever it is in the queue
                o.flags |= OUT_ABORT
                cursor_close(&o.cursor)
            else:
                self.droppable(o)
        self.mark_ready()
        return 0

    # -- deliveries out -----------------------------------------------------------------------------------------------

    cdef int pump(self, size_t budget) except -1:
        cdef OutDelivery* o
        cdef Session session = self.session
        if self.pending or self.detached or session.ended:
            return TURN_DONE
        while self.queue_first is not NULL:
            o = self.queue_first
            if o.flags & OUT_ABORT:
                if o.flags & OUT_STARTED and not session.remote_incoming_window:
                    return TURN_WINDOW
                self.write_abort(o)
                continue
            if not o.flags & OUT_STARTED and not self.credit:
                break
            if not session.remote_incoming_window:
                return TURN_WINDOW
            if buffer_used(&session.connection.out) >= self.output_high or budget == 0:
                return TURN_MORE
            if self.write_part(o, &budget) == 0:
                return TURN_DONE
        if self.drain and (self.queue_first is NULL or not self.credit):
            self.finish_drain()
        return TURN_DONE

    cdef int write_part(self, OutDelivery* o, size_t* budget) except -1:
        """One frame of o. Returns 0 when nothing is there to write yet."""
        cdef Session session = self.session
        cdef Connection connection = session.connection
        cdef size_t left = (o.prefix_size - o.prefix_at) + <size_t>(o.message.size - o.taken)
        cdef size_t most = connection.remote_max_frame - TRANSFER_ROOM
        cdef size_t part, from_prefix
        cdef bint more
        cdef uint8_t* w
        cdef Slice state
        state.data = NULL
        state.size = 0
        if o.message.state is not NULL and not o.flags & OUT_STARTED:
            state.data = o.message.state
            state.size = o.message.state_size
            if state.size >= most:
                state = plain_state(state_kind(&state))  # another connection has longer frames
            most -= state.size
        if most > LINK_QUANTUM:
            most = LINK_QUANTUM
        if left == 0 and not o.message.complete:
            return 0
        part = left if left < most else most
        more = part < left or not o.message.complete
        if not o.flags & OUT_STARTED:
            self.start(o)
        w = buffer_room(&connection.out, TRANSFER_ROOM + state.size + part)
        w += write_transfer(w, session.local_channel, self.handle, o.id, <uint8_t*>&o.tag_octets, TAG_OCTETS,
                            o.message.format, o.flags & OUT_SETTLED and not (o.flags & OUT_LATE_SETTLED and more), more,
                            False, state.data, state.size, part)
        from_prefix = o.prefix_size - o.prefix_at
        if from_prefix > part:
            from_prefix = part
        if from_prefix:
            memcpy(w, o.prefix + o.prefix_at, from_prefix)
            o.prefix_at += <uint32_t>from_prefix
            w += from_prefix
        if part > from_prefix:
            cursor_read(&o.cursor, w, part - from_prefix)
            o.taken += part - from_prefix
            w += part - from_prefix
        connection.out.end = w - connection.out.data
        session.next_outgoing_id += 1
        session.remote_incoming_window -= 1
        part += TRANSFER_ROOM              # a frame counts, too: messages may be tiny
        budget[0] = budget[0] - part if budget[0] > part else 0
        if not more:
            self.written(o)
        return 1

    cdef int start(self, OutDelivery* o) except -1:
        global next_tag
        self.undroppable(o)
        o.flags |= OUT_STARTED
        o.id = self.session.next_delivery_id
        o.tag_octets = next_tag
        next_tag += 1
        self.session.next_delivery_id += 1
        self.delivery_count += 1
        self.use_credit()
        self.slot.last_delivery = self.session.connection.scheduler.now_ns
        if not o.flags & OUT_SETTLED:
            map_put(&self.session.sent, o.id, o)
        if self.logged:
            self.show_first(o)
        return 0

    cdef int show_first(self, OutDelivery* o) except -1:
        """For the log: what is there of a message of which nothing has been written yet."""
        cdef bytes octets = b""
        if o.prefix is not NULL:
            octets = o.prefix[:o.prefix_size]
        if o.cursor.chunk is not NULL:
            octets += o.cursor.chunk.data[o.cursor.offset:o.cursor.chunk.size]
        return self.show_message(octets, len(octets))

    cdef int written(self, OutDelivery* o) except -1:
        """The last octet is in the write buffer."""
        cdef Slice accepted
        queue_remove(self, o)
        self.slot.undelivered -= 1
        self.slot.deliveries += 1
        cursor_close(&o.cursor)
        message_release(o.message)
        o.message = NULL
        if not o.flags & OUT_SETTLED:
            sent_append(self, o)
            self.slot.unsettled += 1
            return 0
        self.count_presettled()
        if o.flags & OUT_REPORT:
            accepted = plain_state(D_ACCEPTED)
            out_update(o, D_ACCEPTED, &accepted, True)
        else:
            out_left(o)
        out_free(o)
        return 0

    cdef int write_abort(self, OutDelivery* o) except -1:
        """The rest of a copy will not come: what the consumer has seen of it is aborted (2.7.5)."""
        cdef Session session = self.session
        cdef uint8_t* w
        if o.flags & OUT_STARTED:
            w = buffer_room(&session.connection.out, TRANSFER_ROOM)
            session.connection.out.end += write_transfer(
                w, session.local_channel, self.handle, o.id, <uint8_t*>&o.tag_octets, TAG_OCTETS, o.message.format,
                True, False, True, NULL, 0, 0)
            session.next_outgoing_id += 1
            session.remote_incoming_window -= 1
            map_take(&session.sent, o.id)
        self.undroppable(o)
        queue_remove(self, o)
        self.slot.undelivered -= 1
        out_free(o)
        return 0

    # -- the peer's frames --------------------------------------------------------------------------------------------

    cdef int on_flow(self, const Flow* f) except -1:
        if f.has_link_credit:
            # The receiver's delivery-count, or the initial one (2.6.7).
            self.credit = credit_left(f.delivery_count if f.has_delivery_count else 0, f.link_credit,
                                      self.delivery_count)
            self.slot.credit = shown_credit(self.credit)
            if self.credit:
                self.starved_since = 0
                if self.slot.blocked_since:
                    unblock(self.slot)
            else:
                self.no_credit()
        self.drain = f.drain
        if self.drain and (self.queue_first is NULL or not self.credit) and self.in_ready is not NULL \
                and self.in_ready is not &self.session.ready:
            self.finish_drain()            # it waits for the window, and this needs none
        elif self.queue_first is not NULL or self.drain:
            self.mark_ready()
        if f.echo and not f.drain:
            self.send_state(False)
        return 0

    cdef int send_state(self, bint drain) except -1:
        cdef Flow answer
        answer.has_handle = True
        answer.echo = False
        answer.handle = self.handle
        answer.delivery_count = self.delivery_count
        answer.link_credit = self.credit
        answer.drain = drain
        return self.session.send_flow(&answer)

    cdef int finish_drain(self) except -1:
        """What is left of the credit is given back (2.6.7)."""
        self.drain = False
        self.delivery_count += self.credit
        self.credit = 0
        self.slot.credit = 0
        self.no_credit()
        return self.send_state(True)

    cdef int grant(self) except -1:
        return 0

    cdef int delivery_outcome(self, OutDelivery* o, uint8_t kind, const Slice* state, bint settled) except -1:
        """The consumer's disposition."""
        if not settled:
            return out_update(o, kind, state, False)
        map_take(&self.session.sent, o.id)
        count_finished(self.slot, self.session.connection.scheduler.second)
        count_outcome(self.slot, kind)
        count_age(self.slot, self.session.connection.scheduler.now_ns - o.since, False)
        if o.flags & OUT_QUEUED:
            # Before its last octet: the rest is not sent.
            if not o.message.complete and not o.flags & OUT_ABORT:
                self.slot.busy -= 1
            o.flags |= OUT_ABORT | OUT_SETTLED
            cursor_close(&o.cursor)
            self.mark_ready()
            return out_update(o, kind, state, True)
        out_update(o, kind, state, True)
        return self.settle_sent(o)

    cdef uint32_t mark_stuck(self, uint64_t before) noexcept:
        cdef uint32_t marked = mark_copies(self.queue_first, before) + mark_copies(self.sent_first, before)
        self.slot.stuck += marked
        totals.stuck += marked
        return marked

    cdef void unstuck(self) noexcept:
        self.slot.stuck -= 1
        totals.stuck -= 1

    cdef int settle_sent(self, OutDelivery* o) except -1:
        sent_remove(self, o)
        self.slot.unsettled -= 1
        out_free(o)
        return 0

    cdef int producer_update(self, OutDelivery* o, uint8_t kind, const Slice* state, bint settled) except -1:
        if not o.flags & OUT_STARTED:
            if settled:
                o.flags |= OUT_SETTLED
                o.flags &= ~OUT_REPORT
                self.droppable(o)
            elif state.size:
                message_state(o.message, state)    # its first transfer says so
            return 0
        if o.flags & OUT_SETTLED:
            if settled:
                # Nobody is to hear any more that the consumer got it.
                o.flags &= ~OUT_REPORT
            return 0
        if settled:
            map_take(&self.session.sent, o.id)
            if o.flags & OUT_QUEUED:
                # Not all of it is written: its last frame says so.
                o.flags |= OUT_SETTLED | OUT_LATE_SETTLED
                return 0
        self.session.report_now(False, o.id, o.id, state, settled)
        if not settled:
            return 0
        count_finished(self.slot, self.session.connection.scheduler.second)
        return self.settle_sent(o)

    # -- end ----------------------------------------------------------------------------------------------------------

    def close_with(self, condition, description):
        """Detach from our side; what comes for the handle until the peer's detach is absorbed."""
        if self.detached:
            return
        self.answer_closed = True
        self.lost()
        self.answers_later = False
        self.decide_no_more()
        self.session.send_detach(self.handle, True, condition, description)

    cdef int lost(self) except -1:
        """The consumer is gone: sent copies are modified, queued ones released (9.3)."""
        if self.detached:
            return 0
        self.detached = True
        self.forget_ready()
        self.lose_all()
        return self.session.link_gone(self)

    cdef int lose_all(self) except -1:
        cdef OutDelivery* o
        cdef Slice modified = plain_state(D_MODIFIED)
        cdef Slice released = plain_state(D_RELEASED)
        while self.sent_first is not NULL:
            o = self.sent_first
            map_take(&self.session.sent, o.id)
            self.count_settled(D_MODIFIED)
            out_update(o, D_MODIFIED, &modified, True)
            self.settle_sent(o)
        while self.queue_first is not NULL:
            o = self.queue_first
            if o.flags & OUT_STARTED:
                map_take(&self.session.sent, o.id)
            if o.flags & OUT_SETTLED and (not o.flags & OUT_REPORT or o.flags & OUT_CHECK):
                if not o.flags & OUT_ABORT:
                    totals.dropped_presettled += 1
                    totals.dropped[DROP_CONSUMER_LOST] += 1
                if o.flags & OUT_REPORT:
                    out_update(o, D_RELEASED, &released, True)
                else:
                    out_left(o)
            else:
                self.count_settled(D_RELEASED)
                out_update(o, D_RELEASED, &released, True)
            self.undroppable(o)
            queue_remove(self, o)
            self.slot.undelivered -= 1
            out_free(o)
        self.slot.busy = 0
        return 0
