"""Deliveries to another worker: a port is the downstream of their copies.

One OutDelivery represents all copies on the other worker. A delivery that finds no room in the ring waits in a queue.
A delivery of several parts takes turns with others, and has at most STREAM_WINDOW octets unread at the peer.
"""
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, memset

from sluice.router.amqp.buffer cimport buffer_used
from sluice.router.amqp.id_map cimport map_free, map_get, map_put, map_reserve, map_take, map_take_known
from sluice.router.amqp.link cimport Link
from sluice.router.amqp.meter cimport Meter, meter_drop, meter_hold, meter_subtract_quietly
from sluice.router.amqp.spec cimport D_MODIFIED
from sluice.router.amqp.states cimport is_outcome, plain_state, state_kind
from sluice.router.delivery.delivery cimport (
    IN_OWN, IN_TRACED, OUT_ABORT, OUT_QUEUED, OUT_RESTING, OUT_SETTLED, OUT_STARTED, OWN_FLOWING, out_charge, out_free,
    out_new, out_uncharge, outs_free, own_message_charge, queue_append, queue_remove,
)
from sluice.router.delivery.outcome cimport out_left, out_update
from sluice.router.delivery.settled_state cimport settled_state
from sluice.router.ring.layout cimport DROP_OVERFLOW, DROP_WORKER_LOST
from sluice.router.ring.outbox cimport commit, mark_port_dirty
from sluice.router.ring.records cimport (
    F_ABORTED, F_AT_HAND, F_HONOUR, F_LOST, F_MORE, F_MULTI, F_OWN, F_PRESETTLED, F_SETTLED, K_AS_IS, K_CHARGED,
    K_CHECKPOINT, K_TRACED,
    R_CONTINUE, R_RETURNED, R_SETTLED, R_TRANSFER, R_UPDATE, RECORD_OCTETS, DeliveryHead, RecordTarget, decode_transfer,
    delivery_record,
)
from sluice.router.ring.ring cimport ring_longest
from sluice.router.links.settlement cimport RUN_MOST, runs_used, can_join_run
from sluice.router.message.content cimport (
    STATE_IN_TRANSFER, STREAM_AT, content_store, cursor_close, cursor_open, cursor_read, message_new, message_release,
)
from sluice.router.stats.counters cimport totals

from sluice.router.ring.errors import MalformedRecordError


cdef class PortOut(NodeOwner):
    def __cinit__(self, Outbox outbox not None):
        self.outbox = outbox

    def __dealloc__(self):
        free(self.targets)
        map_free(&self.sent)

    # -- from producers -----------------------------------------------------------------------------------------------

    cdef int add_target(self, uint32_t slot_index, uint32_t generation) except -1:
        """Add a consumer of the peer to the targets of the next `offer`."""
        cdef uint32_t* larger
        if self.target_count == self.target_room:
            larger = <uint32_t*>realloc(self.targets, (2 * self.target_room + 8) * sizeof(RecordTarget))
            if larger is NULL:
                raise MemoryError("targets of a delivery")
            self.targets = larger
            self.target_room = 2 * self.target_room + 8
        self.targets[2 * self.target_count] = slot_index
        self.targets[2 * self.target_count + 1] = generation
        self.target_count += 1
        return 0

    cdef int offer(self, InDelivery* d, Content* c, int overflow) except -1:
        """Send d to the targets collected by add_target."""
        cdef uint8_t* w = NULL
        cdef uint32_t count = self.target_count
        cdef size_t size = transfer_octets(count, c.to.size, c.served.size, c.state.size)
        cdef TransferRecord record
        cdef DeliveryHead head
        cdef uint32_t charge = own_message_charge(&self.node, c, OWN_FLOWING) if d.flags & IN_OWN else 0
        cdef bint dropped = d.flags & IN_OWN and charge == 0
        cdef OutDelivery* o
        cdef Meter* meter
        self.target_count = 0              # also if this delivery fails, the next one has its own targets
        meter = self.producer_meter(d)
        if size + c.sections.end > ring_longest(&self.outbox.ring):
            self.outbox.check_fits(size + c.sections.end)
        map_reserve(&self.sent)
        o = out_new(&self.node, d, c, not dropped)
        o.charge = charge
        o.tag_octets = self.next_key
        if meter is not NULL:
            out_charge(o, meter, 0)
        map_put(&self.sent, self.next_key, o)
        if self.meters is not None:
            self.keep_meter(d)
        if c.whole and c.size <= RECORD_OCTETS and self.node.queue_first is NULL \
                and not buffer_used(&self.outbox.backlog) and not dropped:
            w = self.outbox.reserve(<uint32_t>(size + c.size))
        self.fill_record(&record, &head, d, c, count, overflow)
        if meter is not NULL:
            head.kind |= K_CHARGED
        if w is not NULL:
            self.next_key += 1
            memcpy(encode_transfer(w, &record), c.data, c.size)
            commit(self.outbox, <uint32_t>(size + c.size))
            o.flags |= OUT_STARTED
            if meter is not NULL:
                out_charge(o, meter, <uint32_t>c.size)
            return 0
        w = <uint8_t*>malloc(size)
        if w is NULL:
            map_take(&self.sent, self.next_key)
            out_free(o)
            raise MemoryError("targets of a delivery")
        if dropped:
            # The aborted record only makes the peer count these deliveries as taken, which the scores need.
            totals.dropped_presettled += count
            totals.dropped[DROP_OVERFLOW] += count
            o.flags |= OUT_ABORT
        encode_transfer(w, &record)
        self.next_key += 1
        return self.queue_first_part(
            o, self.stored_part(o, c, w, dropped), w, size, 0 if dropped else <uint32_t>c.sections.end)

    cdef Meter* producer_meter(self, const InDelivery* d) except? NULL:
        """Return the meter of the producer's session for octets at the other worker.

        NULL: they are not charged, because the producer is the router itself or another router, or because this is the
        ring of the worker to itself.
        """
        if self.meters is not None or d.upstream is NULL or d.upstream.meter is NULL:
            return NULL
        return (<Link>d.upstream.owner).session.crossed_meter()

    cdef int keep_meter(self, const InDelivery* d) except -1:
        """Keep the meter of the link that the delivery came by: it counts the copies made of the record."""
        if d.upstream is not NULL and isinstance(<object>d.upstream.owner, Link):
            self.meters[self.next_key] = meter_hold((<Link>d.upstream.owner).whole_meter())
        return 0

    cdef Message* stored_part(self, OutDelivery* o, Content* c, uint8_t* head, bint dropped) except NULL:
        """Return the message of a copy whose record has to wait, or an empty one.

        Frees the copy if there is no memory.
        """
        cdef Message* m
        try:
            if dropped:
                return message_new(c.format)
            m = content_store(c)
            m.refs += 1
            return m
        except BaseException:
            map_take(&self.sent, o.tag_octets)
            free(head)
            out_free(o)
            raise

    cdef void fill_record(self, TransferRecord* r, DeliveryHead* head, const InDelivery* d, const Content* c,
                          uint32_t count,
                          int overflow) noexcept:
        """Fill the first record of a delivery, without the octets of the message."""
        memset(head, 0, sizeof(DeliveryHead))
        head.type = R_TRANSFER
        head.flags = (F_PRESETTLED if c.settled else 0) | (F_MULTI if count > 1 else 0) \
            | (F_HONOUR if c.honour else 0) | (F_OWN if d.flags & IN_OWN else 0) \
            | (F_AT_HAND if c.complete and (c.stored.size if c.stored is not NULL else c.size) < STREAM_AT else 0)
        head.kind = <uint8_t>overflow | (K_CHECKPOINT if c.checkpoint else 0) | (K_TRACED if d.flags & IN_TRACED else 0)
        if not c.sections.rewrite and (c.settled or not c.checkpoint):
            head.kind |= K_AS_IS
        head.phase = <uint8_t>c.phase
        head.count = count
        head.key = self.next_key
        head.format = c.format
        memset(r, 0, sizeof(TransferRecord))
        r.head = head
        r.targets = <RecordTarget*>self.targets
        r.to = c.to
        r.served = c.served
        r.state = c.state

    cdef int queue_first_part(self, OutDelivery* o, Message* m, uint8_t* head, size_t size,
                              uint32_t sections) except -1:
        """Queue a delivery with the head of its first record. The copy takes both references."""
        o.message = m
        o.prefix = head
        o.prefix_size = <uint32_t>size
        o.prefix_at = sections
        cursor_open(&o.cursor, m, 0)
        queue_append(&self.node, o)
        self.unstarted_count += 1
        mark_port_dirty(self.outbox)
        return 0

    cdef int more(self, OutDelivery* o) except -1:
        self.go_on(o)
        return 0

    cdef int abandon(self, OutDelivery* o) except -1:
        o.flags |= OUT_ABORT
        self.go_on(o)
        return 0

    cdef int producer_update(self, OutDelivery* o, uint8_t kind, const Slice* state, bint settled) except -1:
        if settled:
            o.flags |= OUT_SETTLED
        if not o.flags & OUT_STARTED or (settled and o.flags & OUT_QUEUED):
            # Its next record carries the change.
            return self.keep_state(o, state) if state.size and not settled else 0
        self.post_update(o, F_SETTLED if settled else 0, kind, state)
        return self.forget(o) if settled else 0

    cdef int producer_lost(self, OutDelivery* o) except -1:
        """Notify the peer: only the consumers' worker knows which of them have the delivery already."""
        cdef Slice state
        if o.flags & OUT_QUEUED:
            return 0                       # delivered all the same, like a queued copy of a link
        state = plain_state(D_MODIFIED)
        self.post_update(o, F_LOST, D_MODIFIED, &state)
        return self.forget(o)

    cdef int post_update(self, OutDelivery* o, uint8_t flags, uint8_t kind, const Slice* state) except -1:
        """Post an UPDATE about the producer of a delivery."""
        cdef DeliveryHead head
        cdef Slice said = self.outbox.fitting(kind, state)
        delivery_record(&head, R_UPDATE, flags, kind, o.tag_octets, 0, &said)
        return self.outbox.post(<uint8_t*>&head, sizeof(DeliveryHead), said.data, said.size)

    cdef int keep_state(self, OutDelivery* o, const Slice* state) except -1:
        """Put a delivery state into the first record of a delivery that waits."""
        cdef TransferRecord record
        cdef Slice said = state[0] if state.size <= STATE_IN_TRANSFER else plain_state(state_kind(state))
        cdef size_t size
        cdef uint8_t* w
        if said.size == 0:
            return 0
        if not decode_transfer(o.prefix, o.prefix_size, &record):
            raise MalformedRecordError("a record of this worker that waits cannot be read")
        record.state = said
        size = transfer_octets(record.head.count, record.to.size, record.served.size, said.size)
        w = <uint8_t*>malloc(size)
        if w is NULL:
            raise MemoryError("delivery state")
        encode_transfer(w, &record)
        free(o.prefix)
        o.prefix = w
        o.prefix_size = <uint32_t>size
        return 0

    # -- the queue ----------------------------------------------------------------------------------------------------

    cdef bint stuck(self) noexcept:
        """Return True if something waits for room in the ring, and not only for its own octets or window."""
        return self.unstarted_count > 0 or buffer_used(&self.outbox.backlog) > 0

    cdef bint waiting(self) noexcept:
        """Return True if something can be written once there is room."""
        return self.node.queue_first is not NULL or buffer_used(&self.outbox.backlog) > 0

    cdef void rest(self, OutDelivery* o) noexcept:
        """Move a queued delivery to `resting`: it waits for octets or for its window."""
        queue_remove(&self.node, o)
        queue_append(&self.resting, o)
        self.node.own_octets += o.charge
        o.flags |= OUT_RESTING
        if o.prefix is not NULL:
            self.unstarted_count -= 1

    cdef void go_on(self, OutDelivery* o) noexcept:
        """Move a resting delivery back into the queue: it may have octets or window now."""
        if o.flags & OUT_RESTING:
            self.unqueue(o)
            queue_append(&self.node, o)
            if o.prefix is not NULL:
                self.unstarted_count += 1
        mark_port_dirty(self.outbox)

    cdef void unqueue(self, OutDelivery* o) noexcept:
        """Remove a delivery from the queue, or from `resting`."""
        if o.flags & OUT_RESTING:
            o.flags &= ~OUT_RESTING
            queue_remove(&self.resting, o)
            self.node.own_octets -= o.charge
            return
        queue_remove(&self.node, o)
        if o.prefix is not NULL:
            self.unstarted_count -= 1
            mark_port_dirty(self.outbox)              # connections may have waited for it

    cdef int pump(self) except -1:
        """Write waiting records as far as there is room, one part of each queued delivery at a time."""
        cdef OutDelivery* o
        cdef OutDelivery* following
        cdef int moved = 1
        cdef int result
        if not self.outbox.flush_backlog():
            return 0
        while moved:
            moved = 0
            o = self.node.queue_first
            while o is not NULL:
                following = o.next
                self.visits += 1
                result = self.write_part(o)
                if result < 0:
                    return 0
                if result == 0:
                    self.rest(o)
                moved += result
                o = following
        return 1

    cdef int write_part(self, OutDelivery* o) except? -2:
        """Write one record of a delivery.

        Returns 1: written; 0: it waits for octets or window; -1: the ring is full.
        """
        cdef uint8_t* room
        cdef size_t part
        cdef size_t left = <size_t>(o.message.size - o.taken)
        cdef size_t head_size = o.prefix_size if o.prefix is not NULL else sizeof(DeliveryHead)
        cdef bint aborted = o.flags & OUT_ABORT or o.message.aborted
        cdef bint last
        # The first record must have all sections that the other worker reads.
        part = o.prefix_at if o.prefix is not NULL and o.prefix_at > RECORD_OCTETS else RECORD_OCTETS
        if part > left:
            part = left
        if o.taken - o.acknowledged + part > STREAM_WINDOW and not aborted:
            return 0
        if aborted:
            part = 0
        last = aborted or (o.message.complete and part == left)
        if part == 0 and not last:
            return 0
        room = self.outbox.reserve(<uint32_t>(head_size + part))
        if room is NULL:
            return -1
        if o.prefix is not NULL:
            memcpy(room, o.prefix, head_size)
            free(o.prefix)
            o.prefix = NULL
            o.prefix_size = 0
            o.flags |= OUT_STARTED
            self.unstarted_count -= 1
        else:
            delivery_record(<DeliveryHead*>room, R_CONTINUE, 0, 0, o.tag_octets, 0, NULL)
        if o.flags & OUT_SETTLED:
            (<DeliveryHead*>room).flags |= F_PRESETTLED
        if not last:
            (<DeliveryHead*>room).flags |= F_MORE
        if aborted:
            (<DeliveryHead*>room).flags |= F_ABORTED
        if part:
            cursor_read(&o.cursor, room + head_size, part)
            o.taken += part
            if o.meter is not NULL:
                out_charge(o, o.meter, <uint32_t>part)
        commit(self.outbox, <uint32_t>(head_size + part))
        if aborted:
            self.forget(o)
        elif last:
            self.unqueue(o)
            cursor_close(&o.cursor)
            message_release(o.message)
            o.message = NULL
        return 1

    cdef int forget(self, OutDelivery* o) except -1:
        """Free a delivery, and remove it from queue and map."""
        map_take(&self.sent, o.tag_octets)
        if self.meters and not o.flags & OUT_STARTED:
            self.meters.pop(o.tag_octets, None)
        if o.flags & OUT_QUEUED:
            self.unqueue(o)
        out_free(o)
        return 0

    # -- from the peer's consumers ------------------------------------------------------------------------------------

    cdef int on_settled(self, const DeliveryRecord* r) except -1:
        """Process a SETTLED or RETURNED about our deliveries.

        Raises MalformedRecordError for keys that were never sent.
        """
        cdef const DeliveryHead* head = r.head
        cdef Slice state = r.body if r.body.size else plain_state(head.kind)
        cdef uint32_t n
        if head.count > self.next_key or head.key > self.next_key - head.count:
            raise MalformedRecordError(
                f"outcome of {head.count} deliveries from {head.key} on, but only {self.next_key} were sent")
        while self.progress < head.count:
            n = 0
            if head.type == R_SETTLED and head.flags & F_SETTLED and head.kind and runs_used():
                n = self.settle_run(head, &state)
            if n == 0:
                self.settle_one(head, &state)
                n = 1
            self.progress += n
        return 0

    cdef uint32_t settle_run(self, const DeliveryHead* head, const Slice* state) except 0xFFFFFFFF:
        """Settle the next deliveries, as far as they are a run (settlement.pxd).

        Returns their number; 0: the next one needs `settle_one`.
        """
        cdef OutDelivery* run[RUN_MOST]
        cdef DeliveryNode* upstream
        cdef uint64_t first = head.key + self.progress
        cdef uint32_t most = min(head.count - self.progress, <uint32_t>RUN_MOST)
        cdef uint32_t n = 0
        cdef uint32_t i
        cdef size_t octets = 0
        cdef Meter* meter
        cdef OutDelivery* o = <OutDelivery*>map_get(&self.sent, first)
        if o is NULL or not can_join_run(o, o.source):
            return 0
        upstream = o.source.upstream
        meter = o.meter
        while o is not NULL and can_join_run(o, o.source) and o.source.upstream is upstream and o.outstanding is NULL:
            run[n] = o
            n += 1
            if n == most:
                break
            o = <OutDelivery*>map_get(&self.sent, first + n)
        if n == 0:
            return 0
        self.failing = NULL
        self.concerned = upstream
        if not upstream.calls.settled(upstream.owner, run, n, head.kind, state):
            return 0
        map_take_known(&self.sent, first, n)
        for i in range(n):
            octets += run[i].octets
            run[i].next = run[i + 1] if i + 1 < n else NULL
        if meter is not NULL:
            # All deliveries of a run came by one link, so their copies have the same meter.
            meter.refs -= n - 1
            meter_subtract_quietly(meter, octets)
            meter_drop(meter)
        outs_free(run[0])
        return n

    cdef int settle_one(self, const DeliveryHead* head, const Slice* state) except -1:
        """Apply a state or settlement to the next delivery."""
        cdef uint64_t key = head.key + self.progress
        cdef bint ends = head.type == R_RETURNED or head.flags & F_SETTLED
        cdef OutDelivery* o = <OutDelivery*>(map_take(&self.sent, key) if ends else map_get(&self.sent, key))
        cdef Slice told
        if o is NULL:
            return 0
        self.failing = o
        self.concerned = o.source.upstream if o.source is not NULL else NULL
        if not ends:
            if o.source is NULL and is_outcome(head.kind):
                told = settled_state(head.kind, state)
                return self.producer_update(o, head.kind, &told, True)     # as ConsumerLink.delivery_outcome
            return out_update(o, head.kind, state, False)
        if o.flags & OUT_QUEUED:
            self.unqueue(o)
        if head.type == R_RETURNED:
            out_left(o)
        else:
            out_update(o, head.kind, state, True)
        out_free(o)
        return 0

    cdef int on_window(self, const DeliveryRecord* r) except -1:
        """Process a WINDOW: octets of a stream have left the peer.

        Raises MalformedRecordError for more than were sent.
        """
        cdef const DeliveryHead* head = r.head
        cdef OutDelivery* o = <OutDelivery*>map_get(&self.sent, head.key)
        if o is not NULL:
            if head.format > o.taken - o.acknowledged:
                raise MalformedRecordError(
                    f"window of {head.format} octets of delivery {head.key}, "
                    f"but {o.taken - o.acknowledged} are outstanding")
            o.acknowledged += head.format
            if o.meter is not NULL:
                out_uncharge(o, head.format)
            self.go_on(o)
        return 0

    cdef bint settled_failed(self, const uint8_t* p, object fault) except *:
        """End the connection of the producer whose delivery failed."""
        cdef const DeliveryHead* head = <const DeliveryHead*>p
        cdef uint64_t key = head.key + self.progress
        if self.concerned is NULL or not isinstance(<object>self.concerned.owner, Link):
            raise fault
        if self.failing is NULL:
            out_free(<OutDelivery*>map_take(&self.sent, key))    # the others of the run are settled one by one
        elif map_get(&self.sent, key) is NULL:
            out_free(self.failing)         # removed from the map; its producer, which ends, does not know it either
        (<Link>self.concerned.owner).session.connection.end_by(fault)
        self.progress += 1
        return self.progress < head.count

    cdef int lost(self) except -1:
        """Settle all deliveries: the peer has exited. They may have been delivered, so unsettled ones are modified."""
        cdef OutDelivery* o
        cdef uint32_t i
        cdef Slice state = plain_state(D_MODIFIED)
        for i in range(self.sent.size):
            if self.sent.slots[i].value is NULL:
                continue
            o = <OutDelivery*>self.sent.slots[i].value
            if o.flags & OUT_QUEUED:
                self.unqueue(o)
            if o.flags & OUT_SETTLED:
                if not o.flags & OUT_ABORT:
                    totals.dropped_presettled += 1
                    totals.dropped[DROP_WORKER_LOST] += 1
                out_left(o)
            else:
                out_update(o, D_MODIFIED, &state, True)
            out_free(o)
        map_free(&self.sent)
        return 0
