"""Other ends of routed links on another worker: frames cross by the rings of the two workers (port.pyx).

For a link on which our peer sends, the remote end is the downstream of deliveries; for one on which our peer receives,
the upstream. Records name their link by slot and generation. They are in order, so that a detach never overtakes a
delivery:

    TRANSFER   key, tag, state, octets: a frame of a delivery                from the sender's worker
    UPDATE     key, state: disposition of the sender                         "
    OUTCOME    keys first … first + count - 1: disposition of the receiver   from the receiver's worker
    RETURNED   keys: settled deliveries that have left                       "
    WINDOW     octets that have left                                         "
    FLOW       flow of the other peer                                        both
    TOLD       attach, its answer, detach, loss                              both

Each delivery has a key until it is settled and has left. At most LINK_WINDOW octets of a link are with the receiver's
worker; the rest waits here, metered by the sender's session. When the sender's link ends without a detach (by an end,
a close or a lost connection), its complete deliveries are still posted, and its end behind them.
"""
from libc.stdlib cimport malloc
from libc.string cimport memset

from sluice.router.amqp.id_map cimport map_free, map_get, map_put, map_take
from sluice.router.amqp.states cimport plain_state
from sluice.router.delivery.delivery cimport (
    IN_COMPLETE, IN_PRESETTLED, IN_ROUTED, OUT_ABORT, OUT_LATE_SETTLED, OUT_QUEUED, OUT_SETTLED, OUT_STARTED,
    in_free, in_new, out_free, out_routed, queue_append, queue_remove,
)
from sluice.router.amqp.meter cimport meter_new, meter_release
from sluice.router.message.content cimport cursor_close, cursor_read, message_release
from sluice.router.routed.routed_link cimport (
    EVENT_LOST, STATE_MOST, TAG_MOST, RoutedLink, routed_head, store_frame, update_queued,
)
from sluice.router.routed.pending_flow cimport pending_merge, pending_passed
from sluice.router.routed.link_records cimport (
    F_ABORTED, F_FIRST, F_MORE, F_SETTLED, flow_record, record_begin, record_flow, record_transfer, transfer_record,
)
from sluice.router.ring.outbox cimport mark_port_dirty
from sluice.router.ring.records cimport (
    R_LINK_FLOW, R_LINK_OUTCOME, R_LINK_RETURNED, R_LINK_EVENT, R_LINK_TRANSFER, R_LINK_UPDATE, R_LINK_WINDOW,
    RECORD_OCTETS, encode_link,
)

from sluice.router.amqp.errors import RESOURCE_LIMIT, RemoteError
from sluice.router.ring.errors import MalformedRecordError

# Buffers: for a head with tag and state, and for content on its way from chunks into a record.
cdef uint8_t* scratch = <uint8_t*>malloc(sizeof(LinkHead) + TAG_MOST + STATE_MOST)
cdef uint8_t* content = <uint8_t*>malloc(RECORD_OCTETS)
if scratch is NULL or content is NULL:
    raise MemoryError("room for records")


cdef int check_size(size_t size) except -1:
    if size > STATE_MOST:
        raise RemoteError("link", RESOURCE_LIMIT,
                          f"a delivery state, or properties of a flow, have more than {STATE_MOST} octets")
    return 0


cdef void remote_freed(void* owner) noexcept:
    (<RemoteEnd>owner).want_turn()


cdef class RemoteEnd(OtherEnd):
    """Other end of a routed link, on the peer of `port`.

    slot, generation: of that link; own_slot, own_generation: of ours.
    """

    def __cinit__(self, WorkerPort port not None, uint32_t slot, uint32_t generation, uint32_t own_slot,
                  uint32_t own_generation):
        self.own = <uint64_t>own_slot << 32 | own_generation
        self.port = port
        self.slot = slot
        self.generation = generation
        self.later = []
        self.parts = []
        self.meter = meter_new(<void*>self, remote_freed)

    def __dealloc__(self):
        if self.meter is not NULL:         # NULL if __cinit__ failed
            self.meter.owner = NULL
            meter_release(self.meter)
        map_free(&self.sent)
        pending_passed(&self.pending_flow)

    cdef bint through(self, object port) noexcept:
        return self.port is port

    cdef void want_turn(self) noexcept:
        if not self.due and not self.over:
            self.due = True
            self.port.due.append(self)
            mark_port_dirty(self.port.outbox)

    # -- towards the other link ---------------------------------------------------------------------------------------

    cdef int post(self, LinkHead* head, const Slice* tag, const Slice* state, const uint8_t* data,
                  size_t size) except -1:
        """Post one record: head, tag, state, octets. tag, state: NULL if absent."""
        cdef LinkRecord r
        memset(&r, 0, sizeof(LinkRecord))
        head.slot = self.slot
        head.generation = self.generation
        r.head = head
        if tag is not NULL:
            r.tag = tag[0]
        if state is not NULL:
            r.state = state[0]
        if r.tag.size > TAG_MOST or r.state.size > STATE_MOST:
            raise RemoteError("link", RESOURCE_LIMIT,
                              f"delivery-tag of {r.tag.size} octets or delivery state of {r.state.size} is too long")
        return self.port.outbox.post(scratch, encode_link(scratch, &r) - scratch, data, size)

    cdef int deliver(self, InDelivery* d, const Transfer* t, bint first, Meter* m) except -1:
        cdef OutDelivery* o = d.copies
        check_size(t.state.size)
        if first:
            o = out_routed(&self.node, d, t.settled)
            o.tag_octets = self.next_key
            self.next_key += 1
            map_put(&self.sent, o.tag_octets, o)
        elif o is NULL:
            return 0
        if self.node.queue_first is NULL and o.message is NULL \
                and (t.payload.size == 0 or self.outstanding + t.payload.size <= LINK_WINDOW):
            return self.put(o, t, first)
        store_frame(o, t, first, m)
        if not o.flags & OUT_QUEUED:
            queue_append(&self.node, o)
        return self.pump_to_worker()

    cdef int put(self, OutDelivery* o, const Transfer* t, bint first) except -1:
        """Post a frame, in several records if needed."""
        cdef LinkHead head
        cdef Slice none
        cdef size_t at = 0
        cdef size_t part
        none.data = NULL
        none.size = 0
        o.flags |= OUT_STARTED
        while True:
            part = t.payload.size - at
            if part > RECORD_OCTETS:
                part = RECORD_OCTETS
            transfer_record(&head, t, o.tag_octets, first, t.more or at + part < t.payload.size)
            self.post(&head, &t.tag if first else NULL, &t.state if at == 0 else &none,
                      t.payload.data + at if part else NULL, part)
            first = False
            at += part
            self.outstanding += part
            if at >= t.payload.size:
                break
        if t.settled:
            o.flags |= OUT_SETTLED
        if t.aborted:
            map_take(&self.sent, o.tag_octets)
            out_free(o)
        elif not t.more:
            o.acknowledged = 1         # all of it is posted
        return 0

    cdef int pump_to_worker(self) except -1:
        """Post waiting records as far as the window allows, then the pending flow and later events."""
        cdef OutDelivery* o
        cdef Transfer t
        cdef Flow f
        cdef Slice state
        cdef size_t part
        cdef bint first
        while self.node.queue_first is not NULL:
            o = self.node.queue_first
            part = <size_t>(o.message.size - o.taken)
            if o.flags & OUT_ABORT:
                part = 0
            elif part == 0 and not o.message.complete:
                return 0
            if part and self.outstanding >= LINK_WINDOW:
                return 0
            if part > RECORD_OCTETS:
                part = RECORD_OCTETS
            if part > LINK_WINDOW - self.outstanding and part:
                part = <size_t>(LINK_WINDOW - self.outstanding)
            first = not o.flags & OUT_STARTED
            state.data = o.message.state
            state.size = o.message.state_size if first else 0
            routed_head(o, first, &state, &t)
            if part:
                cursor_read(&o.cursor, content, part)
                o.taken += part
            t.payload.data = content
            t.payload.size = part
            t.aborted = (o.flags & OUT_ABORT) != 0
            t.more = not t.aborted and (not o.message.complete or o.taken < o.message.size)
            t.settled = o.flags & OUT_SETTLED and not (o.flags & OUT_LATE_SETTLED and t.more)
            if not t.more:
                queue_remove(&self.node, o)
            self.put(o, &t, first)
            if t.aborted:
                continue
            if not t.more:
                cursor_close(&o.cursor)
                message_release(o.message)
                o.message = NULL
                if self.leaving:
                    # Our link has ended: nobody wants the outcome.
                    map_take(&self.sent, o.tag_octets)
                    out_free(o)
        if self.pending_flow.due:
            # Deliveries that arrived after the flow were posted before it, and have used some of its credit.
            f = self.pending_flow.flow
            part = <size_t>(self.next_key - self.held_key)
            f.link_credit = <uint32_t>(f.link_credit - part) if f.link_credit > part else 0
            self.post_flow(&f)
            pending_passed(&self.pending_flow)
        if self.later:
            later = self.later
            self.later = []
            for what, body in later:
                self.post_event(what, body)
        return self.left() if self.leaving else 0

    cdef int abandon(self, OutDelivery* o) except -1:
        if o.flags & OUT_STARTED:
            o.flags |= OUT_ABORT
            cursor_close(&o.cursor)        # frees the octets held by the copy
            return self.pump_to_worker()
        queue_remove(&self.node, o)
        map_take(&self.sent, o.tag_octets)
        out_free(o)
        return 0

    cdef int flow(self, const Flow* f) except -1:
        check_size(f.properties.size)
        if self.node.queue_first is not NULL:
            if f.has_delivery_count or f.has_link_credit or not self.pending_flow.due:
                self.held_key = self.next_key
            pending_merge(&self.pending_flow, f)
            return 0
        return self.post_flow(f)

    cdef int post_flow(self, const Flow* f) except -1:
        cdef LinkHead head
        flow_record(&head, f)
        return self.post(&head, NULL, &f.properties, NULL, 0)

    cdef int send_event(self, int what, bytes body) except -1:
        if self.node.queue_first is not NULL:
            self.later.append((what, body))
            return 0
        return self.post_event(what, body)

    cdef int post_event(self, int what, bytes body) except -1:
        cdef LinkHead head
        cdef const uint8_t* p = body
        cdef size_t size = len(body)
        cdef size_t at = 0
        cdef size_t part
        self.flush_pending()
        while True:
            part = size - at if size - at < RECORD_OCTETS else RECORD_OCTETS
            record_begin(&head, R_LINK_EVENT, F_MORE if at + part < size else 0, self.own)
            head.kind = <uint8_t>what
            self.post(&head, NULL, NULL, p + at, part)
            at += part
            if at >= size:
                return 0

    cdef int producer_update(self, OutDelivery* o, uint8_t kind, const Slice* state, bint settled) except -1:
        cdef LinkHead head
        check_size(state.size)
        if not o.flags & OUT_STARTED:
            return update_queued(o, state, settled)
        record_begin(&head, R_LINK_UPDATE, F_SETTLED if settled else 0, o.tag_octets)
        head.kind = kind
        self.post(&head, NULL, state, NULL, 0)
        if settled:
            o.flags |= OUT_SETTLED
            if o.acknowledged:
                map_take(&self.sent, o.tag_octets)
                out_free(o)
        return 0

    # -- from the other link ------------------------------------------------------------------------------------------

    cdef int on_record(self, const LinkRecord* r) except -1:
        cdef const LinkHead* head = r.head
        if self.leaving and head.type != R_LINK_WINDOW:
            # Of the other link's records only its end matters. While its peer's detach waits for an answer, the link
            # still exists, and is told that nothing more comes.
            if head.type != R_LINK_EVENT or head.flags & F_MORE:
                return 0
            return self.left() if head.kind == EVENT_LOST else self.abort_and_end()
        if head.type == R_LINK_TRANSFER:
            return self.on_transfer(r)
        if head.type == R_LINK_OUTCOME:
            return self.on_outcome(r)
        if head.type == R_LINK_RETURNED:
            return self.on_returned(head)
        if head.type == R_LINK_UPDATE:
            return self.on_update(r)
        if head.type == R_LINK_FLOW:
            return self.on_flow(r)
        if head.type == R_LINK_WINDOW:
            return self.on_window(head)
        return self.on_event_record(r)

    cdef int check_keys(self, const LinkHead* head) except -1:
        """Raise MalformedRecordError for an outcome of deliveries that were never sent."""
        if head.count > self.next_key or head.key > self.next_key - head.count:
            raise MalformedRecordError(
                f"outcome of {head.count} deliveries from {head.key} on, but a routed link sent only {self.next_key}")
        return 0

    cdef int on_window(self, const LinkHead* head) except -1:
        if head.count > self.outstanding:
            raise MalformedRecordError(
                f"window of {head.count} octets of a routed link, but {self.outstanding} are outstanding")
        self.outstanding -= head.count
        return self.pump_to_worker()

    cdef int on_transfer(self, const LinkRecord* r) except -1:
        cdef const LinkHead* head = r.head
        cdef InDelivery* d
        cdef Transfer t
        cdef bint first = head.flags & F_FIRST
        if r.tag.size > TAG_MOST:
            raise MalformedRecordError(f"a delivery tag of {r.tag.size} octets is too long")
        record_transfer(r, &t)
        self.received_octets += t.payload.size
        if first:
            d = in_new(&self.node, head.key, self.port.scheduler.now_ns,
                       IN_ROUTED | (IN_PRESETTLED if t.settled else 0))
            if not map_put(&self.received, head.key, d):
                raise MalformedRecordError(f"delivery {head.key} of a routed link begins again")
        else:
            d = <InDelivery*>map_get(&self.received, head.key)
        if d is not NULL:
            if t.settled:
                d.flags |= IN_PRESETTLED
            self.current = d if t.more else NULL
            if not t.more:
                d.flags |= IN_COMPLETE
            self.link.deliver(d, &t, first, self.meter)
            if t.aborted:
                self.finish(d)
        if self.received_octets - self.meter.held - self.reported >= LINK_WINDOW // 4:
            self.want_turn()
        return 0

    cdef int on_outcome(self, const LinkRecord* r) except -1:
        cdef const LinkHead* head = r.head
        cdef OutDelivery* o
        cdef InDelivery* d
        cdef Slice state = r.state if r.state.size else plain_state(head.kind)
        cdef bint settled = head.flags & F_SETTLED
        cdef uint32_t i
        self.check_keys(head)
        for i in range(head.count):
            o = <OutDelivery*>map_get(&self.sent, head.key + i)
            if o is NULL:
                continue
            d = o.source
            if d is not NULL:
                d.upstream.calls.outcome(d.upstream.owner, d, head.kind, &state, settled)
            if settled and o.acknowledged:
                map_take(&self.sent, head.key + i)
                out_free(o)
        return 0

    cdef int on_returned(self, const LinkHead* head) except -1:
        cdef OutDelivery* o
        cdef InDelivery* d
        cdef uint32_t i
        self.check_keys(head)
        for i in range(head.count):
            o = <OutDelivery*>map_take(&self.sent, head.key + i)
            if o is NULL:
                continue
            d = o.source
            out_free(o)
            if d is not NULL:
                d.upstream.calls.returned(d.upstream.owner, d)
        return 0

    cdef int on_update(self, const LinkRecord* r) except -1:
        cdef const LinkHead* head = r.head
        cdef InDelivery* d = <InDelivery*>map_get(&self.received, head.key)
        if d is NULL:
            return 0
        if d.copies is not NULL:
            d.copies.downstream.calls.producer_update(d.copies.downstream.owner, d.copies, head.kind, &r.state,
                                                      head.flags & F_SETTLED)
        if head.flags & F_SETTLED:
            d.flags |= IN_PRESETTLED
            if d.flags & IN_COMPLETE:
                return self.finish(d)
        return 0

    cdef int on_flow(self, const LinkRecord* r) except -1:
        cdef Flow f
        record_flow(r, &f)
        return self.link.pass_flow(&f)

    cdef int on_event_record(self, const LinkRecord* r) except -1:
        cdef const LinkHead* head = r.head
        self.parts.append(r.data.data[:r.data.size])
        if head.flags & F_MORE:
            return 0
        body = b"".join(self.parts)
        self.parts = []
        link = self.link                   # the link may end, and release this object
        return (<RoutedLink>link).on_event(head.kind, body)

    cdef int finish(self, InDelivery* d) except -1:
        if self.current is d:
            self.current = NULL
        map_take(&self.received, d.key)
        in_free(d)
        return 0

    # -- reports of our link about its deliveries ---------------------------------------------------------------------

    cdef int outcome(self, InDelivery* d, uint8_t kind, const Slice* state, bint settled) except -1:
        if kind:
            d.kind = kind
        check_size(state.size)
        self.report(False, d.key, 1, kind, state, settled)
        if not settled:
            return 0
        if d.flags & IN_COMPLETE:
            return self.finish(d)
        d.flags |= IN_PRESETTLED
        return 0

    cdef int returned(self, InDelivery* d) except -1:
        if not d.flags & IN_COMPLETE:
            return 0
        self.report(True, d.key, 1, 0, NULL, True)
        return self.finish(d)

    cdef int post_outcome(self, bint returned, uint64_t first, uint32_t count, uint8_t kind, const Slice* state,
                          bint settled) except -1:
        cdef LinkHead head
        record_begin(&head, R_LINK_RETURNED if returned else R_LINK_OUTCOME, F_SETTLED if settled else 0, first)
        head.kind = kind
        head.count = count
        return self.post(&head, NULL, state, NULL, 0)

    cdef Slice fitting(self, uint8_t kind, const Slice* state) except *:
        check_size(state.size)
        return state[0]

    cdef void report_due(self) noexcept:
        self.want_turn()

    cdef int flush(self) except -1:
        self.due = False
        if self.over:
            return 0
        self.flush_pending()
        return self.report_window()

    cdef int report_window(self) except -1:
        cdef LinkHead head
        cdef uint64_t left = self.received_octets - self.meter.held
        if left - self.reported < LINK_WINDOW // 4:
            return 0
        record_begin(&head, R_LINK_WINDOW, 0, 0)
        head.count = <uint32_t>(left - self.reported)
        self.reported = left
        return self.post(&head, NULL, NULL, NULL, 0)

    # -- end ----------------------------------------------------------------------------------------------------------

    cdef int port_lost(self) except -1:
        """End deliveries and link: the other worker has exited."""
        cdef Transfer t
        cdef InDelivery* d = self.current
        if self.leaving:
            return self.left()
        if d is not NULL:
            memset(&t, 0, sizeof(Transfer))
            t.aborted = t.settled = True
            self.link.deliver(d, &t, False, self.meter)
        link = self.link
        return (<RoutedLink>link).remote_lost()

    cdef int give_up(self, OutDelivery* o) except -1:
        """Abort a delivery of which something waits here."""
        cdef LinkHead head
        queue_remove(&self.node, o)
        if not o.flags & OUT_STARTED:
            return 0
        record_begin(&head, R_LINK_TRANSFER, F_SETTLED | F_ABORTED, o.tag_octets)
        return self.post(&head, NULL, NULL, NULL, 0)

    cdef int abort_queued(self) except -1:
        """Abort all deliveries of which something waits here."""
        cdef OutDelivery* o
        while self.node.queue_first is not NULL:
            o = self.node.queue_first
            self.give_up(o)
            map_take(&self.sent, o.tag_octets)
            out_free(o)
        return 0

    cdef int abort_and_end(self) except -1:
        """Abort waiting deliveries, and post waiting events: the other link takes no more deliveries."""
        self.abort_queued()
        for what, body in self.later:
            self.post_event(what, body)
        return self.left()

    cdef int cut(self) except -1:
        if self.over or self.leaving:
            return 0
        self.flush_pending()
        if self.node.queue_first is not NULL and self.later and self.port.alive and not self.link.other_gone:
            return self.leave()
        self.abort_queued()
        self.over = True
        self.meter.owner = NULL
        self.drop_sent()
        for what, body in self.later:
            self.post_event(what, body)
        while self.node.in_first is not NULL:
            in_free(self.node.in_first)
        map_free(&self.received)
        self.current = NULL
        self.link = None
        return 0

    cdef int leave(self) except -1:
        """Outlive our link: post waiting records as the other worker makes room, then later events."""
        cdef OutDelivery* o = self.node.queue_first
        while o is not NULL:
            map_take(&self.sent, o.tag_octets)
            o = o.next
        self.drop_sent()
        o = self.node.queue_first
        while o is not NULL:
            map_put(&self.sent, o.tag_octets, o)
            o = o.next
        self.leaving = True
        self.port.leaving[self.own] = self
        self.link = None
        return 0

    cdef int left(self) except -1:
        """End after our link: nothing is left to be posted, or the other link is gone."""
        cdef OutDelivery* o
        self.over = True
        self.meter.owner = NULL
        while self.node.queue_first is not NULL:
            o = self.node.queue_first
            queue_remove(&self.node, o)
            map_take(&self.sent, o.tag_octets)
            out_free(o)
        self.later = []
        self.port.leaving.pop(self.own, None)
        return 0

    cdef int drop_sent(self) except -1:
        """Free the deliveries of which nothing waits here."""
        cdef uint32_t i
        for i in range(self.sent.size):
            if self.sent.slots[i].value is not NULL:
                out_free(<OutDelivery*>self.sent.slots[i].value)
        map_free(&self.sent)
        return 0
