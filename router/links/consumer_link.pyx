"""Links on which a client receives (AMQP 1.0 part 2, 2.6): copies are sent within credit and window, or queued.

routing-semantics.md 6, 8.6, 9.3.

`offer` decides whether a copy leaves at once. `send_whole` writes it in one frame from where the message arrived,
straight into the connection's write buffer. Everything else (no credit, no window, a queue, several frames) goes
through the queue.
"""
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from sluice.router.amqp.codec cimport Slice
from sluice.router.amqp.connection cimport Connection
from sluice.router.amqp.survey cimport Survey
from sluice.router.amqp.endpoint cimport LINK_QUANTUM, is_detached, is_pending
from sluice.router.amqp.memory cimport ProcessMemory, is_exceeded
from sluice.router.amqp.scheduler cimport Scheduler, charge
from sluice.router.stats.counters cimport (
    count_drop, count_finished, count_outcome, count_presettled_delivery, totals, unblock,
)
from sluice.router.stats.samples cimport write_outcome_sample
from sluice.router.amqp.credit cimport credit_left
from sluice.router.links.credit cimport shown_credit
from sluice.router.links.delivery_link cimport (
    copy_octets, can_write_now, leave_queue, note_settled, settle_sent, start_copy,
)
from sluice.router.links.settlement cimport settle_copies
from sluice.router.amqp.id_map cimport map_take
from sluice.router.amqp.states cimport is_outcome, plain_state, state_kind
from sluice.router.delivery.delivery cimport (
    IN_MULTI, IN_OWN, IN_TRACED, OUT_ABORT, OUT_CHECK, OUT_COUNTED, OUT_DROPPABLE, OUT_QUEUED, OUT_REPORT, OUT_ROUTED,
    OUT_SETTLED, OUT_STARTED, OUT_STUCK, OUT_TRACED, OWN_FLOWING, OWN_QUEUED, out_count, out_free, out_make, out_new,
    own_message_charge,
    queue_append, queue_remove,
)
from sluice.router.delivery.outcome cimport out_left, out_update
from sluice.router.delivery.settled_state cimport settled_state
from sluice.router.amqp.frames cimport SHORT_TAG, TRANSFER_ROOM, Flow, write_transfer
from sluice.router.amqp.link_life cimport ON_DECIDED, ON_DETACH
from sluice.router.message.content cimport (
    Cursor, Message, Meter, content_store, copy_queued, cursor_close, cursor_open, message_state, uncharged,
)
from sluice.router.message.annotations cimport compose, compose_room
from sluice.router.amqp.spec cimport D_ACCEPTED, D_MODIFIED, D_RELEASED, D_TRANSACTIONAL
from sluice.router.ring.layout cimport DROP_CONSUMER_LOST, DROP_OVERFLOW
from sluice.router.tracing.tracer cimport SPAN_QUEUED, SPAN_SETTLED, begin_copy, note_copy_sent

from enum import IntEnum

from sluice.router.amqp.errors import RESOURCE_LIMIT

cdef enum:
    DEFAULT_CAPACITY = 250     # deliveries, as in Dispatch
    # Capacities of deliveries that may wait for one consumer if they come from routers that cannot slow their
    # producers.
    REMOTE_QUEUE = 10
    # Deliveries that a lost consumer gives back in one slice, and cost units of each.
    SHED_MOST = 2048
    SHED_UNITS = 2
    # Shares of memory bounds that queued copies from other routers may take, as 1/share. Of the bound of the
    # consumer's connection: copies whose producers cannot be slowed, and those whose producers can. Of the bound of
    # the process: all.
    REMOTE_SHARE = 32
    TRACKED_SHARE = 4
    ROUTED_SHARE = 8
    # Copies of multicast messages from other workers, at all consumers together, may take 1/UNCHARGED_SHARE of the
    # bound of the process. A consumer with fewer than UNCHARGED_LEAST of them takes more in any case.
    UNCHARGED_SHARE = 8
    UNCHARGED_LEAST = 16

tags.next = 0

# The policies by name, for Python.
Overflow = IntEnum("Overflow", {
    "OVERFLOW_THROTTLE": OVERFLOW_THROTTLE, "OVERFLOW_BLOCK": OVERFLOW_BLOCK,
    "OVERFLOW_DROP_OLDEST": OVERFLOW_DROP_OLDEST, "OVERFLOW_REMOTE": OVERFLOW_REMOTE,
    "OVERFLOW_TRACKED": OVERFLOW_TRACKED,
}, module=__name__)

cdef uint64_t routed_queued = 0  # octets of copies with OUT_ROUTED in all queues of this process
cdef uint8_t* scratch = NULL   # buffer for composed annotations
cdef size_t scratch_size = 0


cdef uint8_t* scratch_room(size_t size) except NULL:
    """Return the scratch buffer, grown to `size` octets."""
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


# routing-semantics.md F-3.
def set_tag_space(worker):
    """Make delivery tags unique in the router: the worker's number is their last octet, a counter the others."""
    tags.next = <uint64_t>worker << 56


cdef uint32_t mark_copies(OutDelivery* o, uint64_t before) noexcept nogil:
    """Mark the copies of a list older than `before` as stuck; return how many. The list is nearly in order of time."""
    cdef uint32_t marked = 0
    while o is not NULL and o.since < before:
        # A copy whose message still arrives is a stream, which may take its time.
        if o.since and not o.flags & OUT_STUCK and (o.message is NULL or o.message.complete):
            o.flags |= OUT_STUCK
            marked += 1
        o = o.next
    return marked


cdef bint has_no_incoming_link(const Meter* meter, const Meter* connection) noexcept nogil:
    """Return True if octets counted by this meter belong to no incoming link of this worker: they came from another
    worker, or their link is gone. connection: NULL, or count only those whose link was on this connection."""
    if connection is NULL:
        return meter is NULL or meter.owner is NULL or meter.parent is NULL
    return meter is not NULL and meter.owner is NULL and meter.parent is not NULL and meter.parent.parent is connection


cdef int trace_copy(ConsumerLink link, InDelivery* d, OutDelivery* o, const Content* c) except -1:
    """Begin the span of a copy of a delivery that has one. o NULL: the copy was sent settled."""
    cdef uint8_t flags = SPAN_SETTLED if o is NULL or o.flags & OUT_SETTLED else 0
    if o is not NULL and not o.flags & OUT_STARTED:
        flags |= SPAN_QUEUED
    if begin_copy(d, o, link.context, c.size if c.stored is NULL else c.stored.size, flags) and o is not NULL:
        o.flags |= OUT_TRACED
    return 0


cdef class ConsumerLink(DeliveryLink):
    """Link on which the peer receives. Owner: its session."""

    def __cinit__(self, *, capacity=0, settles=False, annotations=False):
        self.capacity = capacity or DEFAULT_CAPACITY
        self.settles = settles
        self.annotations = annotations
        self.plain = type(self) is ConsumerLink
        self.awaits_decision = True

    def __dealloc__(self):
        if self.place is not NULL:
            self.place[0] = NULL

    def settle_all(self):
        """Send settled deliveries only: the peer's answer to our attach asks for that. routing-semantics.md F-4."""
        self.settles = True

    def wait_for_return(self):
        """Suspend the link when its peer is lost while no other consumer gets its deliveries (docs/internals/links.md,
        "Suspended links")."""
        self.waits = True

    @property
    def is_suspended(self):
        """True while the peer is lost and its deliveries wait for its return."""
        return self.suspended != 0

    def decided(self):
        """Start to write deliveries: the attach was answered."""
        self.live(ON_DECIDED)
        self.starved_since = 0 if self.credit else self.session.connection.scheduler.now
        self.mark_ready()

    # -- copies from producers ----------------------------------------------------------------------------------------

    # routing-semantics.md F-2, 8.9.
    cdef int offer(self, InDelivery* d, Content* c, int overflow) except -1:
        """Take a copy of d: write it into the connection's buffer if it may leave now, else queue it."""
        cdef AnnotationsEdit edit
        cdef bint edited = self.annotations or c.sections.rewrite
        cdef bint settled = c.settled or self.settles or (c.checkpoint and not c.checking)
        cdef size_t size = c.size
        if not can_write_now(self) or not self.credit or not c.whole or is_pending(self):
            return self.enqueue(d, c, overflow)
        if edited:
            edit.at = c.sections.at
            edit.end = c.sections.end
            edit.octets = scratch_room(compose_room(c))
            edit.size = compose(scratch, c, self.annotations)
            size += edit.size - (edit.end - edit.at)
        if size + TRANSFER_ROOM + c.state.size > self.session.connection.remote_max_frame:
            return self.enqueue(d, c, overflow)
        send_whole(self, NULL if settled else d, c.data, c.size, c.format, d.since, &edit if edited else NULL,
                   c.outstanding, &c.state if c.state.size else NULL, OUT_CHECK if c.checking else 0)
        if self.logged:
            self.trace_message(c.data, c.size)
        if d.flags & IN_TRACED:
            trace_copy(self, d, NULL if settled else self.node.sent_last, c)
        return self.accept_copy(d, c) if settled and not c.settled else 0

    cdef int accept_copy(self, InDelivery* d, Content* c) except -1:
        """Accept an unsettled delivery whose copy was sent settled."""
        cdef Slice accepted = plain_state(D_ACCEPTED)
        cdef OutDelivery* o = out_new(&self.node, d, c, True)
        out_update(o, D_ACCEPTED, &accepted, True)
        out_free(o)
        return 0

    cdef void no_credit(self) noexcept:
        cdef Scheduler scheduler = self.session.connection.scheduler
        if not self.starved_since:
            self.starved_since = scheduler.now
            self.slot.blocked_since = scheduler.now_ns

    cdef void count_settled(self, uint8_t kind) noexcept:
        count_finished(self.slot, self.session.connection.scheduler.second)
        count_outcome(self.slot, kind)

    cdef int queue_whole(self, InDelivery* d, Message* m, Cursor* cursor, Tally* outstanding) except -1:
        cdef OutDelivery* o = out_make(&self.node, d, False, True)
        if outstanding is not NULL:
            out_count(o, outstanding)
        o.message = m
        o.cursor = cursor[0]
        queue_append(&self.node, o)
        self.slot.undelivered += 1
        self.mark_ready()
        return 0

    cdef int enqueue(self, InDelivery* d, Content* c, int overflow) except -1:
        cdef Message* m
        cdef OutDelivery* o
        cdef bint hold = False
        cdef bint checkpoint = c.checkpoint and not c.checking and not c.settled
        cdef size_t composed
        cdef uint32_t counted = 0
        # A consumer that is a router has its own bounds: its credit, and those of that router.
        cdef bint routed = overflow >= OVERFLOW_REMOTE and self.plain and (c.settled or checkpoint)
        # A tracked delivery is unsettled at its source, so it is queued in any case, and its producer is slowed.
        if routed and not self.make_routed_room(c.size if c.stored is NULL else c.stored.size, overflow) and c.settled:
            count_presettled_delivery(self.slot, self.session.connection.scheduler.second)
            count_drop(self.slot, DROP_OVERFLOW)
            return 0
        if d.flags & IN_OWN:
            counted = own_message_charge(&self.node, c, OWN_FLOWING if self.credit else OWN_QUEUED)
            if counted == 0:
                count_presettled_delivery(self.slot, self.session.connection.scheduler.second)
                count_drop(self.slot, DROP_OVERFLOW)
                return 0
        if (c.settled or checkpoint) and self.slot.undelivered >= self.capacity:
            hold = self.make_room(overflow)
        m = content_store(c)
        if self.annotations or c.sections.rewrite:
            scratch_room(compose_room(c))
        o = out_new(&self.node, d, c, not c.settled or not c.complete or hold)
        if d.flags & IN_TRACED:
            trace_copy(self, d, o, c)
        o.charge = counted
        if (self.settles or checkpoint) and not c.settled:
            o.flags |= OUT_SETTLED | OUT_REPORT
        if checkpoint:
            o.flags |= OUT_CHECK
        if routed:
            o.flags |= OUT_ROUTED
        o.message = m
        m.refs += 1
        if self.annotations or c.sections.rewrite:
            composed = compose(scratch_room(compose_room(c)), c, self.annotations)
            o.prefix_size = <uint32_t>(c.sections.at + composed)
            if o.prefix_size:
                o.prefix = <uint8_t*>malloc(o.prefix_size)
                if o.prefix is NULL:
                    out_free(o)
                    raise MemoryError("annotations")
                memcpy(o.prefix, c.data, c.sections.at)
                memcpy(o.prefix + c.sections.at, scratch, composed)
            o.taken = c.sections.end
        cursor_open(&o.cursor, m, o.taken)
        if d.flags & IN_MULTI:
            o.flags |= OUT_COUNTED
            d.queued += 1
            copy_queued(m, copy_octets(o))
        queue_append(&self.node, o)
        self.list_droppable(o)
        self.slot.undelivered += 1
        if not c.complete:
            self.slot.busy += 1
        if not c.producer and not c.own and self.exceeds_uncharged_memory(d.flags & IN_MULTI) \
                or self.suspended and not self.may_wait(o):
            return self.decline(o)
        self.mark_ready()
        return 0

    cdef bint may_wait(self, const OutDelivery* o) noexcept:
        """Return True if a copy may wait for the peer of a suspended link to return.

        A copy that has started cannot be sent to another session, and a transaction ends with the connection of its
        coordinator. What waits may take half of the memory of the process.
        """
        cdef ProcessMemory memory = self.session.connection.process
        cdef Slice state
        if o.flags & (OUT_STARTED | OUT_ABORT):
            return False
        state.data = o.message.state
        state.size = o.message.state_size
        return state_kind(&state) != D_TRANSACTIONAL and 2 * memory.content <= memory.content_limit

    cdef bint takes_copies(self) noexcept:
        """Return True if there is room for another copy of an unsettled multicast message from another worker, or if
        few copies wait for this consumer and its settlement."""
        return uncharged <= self.session.connection.process.content_limit // UNCHARGED_SHARE \
            or self.slot.undelivered + self.slot.unsettled < UNCHARGED_LEAST

    cdef bint exceeds_uncharged_memory(self, bint multicast) noexcept:
        """Return True if a delivery from another worker exceeds the memory for such deliveries.

        They belong to no connection of this worker, so queueing them slows nobody. The first that waits for a consumer
        has more room.
        """
        cdef ProcessMemory memory = self.session.connection.process
        if multicast and self.slot.undelivered > UNCHARGED_LEAST and not self.takes_copies():
            return True
        return is_exceeded(memory.content, memory.content_limit) \
            and (self.slot.undelivered > 1 or memory.content >= memory.content_limit + memory.content_limit // 2)

    cdef int decline(self, OutDelivery* o) except -1:
        """Drop or release a copy that has just been queued."""
        if o.flags & OUT_COUNTED and o.source is not NULL:
            o.source.queued -= 1
        if o.flags & OUT_DROPPABLE:
            return self.drop_queued(o, DROP_OVERFLOW)
        if not o.message.complete:
            self.slot.busy -= 1
        return self.release_queued(o)

    cdef bint make_room(self, int overflow) except *:
        """Make room for a presettled delivery in a full queue. True: its producer's credit must be held."""
        cdef OutDelivery* o
        cdef OutDelivery* following
        cdef Connection connection = self.session.connection
        if overflow == OVERFLOW_REMOTE:
            if self.slot.undelivered >= REMOTE_QUEUE * self.capacity:
                self.drop_oldest()
            return False
        if overflow == OVERFLOW_DROP_OLDEST:
            o = self.oldest
            while o is not NULL:
                following = o.newer
                if o is not self.node.queue_first:
                    self.drop_queued(o, DROP_OVERFLOW)
                o = following
            return False
        if overflow & ~OVERFLOW_TRACKED == OVERFLOW_THROTTLE:
            if self.starved_since and connection.scheduler.now - self.starved_since >= STARVED_MS:
                self.drop_oldest()
            elif not self.watched:
                self.watched = True
                connection.scheduler.starved.append(self)
        return True

    cdef bint make_routed_room(self, size_t size, int overflow) except *:
        """Make room for a settled delivery of `size` octets from another router by dropping the oldest copies.

        Nothing holds its producers back at once, and a queue that fills the bound of the shared connection would stop
        all users of that connection. False: the delivery itself must be dropped.
        """
        cdef Connection connection = self.session.connection
        cdef uint64_t share = REMOTE_SHARE if overflow == OVERFLOW_REMOTE else TRACKED_SHARE
        cdef uint64_t most = connection.content_limit // share
        cdef uint64_t most_of_all = connection.process.content_limit // ROUTED_SHARE
        while self.routed_octets + size > most or routed_queued + size > most_of_all:
            if not self.drop_oldest():
                return self.routed_octets == 0 and routed_queued + size <= most_of_all
        return True

    cdef void count_routed(self, OutDelivery* o, int sign) noexcept:
        """Count the octets of a complete copy when it becomes droppable (sign 1), or stops being so (-1)."""
        global routed_queued
        cdef int64_t octets
        if o.flags & OUT_ROUTED and o.message.complete:
            octets = sign * <int64_t>o.message.size
            self.routed_octets += octets
            routed_queued += octets

    cdef bint drop_oldest(self) except *:
        cdef OutDelivery* o
        while self.oldest is not NULL:
            o = self.oldest
            if o.message.complete:
                self.drop_queued(o, DROP_OVERFLOW)
                return True
            self.unlist_droppable(o)        # until its last octet has arrived
        return False

    cdef void list_droppable(self, OutDelivery* o) noexcept:
        """List a queued copy that may be dropped from now on; does nothing unless it is presettled and not started."""
        if not o.flags & OUT_SETTLED or o.flags & (OUT_STARTED | OUT_ABORT | OUT_DROPPABLE) \
                or (o.flags & OUT_REPORT and not o.flags & OUT_CHECK):
            return
        o.flags |= OUT_DROPPABLE
        self.count_routed(o, 1)
        o.newer = NULL
        o.older = self.newest
        if self.newest is not NULL:
            self.newest.newer = o
        else:
            self.oldest = o
        self.newest = o

    cdef void unlist_droppable(self, OutDelivery* o) noexcept:
        """Unlist a copy that may not be dropped any more, or has left the queue."""
        if not o.flags & OUT_DROPPABLE:
            return
        o.flags &= ~OUT_DROPPABLE
        self.count_routed(o, -1)
        if o.older is not NULL:
            o.older.newer = o.newer
        else:
            self.oldest = o.newer
        if o.newer is not NULL:
            o.newer.older = o.older
        else:
            self.newest = o.older

    def check_starved(self):
        """Drop copies above the capacity if the consumer is starved. Called for links in Scheduler.starved.

        Returns the time (ms) of the next check; 0: none.
        """
        cdef uint64_t now = self.session.connection.scheduler.now
        if is_detached(self) or self.slot.undelivered <= self.capacity:
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
        """Drop a queued presettled copy that has not started."""
        cdef Slice released
        self.unqueue(o)
        if not o.message.complete and not o.flags & OUT_ABORT:
            self.slot.busy -= 1
        count_presettled_delivery(self.slot, self.session.connection.scheduler.second)
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
        return DeliveryLink.abandon(self, o)

    cdef int more(self, OutDelivery* o) except -1:
        if o.message is not NULL and (o.message.complete or o.message.aborted) and not o.flags & OUT_ABORT:
            self.slot.busy -= 1
            if o.message.aborted:
                return DeliveryLink.abandon(self, o)    # wherever it is in the queue
            if o.flags & OUT_DROPPABLE:
                self.count_routed(o, 1)    # the message was incomplete before
            else:
                self.list_droppable(o)
        self.mark_ready()
        return 0

    # -- copies to the peer -------------------------------------------------------------------------------------------

    cdef bint may_start(self) noexcept:
        return self.credit != 0

    cdef int pumped(self) except -1:
        if self.drain and (self.node.queue_first is NULL or not self.credit):
            self.finish_drain()
        return 0

    cdef int start(self, OutDelivery* o) except -1:
        self.unlist_droppable(o)
        o.tag_octets = tags.next
        tags.next += 1
        start_copy(self, o)
        use_credit(self)
        if self.logged:
            self.show_first(o)
        if o.flags & OUT_TRACED:
            note_copy_sent(o)
        return 0

    cdef size_t write_head(self, uint8_t* w, OutDelivery* o, const Slice* state, bint first, bint settled, bint more,
                           bint aborted, size_t payload) noexcept:
        return write_transfer(w, self.session.local_channel, self.handle, o.id, <uint8_t*>&o.tag_octets, SHORT_TAG,
                              o.message.format, settled, more, aborted, state.data, state.size, payload)

    cdef int show_first(self, OutDelivery* o) except -1:
        """Log a message of which nothing has been written yet, as far as it is here."""
        cdef bytes octets = b""
        if o.prefix is not NULL:
            octets = o.prefix[:o.prefix_size]
        if o.cursor.chunk is not NULL:
            octets += o.cursor.chunk.data[o.cursor.offset:o.cursor.chunk.size]
        return self.trace_message(octets, len(octets))

    cdef int left_settled(self, OutDelivery* o) except -1:
        cdef Slice accepted
        count_presettled_delivery(self.slot, self.session.connection.scheduler.second)
        if o.flags & OUT_REPORT:
            accepted = plain_state(D_ACCEPTED)
            out_update(o, D_ACCEPTED, &accepted, True)
        else:
            out_left(o)
        out_free(o)
        return 0

    cdef void unqueue(self, OutDelivery* o) noexcept:
        self.unlist_droppable(o)
        leave_queue(self, o)

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
                    self.granted = True
                    unblock(self.slot)
            else:
                self.no_credit()
        self.drain = f.drain
        if self.drain and (self.node.queue_first is NULL or not self.credit) and self.turn.list is not NULL \
                and self.turn.list is not &self.session.ready:
            self.finish_drain()            # the session waits for its window, and the answer needs none
        elif self.node.queue_first is not NULL or self.drain:
            self.mark_ready()
        if f.echo and not f.drain:
            self.send_state(self.credit, False)
        return 0

    cdef int finish_drain(self) except -1:
        """Give the rest of the credit back (2.6.7)."""
        self.drain = False
        self.delivery_count += self.credit
        self.credit = 0
        self.slot.credit = 0
        self.no_credit()
        return self.send_state(self.credit, True)

    cdef int grant(self) except -1:
        return 0

    cdef int delivery_outcome(self, void* entry, uint8_t kind, const Slice* state, bint settled) except -1:
        """Process the consumer's disposition for one copy."""
        cdef OutDelivery* o = <OutDelivery*>entry
        cdef Slice told
        if not settled:
            if o.source is NULL and is_outcome(kind):
                # The producer cannot settle for the consumer any more, which waits for that.
                o.kind = kind
                told = settled_state(kind, state)
                return self.producer_update(o, kind, &told, True)
            return out_update(o, kind, state, False)
        note_settled(self, o, kind)
        if o.flags & OUT_QUEUED:
            # The consumer settled before the last octet: the rest is not sent.
            if not o.message.complete and not o.flags & OUT_ABORT:
                self.slot.busy -= 1
            o.flags |= OUT_ABORT | OUT_SETTLED
            cursor_close(&o.cursor)
            self.mark_ready()
            return out_update(o, kind, state, True)
        out_update(o, kind, state, True)
        return settle_sent(self, o)

    cdef uint32_t deliveries_settled(self, void* entry, uint32_t most, uint8_t kind, const Slice* state) except 0:
        cdef uint32_t settled = settle_copies(self, <OutDelivery*>entry, most, kind, state)
        if settled:
            return settled
        self.delivery_outcome(entry, kind, state, True)
        return 1

    cdef uint32_t mark_stuck(self, uint64_t before) noexcept:
        return self.count_stuck(mark_copies(self.node.queue_first, before) + mark_copies(self.node.sent_first, before))

    cdef int producer_update(self, OutDelivery* o, uint8_t kind, const Slice* state, bint settled) except -1:
        if not o.flags & OUT_STARTED:
            if settled:
                o.flags |= OUT_SETTLED
                o.flags &= ~OUT_REPORT
                self.list_droppable(o)
            elif state.size:
                message_state(o.message, state)    # carried by its first transfer
            return 0
        if settled:
            o.flags &= ~OUT_REPORT         # the producer settled: it needs no report
        return self.update_started(o, state, settled)

    # -- the bound of memory ------------------------------------------------------------------------------------------

    cdef bint holds(self) noexcept:
        return self.node.queue_first is not NULL

    cdef uint32_t progress(self) noexcept:
        return self.delivery_count * LINK_QUANTUM + <uint32_t>self.node.queue_first.taken

    cdef size_t octets_queued(self, Survey* found) noexcept:
        cdef OutDelivery* o = self.node.queue_first
        cdef size_t octets = 0
        while o is not NULL and found.budget:
            found.budget -= 1
            if o.message is not NULL and not o.flags & OUT_ABORT and has_no_incoming_link(o.message.meter,
                                                                                          found.connection):
                octets += o.message.size - o.taken
            o = o.next
        return octets

    cdef int release_waiting(self) except -1:
        """Release everything in the queue, and keep the link."""
        cdef OutDelivery* o = self.node.queue_first
        cdef OutDelivery* following
        cdef Slice modified = plain_state(D_MODIFIED)
        while o is not NULL:
            following = o.next
            if not o.flags & (OUT_STARTED | OUT_ABORT):
                if not o.message.complete:
                    self.slot.busy -= 1
                self.release_queued(o)
            elif not o.flags & (OUT_SETTLED | OUT_ABORT):
                self.delivery_outcome(o, D_MODIFIED, &modified, True)
            o = following
        return 0

    cdef str give_up(self):
        self.close_with(RESOURCE_LIMIT, "memory limit reached: this consumer does not take its messages")
        return "the link was closed"

    # -- end ----------------------------------------------------------------------------------------------------------

    cdef int lost(self, uint8_t event) except -1:
        """End the link: sent copies are settled as modified, queued ones released (routing-semantics.md 9.3, A-19)."""
        if is_detached(self):
            return 0
        if self.waits and event != ON_DETACH and self.context.may_suspend():
            self.suspended = True
            self.credit = 0
        self.live(event)
        self.forget_ready()
        if self.suspended:
            self.release_sent(0xFFFFFFFF)
            self.release_unfit()
        else:
            self.release_deliveries(0xFFFFFFFF)
            self.slot.busy = 0
        return self.session.link_gone(self)

    cdef bint release_some_deliveries(self) except *:
        # Done before the link ends: its slot may belong to another link afterwards.
        if is_detached(self) or self.slot.unsettled + self.slot.undelivered <= SHED_MOST:
            return True
        if self.waits and self.context.may_suspend():
            if self.node.sent_first is NULL:
                return True                # the queue stays
            self.credit = 0
            self.release_sent(SHED_MOST)
            charge(self.session.connection.scheduler, SHED_MOST * SHED_UNITS)
            return self.node.sent_first is NULL
        self.credit = 0                    # no more copies start
        self.release_deliveries(SHED_MOST)
        charge(self.session.connection.scheduler, SHED_MOST * SHED_UNITS)
        return self.node.sent_first is NULL and self.node.queue_first is NULL \
            or self.slot.unsettled + self.slot.undelivered <= SHED_MOST

    cdef uint32_t release_sent(self, uint32_t most) except? 0xFFFFFFFF:
        """End up to `most` sent copies as modified. Return how many more may be ended."""
        cdef OutDelivery* o
        cdef Slice modified = plain_state(D_MODIFIED)
        while self.node.sent_first is not NULL and most:
            most -= 1
            o = self.node.sent_first
            map_take(&self.session.sent, o.id)
            self.count_settled(D_MODIFIED)
            write_outcome_sample(self.slot, o, D_MODIFIED, self.session.connection.scheduler.now_ns)
            out_update(o, D_MODIFIED, &modified, True)
            settle_sent(self, o)
        return most

    cdef int release_deliveries(self, uint32_t most) except -1:
        """End up to `most` copies: sent ones as modified, then queued ones as released."""
        most = self.release_sent(most)
        while self.node.queue_first is not NULL and most:
            most -= 1
            self.release_first(self.node.queue_first)
        return 0

    cdef int release_first(self, OutDelivery* o) except -1:
        """Release a queued copy of a link that has ended."""
        if o.flags & OUT_STARTED:
            map_take(&self.session.sent, o.id)
        return self.release_queued(o)

    # -- a suspended link ---------------------------------------------------------------------------------------------

    cdef int release_unfit(self) except -1:
        """Release those copies in the queue that may not wait."""
        cdef OutDelivery* o = self.node.queue_first
        cdef OutDelivery* following
        while o is not NULL:
            following = o.next
            if not self.may_wait(o):
                if not o.message.complete and not o.flags & OUT_ABORT:
                    self.slot.busy -= 1
                self.release_first(o)
            o = following
        return 0

    def release_suspended(self, uint32_t most):
        """Release up to `most` copies of a suspended link. True: none is left."""
        self.release_deliveries(most)
        if self.node.queue_first is not NULL:
            return False
        self.suspended = False
        self.slot.busy = 0
        return True

    def take_over(self, ConsumerLink old not None):
        """Take the queue of a suspended link. It comes before the deliveries that wait here, unless this link sends
        already.

        Return the number of deliveries taken.
        """
        cdef OutDelivery* own = self.node.queue_first
        cdef OutDelivery* last = self.node.queue_last
        cdef OutDelivery* following
        cdef uint32_t taken = old.slot.undelivered
        cdef bint more = own is not NULL and is_pending(self)
        while old.node.queue_first is not NULL:
            self.take_copy(old, old.node.queue_first)
        while more:
            more = own is not last
            following = own.next
            self.take_copy(self, own)      # behind those of the other link
            own = following
        old.suspended = False
        self.mark_ready()
        return taken

    cdef int take_copy(self, ConsumerLink owner, OutDelivery* o) except -1:
        """Take a queued copy that has not started from a link, which may be this one, as the last of the queue."""
        owner.unlist_droppable(o)
        queue_remove(&owner.node, o)
        owner.slot.undelivered -= 1
        self.slot.undelivered += 1
        if not o.message.complete:
            owner.slot.busy -= 1
            self.slot.busy += 1
        if o.flags & OUT_STUCK:
            owner.slot.stuck -= 1
            self.slot.stuck += 1
        if self.settles and not o.flags & OUT_SETTLED:
            o.flags |= OUT_SETTLED | OUT_REPORT
        o.downstream = &self.node
        queue_append(&self.node, o)
        self.list_droppable(o)
        return 0

    cdef int release_queued(self, OutDelivery* o) except -1:
        """Release a queued copy to its producer, or count it as dropped if it is presettled."""
        cdef Slice released = plain_state(D_RELEASED)
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
        self.unqueue(o)
        out_free(o)
        return 0
