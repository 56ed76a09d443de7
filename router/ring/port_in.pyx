"""Deliveries from another worker: a port is their upstream.

An InDelivery represents the producer on the other worker. Settlements by consumers are collected, and reported as
ranges of keys at the end of a wake. Octets of streams that have left are reported, so that more may come.
"""
cimport cython
from libc.string cimport memset

from sluice.router.amqp.codec cimport Slice
from sluice.router.amqp.id_map cimport map_free, map_get, map_put_reserved, map_reserve, map_take
from sluice.router.amqp.meter cimport MeterHold, meter_new, meter_release
from sluice.router.amqp.quota cimport Quota
from sluice.router.amqp.link cimport Link
from sluice.router.amqp.spec cimport D_MODIFIED, D_RELEASED
from sluice.router.amqp.states cimport plain_state
from sluice.router.amqp.zero cimport zero
from sluice.router.delivery.delivery cimport (
    IN_COMPLETE, IN_MULTI, IN_OWN, IN_PRESETTLED, IN_ROUTED, IN_TRACED, OutDelivery, in_charge_sent, in_free, in_more,
    in_new, out_free, out_make,
)
from sluice.router.delivery.outcome cimport (
    in_lost, in_lost_multicast, in_routed, in_settled_late, in_update, out_update,
)
from sluice.router.ring.layout cimport DROP_CONSUMER_LOST, LinkSlot
from sluice.router.ring.link_table cimport LinkTable, link_at
from sluice.router.ring.outbox cimport mark_port_dirty
from sluice.router.ring.records cimport (
    F_ABORTED, F_AT_HAND, F_HONOUR, F_LOST, F_MORE, F_MULTI, F_OWN, F_PRESETTLED, F_SETTLED, F_STATE, K_AS_IS,
    K_CHARGED, K_CHECKPOINT, K_OVERFLOW, K_SERVED, K_TRACED, R_RETURNED, R_SETTLED, R_UPDATE, DeliveryHead,
    decode_transfer, delivery_record, window_record,
)
from sluice.router.ring.reports cimport continues
from sluice.router.links.consumer_link cimport can_send_unchanged, has_ended, send_whole
from sluice.router.message.content cimport (
    Message, message_append, message_meter, message_new, message_release, message_routed, message_state,
)
from sluice.router.message.sections cimport scan
from sluice.router.stats.counters cimport totals
from sluice.router.tracing.tracer cimport begin_crossing

from sluice.router.ring.errors import MalformedRecordError

cdef inline uint32_t* taken_counters(LinkSlot* slot) noexcept:
    """Return the counters of deliveries that a link has taken from the ring of each worker, see LinkSlot."""
    return <uint32_t*>(slot + 1)


cdef bint has_copy(const InDelivery* d, const DeliveryNode* downstream) noexcept:
    """Return True if the delivery has a copy for this node."""
    cdef const OutDelivery* o = d.copies
    while o is not NULL:
        if o.downstream is downstream:
            return True
        o = o.sibling
    return False


cdef int refuse_transfer(uint32_t size) except -1:
    """Raise MalformedRecordError. A function of its own keeps the stack frame of its caller small."""
    raise MalformedRecordError(f"TRANSFER of {size} octets is malformed")


cdef inline bint is_uncharged(const DeliveryHead* head) noexcept nogil:
    """Return True if a message that waits here counts for no connection of the producer's worker.

    A settled message is returned when it is queued, and then counts there no more.
    """
    return head.flags & F_PRESETTLED or not head.kind & K_CHARGED


cdef int count_queued(ConsumerLink link, Message* m) except -1:
    """Count a message that waits for a consumer against the quota of the consumer's connection."""
    cdef Quota quota = None if link is None else link.session.connection.quota
    if quota is not None:
        message_meter(m, quota.queued_meter())
    return 0


cdef class Inflow:
    """Inflow: a stream being received from the peer."""
    def __dealloc__(self):
        if self.meter is not NULL:
            self.meter.owner = NULL
            meter_release(self.meter)


cdef void inflow_freed(void* owner) noexcept:
    cdef Inflow inflow = <Inflow>owner
    if not inflow.due:
        inflow.due = True
        inflow.port.windows.append(inflow)
        mark_port_dirty(inflow.port.outbox)


cdef class PortIn(ReportingNode):
    def __cinit__(self, Outbox outbox not None, int peer, LinkTable links not None, Scheduler scheduler not None):
        self.outbox = outbox
        self.peer = peer
        self.links = links
        self.places = &links.places
        self.scheduler = scheduler
        self.inflows = {}
        self.windows = []

    # -- from the peer's producers ------------------------------------------------------------------------------------

    cdef int on_transfer(self, const uint8_t* p, uint32_t size) except -1:
        """Process a TRANSFER. Raises MalformedRecordError."""
        cdef TransferRecord r
        cdef const DeliveryHead* head = <const DeliveryHead*>p
        if not decode_transfer(p, size, &r):
            return refuse_transfer(size)
        if head.count == 1 and not head.flags & (F_ABORTED | F_MORE | F_STATE | F_MULTI) \
                and not head.kind & (K_SERVED | K_TRACED) and not self.progress and self.meters is None:
            return self.receive_one(&r)
        return self.receive_several(&r)

    cdef int receive_several(self, const TransferRecord* r) except -1:
        """Process a TRANSFER for several consumers, of several parts, or with a state or served edge routers."""
        cdef const DeliveryHead* head = r.head
        cdef Content* c = &self.content
        cdef InDelivery* d
        cdef MeterHold hold = None if self.meters is None else self.meters.pop(head.key, None)
        if head.flags & F_ABORTED:
            # The producer aborted it before it could leave. It only counts as taken, which the peer's scores need.
            self.take(r.targets, head.count)
            return 0
        if self.progress:
            d = <InDelivery*>map_get(&self.received, head.key)
        else:
            d = self.read_transfer(r, c)
            if head.kind & K_TRACED and begin_crossing(d, r.data.data, r.data.size, &r.to, self.peer):
                d.flags |= IN_TRACED
        self.spread(d, c, r.targets, head.count, head.kind & K_OVERFLOW)
        if c.stored is not NULL:
            if hold is not None and not head.flags & F_MORE:
                message_meter(c.stored, hold.meter)
            elif not head.flags & F_MORE and head.count and is_uncharged(head):
                count_queued(self.link_of(r.targets), c.stored)
            message_routed(c.stored)
            if not head.flags & F_MORE:
                message_release(c.stored)
            c.stored = NULL
        if d.flags & IN_PRESETTLED:
            d.flags |= IN_ROUTED
            if not head.flags & F_MORE and d.live == 0:
                return self.returned(d)
            return 0
        if d.flags & IN_MULTI:
            in_charge_sent(d, NULL if hold is None else hold.meter)
        return in_routed(d)

    @cython.final
    cdef int receive_one(self, const TransferRecord* r) except -1:
        """Process a TRANSFER of a whole message for one consumer.

        A message that its consumer gets now and unchanged is not scanned again, and has no InDelivery if it is settled.
        """
        cdef const DeliveryHead* head = r.head
        cdef uint8_t flags = head.flags
        cdef bint settled = flags & F_PRESETTLED
        cdef uint64_t now = self.scheduler.now_ns
        cdef void* link = link_at(self.places, r.targets.slot, r.targets.generation)
        cdef bint unchanged
        cdef InDelivery* d = NULL
        cdef ConsumerLink kept
        if link is not NULL and has_ended(<ConsumerLink>link):
            link = NULL
        unchanged = (link is not NULL and head.kind & K_AS_IS and (<ConsumerLink>link).plain
                     and can_send_unchanged(<ConsumerLink>link, r.data.size, settled))
        if not unchanged or not settled:
            map_reserve(&self.received)
            d = in_new(&self.node, head.key, now,
                       IN_COMPLETE | (IN_PRESETTLED if settled else 0) | (IN_OWN if flags & F_OWN else 0))
            if not map_put_reserved(&self.received, head.key, d):
                return self.refuse_key(d)
        if unchanged:
            send_whole(<ConsumerLink>link, d, r.data.data, r.data.size, head.format, now, NULL, NULL)
        elif link is not NULL:
            kept = <ConsumerLink>link      # a counted reference: anything may happen in `offer`
            self.offer_record(kept, d, r)
        else:
            self.no_target(d)
        self.progress = 1
        if link is not NULL:
            taken_counters((<ConsumerLink>link).slot)[self.peer] += 1
        if d is NULL:
            return self.report(True, head.key, 1, 0, NULL, True)
        if settled:
            d.flags |= IN_ROUTED
            return self.returned(d) if d.live == 0 else 0
        return in_routed(d)

    cdef int offer_record(self, ConsumerLink link, InDelivery* d, const TransferRecord* r) except -1:
        """Offer the message of a record to its consumer, which may change or queue it."""
        cdef const DeliveryHead* head = r.head
        cdef Content* c = &self.content
        zero(c, sizeof(Content))
        c.to = r.to
        c.data = r.data.data
        c.size = r.data.size
        c.complete = c.whole = True
        c.settled = head.flags & F_PRESETTLED
        c.honour = head.flags & F_HONOUR
        c.complete_at_sender = head.flags & F_AT_HAND
        c.own = head.flags & F_OWN
        c.checkpoint = head.kind & K_CHECKPOINT
        c.phase = head.phase
        c.format = head.format
        # The sending worker has checked the sections.
        scan(c.data, c.size, False, c.honour, &c.sections)
        link.offer(d, c, head.kind & K_OVERFLOW)
        if c.stored is not NULL:
            if is_uncharged(head):
                count_queued(link, c.stored)
            message_routed(c.stored)
            message_release(c.stored)
            c.stored = NULL
        return 0

    cdef InDelivery* read_transfer(self, const TransferRecord* r, Content* c) except NULL:
        """Make the delivery that a record starts, and its content. Raises MalformedRecordError."""
        cdef const DeliveryHead* head = r.head
        cdef Message* m
        cdef Inflow inflow
        cdef bint more = head.flags & F_MORE
        cdef InDelivery* d
        if more and not r.data.size:
            raise MalformedRecordError(f"TRANSFER of stream {head.key} has no octets")
        map_reserve(&self.received)
        d = in_new(&self.node, head.key, self.scheduler.now_ns,
                   (IN_PRESETTLED if head.flags & F_PRESETTLED else 0)
                   | (IN_MULTI if head.flags & F_MULTI else 0) | (IN_OWN if head.flags & F_OWN else 0)
                   | (0 if more else IN_COMPLETE))
        if not map_put_reserved(&self.received, head.key, d):
            self.refuse_key(d)
        memset(c, 0, sizeof(Content))
        c.to = r.to
        c.served = r.served
        c.state = r.state
        c.data = r.data.data
        c.size = r.data.size
        c.phase = head.phase
        c.format = head.format
        c.settled = head.flags & F_PRESETTLED
        if more:
            inflow = Inflow()
            inflow.port = self
            inflow.key = head.key
            inflow.meter = meter_new(<void*>inflow, inflow_freed)
            self.inflows[head.key] = inflow
            inflow.received = c.size
            m = message_new(c.format)
            message_meter(m, inflow.meter)
            d.message = m
            message_append(m, c.data, c.size)
            if c.state.size:
                message_state(m, &c.state)
            c.stored = m
            c.data = &m.head.data[0]
        else:
            c.complete = c.whole = True
        c.honour = head.flags & F_HONOUR
        c.complete_at_sender = head.flags & F_AT_HAND
        c.own = head.flags & F_OWN
        # The sending worker has checked the sections.
        scan(c.data, c.size, False, c.honour, &c.sections)
        c.checkpoint = head.kind & K_CHECKPOINT
        return d

    cdef ConsumerLink link_of(self, const RecordTarget* target):
        """Return the consumer that a record names; None: it is gone."""
        cdef void* found = link_at(self.places, target.slot, target.generation)
        return None if found is NULL else <ConsumerLink>found

    cdef void take(self, const RecordTarget* target, uint32_t count) noexcept:
        """Count deliveries to these consumers as taken from the ring."""
        cdef ConsumerLink link
        cdef uint32_t i
        for i in range(count):
            link = self.link_of(&target[i])
            if link is not None:
                taken_counters(link.slot)[self.peer] += 1

    cdef int spread(self, InDelivery* d, Content* c, const RecordTarget* target, uint32_t count,
                    int overflow) except -1:
        """Make copies for the targets from `progress` on; for those that are gone, release the copy."""
        cdef ConsumerLink link
        cdef uint32_t i
        while self.progress < count:
            i = self.progress
            link = self.link_of(&target[i])
            if link is not None and not has_ended(link) \
                    and (c.settled or not d.flags & IN_MULTI or link.takes_copies()):
                link.offer(d, c, overflow)
                taken_counters(link.slot)[self.peer] += 1
            else:
                self.no_target(d)
            self.progress = i + 1
        return 0

    cdef int no_target(self, InDelivery* d) except -1:
        """Release or drop a copy whose consumer is gone."""
        cdef Slice state = plain_state(D_RELEASED)
        cdef OutDelivery* o
        if d.flags & IN_PRESETTLED:
            totals.dropped_presettled += 1
            totals.dropped[DROP_CONSUMER_LOST] += 1
            return 0
        o = out_make(&self.node, d, False, True)
        out_update(o, D_RELEASED, &state, True)
        out_free(o)
        return 0

    cdef int on_continue(self, const DeliveryRecord* r) except -1:
        """Process a CONTINUE: more octets of a delivery, or its end.

        Raises MalformedRecordError if it was complete.
        """
        cdef const DeliveryHead* head = r.head
        cdef InDelivery* d = <InDelivery*>map_get(&self.received, head.key)
        cdef Inflow inflow = self.inflows.get(head.key)
        cdef Message* m
        cdef bint last = not head.flags & F_MORE
        if inflow is not None:
            inflow.received += r.body.size
            if last:
                del self.inflows[head.key]
        if d is NULL:
            return 0
        m = d.message
        if m is NULL:
            raise MalformedRecordError(f"CONTINUE of delivery {head.key}, which is already complete")
        if head.flags & F_ABORTED:
            map_take(&self.received, head.key)
            return in_lost(d)
        if head.flags & F_PRESETTLED and not d.flags & IN_PRESETTLED:
            in_settled_late(d)
        message_append(m, r.body.data, r.body.size)
        m.complete = last
        if last:
            d.flags |= IN_COMPLETE
        in_more(d)
        if not last:
            return 0
        message_release(m)
        d.message = NULL
        if d.flags & IN_PRESETTLED and d.live == 0:
            return self.returned(d)
        return 0

    cdef int on_update(self, const DeliveryRecord* r) except -1:
        """Process an UPDATE: a disposition of the producer on the other worker, or its loss."""
        cdef const DeliveryHead* head = r.head
        cdef InDelivery* d = <InDelivery*>map_get(&self.received, head.key)
        if d is NULL:
            return 0
        self.concerned = d.copies.downstream if d.copies is not NULL else NULL
        if head.flags & F_LOST:
            in_lost_multicast(d)
            return self.finish(d)
        in_update(d, head.kind, &r.body, head.flags & F_SETTLED)
        if head.flags & F_SETTLED:
            return self.finish(d)
        return 0

    cdef int refuse_key(self, const InDelivery* d) except -1:
        """Raise MalformedRecordError for a key in use. `lost` frees the delivery."""
        raise MalformedRecordError(f"TRANSFER of delivery {d.key}, which is not settled yet")

    cdef int finish(self, InDelivery* d) except -1:
        map_take(&self.received, d.key)
        if self.inflows:
            self.inflows.pop(d.key, None)
        in_free(d)
        return 0

    cdef bint transfer_failed(self, const uint8_t* p, object fault) except *:
        """End the connection of the consumer whose copy failed; the others get their copies."""
        cdef const DeliveryHead* head = <const DeliveryHead*>p
        cdef const RecordTarget* target = <const RecordTarget*>(p + sizeof(DeliveryHead)) + self.progress
        cdef InDelivery* d = <InDelivery*>map_get(&self.received, head.key)
        cdef ConsumerLink link
        if self.progress >= head.count:
            raise fault
        link = self.link_of(target)
        if link is None:
            raise fault
        if d is NULL:
            # There was no memory to start with: nothing has changed.
            if self.progress or link.session.ended:
                raise fault                # there is still no memory
            link.session.connection.end_by(fault)
            if not link.session.ended:
                raise fault
            return True
        taken_counters(link.slot)[self.peer] += 1
        if not has_copy(d, &link.node):
            self.no_target(d)
        link.session.connection.end_by(fault)
        if has_copy(d, &link.node):
            raise fault
        self.progress += 1
        return True

    cdef bint content_failed(self, const uint8_t* p, object fault) except *:
        """End the connections of all consumers of the delivery."""
        cdef const DeliveryHead* head = <const DeliveryHead*>p
        cdef InDelivery* d = <InDelivery*>map_get(&self.received, head.key)
        cdef OutDelivery* o
        cdef Slice state = plain_state(D_MODIFIED)
        cdef list links = []
        if d is NULL:
            raise fault
        o = d.copies
        while o is not NULL:
            links.append(<object>o.downstream.owner)
            o = o.sibling
        if not links and p[0] == R_UPDATE and self.concerned is not NULL:
            links.append(<object>self.concerned.owner)   # the delivery is cut off from its copies already
        if not links:
            raise fault
        for link in links:
            (<Link?>link).session.connection.end_by(fault)
        d = <InDelivery*>map_get(&self.received, head.key)
        if d is NULL:
            return False
        if d.copies is not NULL:
            raise fault
        if d.flags & IN_PRESETTLED:
            self.returned(d)
        else:
            self.outcome(d, D_MODIFIED, &state, True)
        return False

    # -- from our consumers -------------------------------------------------------------------------------------------

    cdef int post_outcome(self, bint returned, uint64_t first, uint32_t count, uint8_t kind, const Slice* state,
                          bint settled) except -1:
        cdef DeliveryHead head
        delivery_record(&head, R_RETURNED if returned else R_SETTLED, F_SETTLED if settled else 0, kind, first, count,
                        state)
        return self.outbox.post_outcome(<uint8_t*>&head, sizeof(DeliveryHead), state.data, state.size)

    cdef Slice fitting(self, uint8_t kind, const Slice* state) except *:
        return self.outbox.fitting(kind, state)

    cdef void report_due(self) noexcept:
        mark_port_dirty(self.outbox)

    cdef int outcome(self, InDelivery* d, uint8_t kind, const Slice* state, bint settled) except -1:
        cdef Slice said
        if settled and continues(self, d.key, kind, state):
            self.pending_count += 1            # the common case: it continues the range with the same outcome
            return self.finish(d)
        said = self.outbox.fitting(kind, state)
        self.report(False, d.key, 1, kind, &said, settled)
        return self.finish(d) if settled else 0

    cdef int returned(self, InDelivery* d) except -1:
        self.report(True, d.key, 1, 0, NULL, True)
        return self.finish(d)

    # -- end of a wake ------------------------------------------------------------------------------------------------

    cdef int flush(self) except -1:
        """Report the settlements of this wake, and the octets of streams that have left."""
        cdef Inflow inflow
        cdef list windows
        self.flush_pending()
        if self.windows:
            windows = self.windows
            self.windows = []
            for inflow in windows:
                inflow.due = False
                self.report_window(inflow)
        return 0

    cdef int report_window(self, Inflow inflow) except -1:
        cdef DeliveryHead head
        cdef uint64_t left = inflow.received - inflow.meter.held if inflow.received > inflow.meter.held else 0
        if left <= inflow.reported:
            return 0
        window_record(&head, inflow.key, <uint32_t>(left - inflow.reported))
        inflow.reported = left
        return self.outbox.post(<uint8_t*>&head, sizeof(DeliveryHead), NULL, 0)

    cdef bint unreported(self) noexcept:
        """Return True if something is to be reported since the last `flush`."""
        return self.pending_count > 0 or bool(self.windows)

    cdef int lost(self) except -1:
        """End deliveries: the peer has exited. Complete ones continue, the others are aborted."""
        while self.node.in_first is not NULL:
            in_lost(self.node.in_first)
        map_free(&self.received)
        self.inflows.clear()
        self.windows.clear()
        self.pending_count = 0
        return 0
