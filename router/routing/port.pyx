"""A port to another worker: deliveries, settlements and credit by two rings in shared memory.

Each delivery that crosses has a key, counted by the sending port. At the sender an OutDelivery stands for all copies
over there; at the receiver an InDelivery stands for the producer over here: what happens to them is what happens
between links of one worker, only that it travels as records:

    TRANSFER   key, targets (link slot and generation), annotations' `to`,
               a delivery state if there is one, first octets                          sender -> receiver of deliveries
    CONTINUE   key, more octets, or the end, or that it was aborted                       "
    UPDATE     key, state or settlement by the producer                                  "
    SETTLED    keys first … first + count - 1: state or settlement by the consumers     receiver -> sender of deliveries
    RETURNED   keys: presettled deliveries that have left their queues                   "
    WINDOW     key, octets of a stream that have left                                    "

Records from R_LINK on belong to routed links, see far_end.pyx.

A record that finds no room waits in a backlog, a delivery in the port's queue; while there is either, connections that
feed this port are paused, so both are bounded by what one read of each connection holds.
"""
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, memset

from router.amqp.buffer cimport buffer_release, buffer_room, buffer_used
from router.amqp.connection cimport PAUSE_RING, Connection, Scheduler
from router.amqp.delivery cimport (
    IN_COMPLETE, IN_MULTI, IN_OWN, IN_PRESETTLED, IN_ROUTED, OUT_ABORT, OUT_QUEUED, OUT_SETTLED, OUT_STARTED,
    OWN_FLOWING, in_free, in_lost, in_more, in_new, in_routed, in_settled_late, in_update, map_free, map_get, map_put,
    map_take, out_free, out_left, out_new, out_update, own_charge, plain_state, queue_append, queue_remove,
    state_kind,
)
from router.amqp.outgoing_link cimport OutgoingLink
from router.amqp.routed_link cimport TOLD_ATTACH, TOLD_LOST, FarEnd, RoutedLink
from router.amqp.session cimport Link
from router.amqp.message cimport (
    STATE_IN_TRANSFER, STREAM_AT, Message, content_store, cursor_close, cursor_open, cursor_read, message_append,
    message_meter, message_new, message_release, message_routed, message_state, meter_new, meter_release, scan,
)
from router.amqp.counters cimport totals
from router.amqp.spec cimport D_MODIFIED, D_RELEASED
from router.ipc.layout cimport DROP_CONSUMER_LOST, DROP_OVERFLOW, DROP_WORKER_LOST, Region
from router.ipc.ring cimport ring_commit, ring_longest, ring_open, ring_peek, ring_release, ring_reserve
from router.ipc.signal cimport clear_producer_waits, producer_is_waiting, set_producer_waits, wake, worker_sleeps

from router.amqp.errors import RESOURCE_LIMIT, FatalFault, LocalError

cdef enum:
    R_TRANSFER = 1
    R_CONTINUE = 2
    R_UPDATE = 3
    R_SETTLED = 4
    R_RETURNED = 5
    R_WINDOW = 6
    # flags of a record
    F_PRESETTLED = 1
    F_MORE = 2
    F_ABORTED = 4
    F_SETTLED = 8              # R_SETTLED, R_UPDATE: settled, not only a state
    F_STATE = 8                # R_TRANSFER: octets of a delivery state, and their number, are behind `to`
    F_MULTI = 16
    F_HONOUR = 32              # router annotations of the message count
    F_OWN = 64                 # the router itself sent it
    K_CHECKPOINT = 128         # beside the overflow policy of a transfer: Content.checkpoint
    F_AT_HAND = 128            # all of it is here, and it is no stream: only what follows this record is to come
    STATE_SIZE = 4             # octets of the size of a state in a transfer

# Head of every record.
cdef struct Head:
    uint8_t type
    uint8_t flags
    uint8_t kind               # of a delivery state, or overflow policy of a transfer
    uint8_t phase
    uint32_t count             # keys, or targets
    uint64_t key
    uint32_t extra             # octets behind the targets: `to`; or of an encoded state
    uint32_t format            # message-format; WINDOW: octets


cdef void add_state(uint8_t* w, size_t at, const Slice* state) noexcept nogil:
    """Put a delivery state behind the first `at` octets of the head of a transfer."""
    cdef uint32_t size = <uint32_t>state.size
    (<Head*>w).flags |= F_STATE
    memcpy(w + at, &size, STATE_SIZE)
    memcpy(w + at + STATE_SIZE, state.data, size)


cdef bint has_copy(const InDelivery* d, Party downstream) noexcept:
    cdef const OutDelivery* o = d.outs
    while o is not NULL:
        if o.downstream == <void*>downstream:
            return True
        o = o.sibling
    return False


cdef class Inflow:
    """A stream being received from the peer: what has left us is reported, so that more may come."""
    def __dealloc__(self):
        if self.meter is not NULL:
            self.meter.owner = NULL
            meter_release(self.meter)


cdef void inflow_freed(void* owner) noexcept:
    cdef Inflow inflow = <Inflow>owner
    if not inflow.due:
        inflow.due = True
        inflow.port.windows.append(inflow)
        inflow.port.mark()


cdef class WorkerPort(Party):
    """One other worker. Owner: the worker's table."""

    def __cinit__(self, Region region not None, int worker, int peer, int peer_eventfd, dict links not None,
                  Scheduler scheduler not None):
        self.region = region
        self.worker = worker
        self.peer = peer
        self.peer_eventfd = peer_eventfd
        self.links = links
        self.scheduler = scheduler
        self.peer_slot = region.worker_slot(peer)
        self.inflows = {}
        self.waiting = []
        self.windows = []
        self.routed = {}
        self.leaving = {}
        self.due = []

    def __dealloc__(self):
        free(self.targets)
        map_free(&self.sent)
        map_free(&self.received)
        buffer_release(&self.backlog)

    def up(self, generation):
        """The peer is live, in this generation, with empty rings between us."""
        self.generation = generation
        ring_open(&self.outbound, self.region.ring(self.worker, self.peer), self.region.ring_octets)
        ring_open(&self.inbound, self.region.ring(self.peer, self.worker), self.region.ring_octets)
        self.waits = self.signal = False
        self.alive = True

    def down(self):
        """The peer died. What it said before counts; what it had from us may have been delivered: modified."""
        cdef OutDelivery* o
        cdef InDelivery* d
        cdef uint32_t i
        cdef Slice state = plain_state(D_MODIFIED)
        if not self.alive:
            return
        while self.receive():
            pass
        self.alive = False
        for i in range(self.sent.size):
            if self.sent.values[i] is NULL:
                continue
            o = <OutDelivery*>self.sent.values[i]
            if o.flags & OUT_QUEUED:
                queue_remove(self, o)
            if o.flags & OUT_SETTLED:
                if not o.flags & OUT_ABORT:
                    totals.dropped_presettled += 1
                    totals.dropped[DROP_WORKER_LOST] += 1
                out_left(o)
            else:
                out_update(o, D_MODIFIED, &state, True)
            out_free(o)
        map_free(&self.sent)
        while self.in_first is not NULL:
            d = self.in_first
            in_lost(d)
        map_free(&self.received)
        self.inflows.clear()
        self.windows.clear()
        self.pending_count = 0
        buffer_release(&self.backlog)
        self.due.clear()
        for link in list(self.routed.values()):
            end = (<RoutedLink>link).far
            if end is not None and (<FarEnd>end).through(self):
                (<FarEnd>end).port_lost()
        for end in list(self.leaving.values()):
            (<FarEnd>end).port_lost()
        self.release_waiting()

    cdef void mark(self) noexcept:
        """Something is to be done for this port at the end of this wake."""
        self.dirty = True

    cdef int release_waiting(self) except -1:
        cdef Connection connection
        if self.waiting:
            for connection in self.waiting:
                connection.resume(PAUSE_RING)
            self.waiting.clear()
        return 0

    # -- towards the peer ---------------------------------------------------------------------------------------------

    cdef uint8_t* reserve(self, uint32_t size) noexcept:
        """Room for a record; NULL: there is none, and the peer is to signal when it has made some."""
        cdef uint8_t* room = ring_reserve(&self.outbound, size)
        if room is NULL:
            self.waits = True
            set_producer_waits(self.outbound.header)
            room = ring_reserve(&self.outbound, size)
        if room is not NULL and self.waits:
            # What still waits asks again in `flush`, which ends each wake.
            self.waits = False
            clear_producer_waits(self.outbound.header)
        return room

    cdef int give(self, const uint8_t* a, size_t a_size, const uint8_t* b, size_t b_size) except -1:
        """One record of two parts into the ring. 0: there is no room."""
        cdef uint8_t* w = self.reserve(<uint32_t>(a_size + b_size))
        if w is NULL:
            return 0
        memcpy(w, a, a_size)
        if b_size:
            memcpy(w + a_size, b, b_size)
        ring_commit(&self.outbound, <uint32_t>(a_size + b_size))
        self.signal = True
        self.mark()
        return 1

    cdef int post(self, const uint8_t* a, size_t a_size, const uint8_t* b, size_t b_size) except -1:
        """One small record, now or (in order) when there is room. Raises LocalError when there never is."""
        cdef uint8_t* w
        cdef uint32_t size = <uint32_t>(a_size + b_size)
        if not self.alive:
            return 0
        self.check_fits(a_size + b_size)
        if not buffer_used(&self.backlog) and self.give(a, a_size, b, b_size):
            return 0
        w = buffer_room(&self.backlog, 4 + a_size + b_size)
        memcpy(w, &size, 4)                # records are of any length: nothing here is aligned
        memcpy(w + 4, a, a_size)
        if b_size:
            memcpy(w + 4 + a_size, b, b_size)
        self.backlog.end += 4 + a_size + b_size
        self.mark()
        return 0

    cdef int check_fits(self, size_t size) except -1:
        """A record of this size can be written some day. One that cannot would be the first in line for ever."""
        if size > ring_longest(&self.outbound):
            raise LocalError("link", RESOURCE_LIMIT, f"a record of {size} octets for another worker")
        return 0

    cdef Slice fitting(self, uint8_t kind, const Slice* state) noexcept:
        """The state, or the plain one of its kind when it is too long for a record."""
        if sizeof(Head) + state.size > ring_longest(&self.outbound):
            return plain_state(kind)
        return state[0]

    cdef int flush_backlog(self) except -1:
        """1: nothing waits any more."""
        cdef uint8_t* p
        cdef uint32_t size
        while buffer_used(&self.backlog):
            p = self.backlog.data + self.backlog.start
            memcpy(&size, p, 4)
            if not self.give(p + 4, size, NULL, 0):
                return 0
            self.backlog.start += 4 + size
        buffer_release(&self.backlog)
        return 1

    cdef int add_target(self, uint32_t slot_index, uint32_t generation) except -1:
        """A consumer of the peer that the next `offer` is for."""
        cdef uint32_t* larger
        if self.target_count == self.target_room:
            larger = <uint32_t*>realloc(self.targets, (2 * self.target_room + 8) * sizeof(Target))
            if larger is NULL:
                raise MemoryError("targets of a delivery")
            self.targets = larger
            self.target_room = 2 * self.target_room + 8
        self.targets[2 * self.target_count] = slot_index
        self.targets[2 * self.target_count + 1] = generation
        self.target_count += 1
        return 0

    cdef int offer(self, InDelivery* d, Content* c, int overflow) except -1:
        """Give d to the targets collected by add_target."""
        cdef Head* head
        cdef Message* m
        cdef uint8_t* w
        cdef size_t targets = self.target_count * sizeof(Target)
        cdef size_t size = sizeof(Head) + targets + c.to.size + (STATE_SIZE + c.state.size if c.state.size else 0)
        cdef uint32_t charge = own_charge(self, c, OWN_FLOWING) if d.flags & IN_OWN else 0
        cdef bint dropped = d.flags & IN_OWN and charge == 0
        cdef OutDelivery* o
        if size + c.sections.end > ring_longest(&self.outbound):
            self.target_count = 0
            self.check_fits(size + c.sections.end)
        o = out_new(self, d, c, not dropped)
        o.charge = charge
        o.tag_octets = self.next_key
        map_put(&self.sent, self.next_key, o)
        w = <uint8_t*>malloc(size)
        if w is NULL:
            raise MemoryError("targets of a delivery")
        head = <Head*>w
        head.type = R_TRANSFER
        head.flags = (F_PRESETTLED if c.settled else 0) | (F_MULTI if self.target_count > 1 else 0) \
            | (F_HONOUR if c.honour else 0) | (F_OWN if d.flags & IN_OWN else 0) \
            | (F_AT_HAND if c.complete and (c.stored.size if c.stored is not NULL else c.size) < STREAM_AT else 0)
        head.kind = <uint8_t>overflow | (K_CHECKPOINT if c.checkpoint else 0)
        head.phase = <uint8_t>c.phase
        head.count = self.target_count
        head.key = self.next_key
        head.extra = <uint32_t>c.to.size
        head.format = c.format
        memcpy(w + sizeof(Head), self.targets, targets)
        if c.to.size:
            memcpy(w + sizeof(Head) + targets, c.to.data, c.to.size)
        if c.state.size:
            add_state(w, sizeof(Head) + targets + c.to.size, &c.state)
        self.next_key += 1
        self.target_count = 0
        if dropped:
            # The peer only learns that the deliveries its consumers were chosen for are through.
            totals.dropped_presettled += head.count
            totals.dropped[DROP_OVERFLOW] += head.count
            o.flags |= OUT_ABORT
            return self.queue_first_part(o, message_new(c.format), w, size, 0)
        if c.whole and c.size <= RECORD_OCTETS and self.queue_first is NULL and not buffer_used(&self.backlog) \
                and self.give(w, size, c.data, c.size):
            o.flags |= OUT_STARTED
            free(w)
            return 0
        m = content_store(c)
        m.refs += 1
        return self.queue_first_part(o, m, w, size, <uint32_t>c.sections.end)

    cdef int queue_first_part(self, OutDelivery* o, Message* m, uint8_t* head, size_t size,
                              uint32_t sections) except -1:
        """Queue a delivery with the head of its first record (both references are the copy's from now on)."""
        o.message = m
        o.prefix = head
        o.prefix_size = <uint32_t>size
        o.prefix_at = sections
        cursor_open(&o.cursor, m, 0)
        queue_append(self, o)
        self.mark()
        return 0

    def throttle(self, Connection connection not None):
        """Called at the end of a wake for a connection that was read in it: it waits while the ring has no room."""
        if self.alive and self.stuck() and not connection.paused & PAUSE_RING:
            connection.pause(PAUSE_RING)
            self.waiting.append(connection)

    cdef bint stuck(self) noexcept:
        """Something waits for room in the ring; what waits for its own octets or window does not count."""
        cdef OutDelivery* o = self.queue_first
        if buffer_used(&self.backlog):
            return True
        while o is not NULL:
            if o.prefix is not NULL:
                return True
            o = o.next
        return False

    cdef int pump(self) except -1:
        """Put what waits into the ring as far as there is room, one part of each queued delivery at a time."""
        cdef OutDelivery* o
        cdef OutDelivery* following
        cdef int moved = 1
        cdef int result
        if not self.flush_backlog():
            return 0
        while moved:
            moved = 0
            o = self.queue_first
            while o is not NULL:
                following = o.next
                result = self.write_part(o)
                if result < 0:
                    return 0
                moved += result
                o = following
        return 1

    cdef int write_part(self, OutDelivery* o) except? -2:
        """1: a record was written; 0: it waits for octets or for its window; -1: the ring is full."""
        cdef Head head
        cdef uint8_t* room
        cdef size_t part
        cdef size_t left = <size_t>(o.message.size - o.taken)
        cdef size_t head_size = o.prefix_size if o.prefix is not NULL else sizeof(Head)
        cdef bint aborted = o.flags & OUT_ABORT or o.message.aborted
        cdef bint last
        # The first record has all sections that the other worker looks at.
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
        room = self.reserve(<uint32_t>(head_size + part))
        if room is NULL:
            return -1
        if o.prefix is not NULL:
            memcpy(room, o.prefix, head_size)
            free(o.prefix)
            o.prefix = NULL
            o.prefix_size = 0
            o.flags |= OUT_STARTED
        else:
            memset(&head, 0, sizeof(Head))
            head.type = R_CONTINUE
            head.key = o.tag_octets
            memcpy(room, &head, sizeof(Head))
        if o.flags & OUT_SETTLED:
            (<Head*>room).flags |= F_PRESETTLED
        if not last:
            (<Head*>room).flags |= F_MORE
        if aborted:
            (<Head*>room).flags |= F_ABORTED
        if part:
            cursor_read(&o.cursor, room + head_size, part)
            o.taken += part
        ring_commit(&self.outbound, <uint32_t>(head_size + part))
        self.signal = True
        if aborted:
            self.forget(o)
        elif last:
            queue_remove(self, o)
            cursor_close(&o.cursor)
            message_release(o.message)
            o.message = NULL
        return 1

    cdef int forget(self, OutDelivery* o) except -1:
        map_take(&self.sent, o.tag_octets)
        if o.flags & OUT_QUEUED:
            queue_remove(self, o)
        out_free(o)
        return 0

    cdef int more(self, OutDelivery* o) except -1:
        self.mark()
        return 0

    cdef int abandon(self, OutDelivery* o) except -1:
        o.flags |= OUT_ABORT
        self.mark()
        return 0

    cdef int producer_update(self, OutDelivery* o, uint8_t kind, const Slice* state, bint settled) except -1:
        cdef Head head
        cdef Slice said = self.fitting(kind, state)
        if settled:
            o.flags |= OUT_SETTLED
        if not o.flags & OUT_STARTED or (settled and o.flags & OUT_QUEUED):
            # Its next record says so.
            return self.keep_state(o, state) if state.size and not settled else 0
        memset(&head, 0, sizeof(Head))
        head.type = R_UPDATE
        head.flags = F_SETTLED if settled else 0
        head.kind = kind
        head.key = o.tag_octets
        head.extra = <uint32_t>said.size
        self.post(<uint8_t*>&head, sizeof(Head), said.data, said.size)
        return self.forget(o) if settled else 0

    cdef int keep_state(self, OutDelivery* o, const Slice* state) except -1:
        """The first record of a delivery that waits says this state, too."""
        cdef const Head* head = <const Head*>o.prefix
        cdef size_t at = sizeof(Head) + head.count * sizeof(Target) + head.extra
        cdef Slice said = state[0] if state.size <= STATE_IN_TRANSFER else plain_state(state_kind(state))
        cdef uint8_t* w
        if said.size == 0:
            return 0
        w = <uint8_t*>malloc(at + STATE_SIZE + said.size)
        if w is NULL:
            raise MemoryError("delivery state")
        memcpy(w, o.prefix, at)
        add_state(w, at, &said)
        free(o.prefix)
        o.prefix = w
        o.prefix_size = <uint32_t>(at + STATE_SIZE + said.size)
        return 0

    # -- from the peer ------------------------------------------------------------------------------------------------

    cdef int receive(self) except -1:
        """Take records from the peer's ring; returns how many, at most RECORDS_A_TURN."""
        cdef int taken = 0
        if not self.alive:
            return 0
        while True:
            try:
                self.take_records(&taken)
                break
            except Exception as fault:
                if not self.record_failed(fault):
                    self.progress = 0
                    ring_release(&self.inbound)
                    taken += 1
        if taken and producer_is_waiting(self.inbound.header):
            wake(self.peer_eventfd)
        return taken

    cdef int take_records(self, int* taken) except -1:
        cdef uint32_t size = 0
        cdef uint8_t* p
        while taken[0] < RECORDS_A_TURN:
            p = ring_peek(&self.inbound, &size)
            if p is NULL:
                break
            self.on_record(p, size)
            self.progress = 0
            ring_release(&self.inbound)
            taken[0] += 1
        return 0

    cdef bint record_failed(self, object fault) except *:
        """The net below each record: what was raised ends the link or connection that it is about, and nothing else.

        True: the record is to be offered again, from `progress` on: it is about others, too. Raises FatalFault where
        nobody is to be found, or something would be left behind.
        """
        cdef uint32_t size = 0
        cdef uint8_t* p = ring_peek(&self.inbound, &size)
        cdef uint8_t code = p[0]
        try:
            if code == R_TRANSFER:
                return self.transfer_failed(p, fault)
            if code == R_SETTLED or code == R_RETURNED:
                return self.settled_failed(p, fault)
            if code == R_CONTINUE or code == R_UPDATE:
                return self.content_failed(p, fault)
            if code >= R_LINK:
                return self.link_record_failed(p, fault)
            raise fault
        except Exception as error:
            raise FatalFault(
                f"a record (type {code}) of worker {self.peer} could not be taken: {type(error).__name__}: {error}"
            ) from fault

    cdef bint transfer_failed(self, const uint8_t* p, object fault) except *:
        """The consumer whose turn it was ends; the others get their copies."""
        cdef const Head* head = <const Head*>p
        cdef const Target* target = <const Target*>(p + sizeof(Head)) + self.progress
        cdef InDelivery* d = <InDelivery*>map_get(&self.received, head.key)
        cdef OutgoingLink link
        if d is NULL or self.progress >= head.count:
            raise fault
        link = self.links.get(target.slot)
        if link is None or link.slot.generation != target.generation:
            raise fault
        self.region.link_taken(link.slot)[self.peer] += 1
        if not has_copy(d, link):
            self.no_target(d, &self.content)
        link.session.connection.end_by(fault)
        if has_copy(d, link):
            raise fault
        self.progress += 1
        return True

    cdef bint settled_failed(self, const uint8_t* p, object fault) except *:
        """The producer of the delivery whose turn it was ends."""
        cdef const Head* head = <const Head*>p
        cdef uint64_t key = head.key + self.progress
        if self.concerned is NULL or not isinstance(<object>self.concerned, Link):
            raise fault
        (<Link>self.concerned).session.connection.end_by(fault)
        if map_get(&self.sent, key) is NULL:
            out_free(self.failing)         # it was taken, and nobody else knows it
        self.progress += 1
        return self.progress < head.count

    cdef bint content_failed(self, const uint8_t* p, object fault) except *:
        """All consumers of the delivery end."""
        cdef const Head* head = <const Head*>p
        cdef InDelivery* d = <InDelivery*>map_get(&self.received, head.key)
        cdef OutDelivery* o
        cdef Slice state = plain_state(D_MODIFIED)
        cdef list links = []
        if d is NULL:
            raise fault
        o = d.outs
        while o is not NULL:
            links.append(<object>o.downstream)
            o = o.sibling
        if not links and p[0] == R_UPDATE and self.concerned is not NULL:
            links.append(<object>self.concerned)   # the delivery was cut off its copies already
        if not links:
            raise fault
        for link in links:
            (<Link?>link).session.connection.end_by(fault)
        d = <InDelivery*>map_get(&self.received, head.key)
        if d is NULL:
            return False
        if d.outs is not NULL:
            raise fault
        if d.flags & IN_PRESETTLED:
            self.returned(d)
        else:
            self.outcome(d, D_MODIFIED, &state, True)
        return False

    cdef bint link_record_failed(self, const uint8_t* p, object fault) except *:
        """The pair of routed links ends."""
        cdef const LinkHead* head = <const LinkHead*>p
        cdef RoutedLink link = self.routed.get(head.slot)
        if link is None or link.slot.generation != head.generation:
            raise fault
        link.end_by(fault)
        return False

    cdef int on_record(self, const uint8_t* p, uint32_t size) except -1:
        cdef uint8_t code = p[0]
        if code == R_TRANSFER:
            return self.on_transfer(p, size)
        if code == R_SETTLED or code == R_RETURNED:
            return self.on_settled(p, size)
        if code == R_CONTINUE:
            return self.on_continue(p, size)
        if code == R_UPDATE:
            return self.on_update(p, size)
        if code >= R_LINK:
            return self.on_link_record(p, size)
        return self.on_window(p)

    cdef int on_transfer(self, const uint8_t* p, uint32_t size) except -1:
        cdef const Head* head = <const Head*>p
        cdef const Target* target = <const Target*>(p + sizeof(Head))
        cdef Content* c = &self.content
        cdef InDelivery* d
        if head.flags & F_ABORTED:
            # Its producer gave up before it could leave: the peer's scores only learn that it is through.
            self.take(target, head.count)
            return 0
        if self.progress:
            d = <InDelivery*>map_get(&self.received, head.key)
        else:
            d = self.read_transfer(p, size, c)
        self.spread(d, c, target, head.count, head.kind & ~K_CHECKPOINT)
        if c.stored is not NULL:
            message_routed(c.stored)
            if not head.flags & F_MORE:
                message_release(c.stored)
        if d.flags & IN_PRESETTLED:
            d.flags |= IN_ROUTED
            if not head.flags & F_MORE and d.live == 0:
                return self.returned(d)
            return 0
        return in_routed(d)

    cdef InDelivery* read_transfer(self, const uint8_t* p, uint32_t size, Content* c) except NULL:
        """The delivery that a record begins, and its content."""
        cdef const Head* head = <const Head*>p
        cdef Message* m
        cdef Inflow inflow
        cdef size_t at = sizeof(Head) + head.count * sizeof(Target)
        cdef bint more = head.flags & F_MORE
        cdef uint32_t state_size = 0
        cdef InDelivery* d
        d = in_new(self, head.key, (<Scheduler>self.scheduler).now_ns,
                   (IN_PRESETTLED if head.flags & F_PRESETTLED else 0)
                   | (IN_MULTI if head.flags & F_MULTI else 0) | (IN_OWN if head.flags & F_OWN else 0)
                   | (0 if more else IN_COMPLETE))
        map_put(&self.received, head.key, d)
        memset(c, 0, sizeof(Content))
        c.to.data = p + at if head.extra else NULL
        c.to.size = head.extra
        c.phase = head.phase
        c.format = head.format
        c.settled = head.flags & F_PRESETTLED
        at += head.extra
        if head.flags & F_STATE:
            memcpy(&state_size, p + at, STATE_SIZE)
            c.state.data = p + at + STATE_SIZE
            c.state.size = state_size
            at += STATE_SIZE + state_size
        c.data = p + at
        c.size = size - at
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
        c.at_hand = head.flags & F_AT_HAND
        # The sending worker has checked the sections.
        scan(c.data, c.size, False, c.honour, &c.sections)
        c.checkpoint = head.kind & K_CHECKPOINT
        return d

    cdef void take(self, const Target* target, uint32_t count) noexcept:
        """Count deliveries to these consumers as taken from the ring."""
        cdef OutgoingLink link
        cdef uint32_t i
        for i in range(count):
            link = self.links.get(target[i].slot)
            if link is not None and link.slot.generation == target[i].generation:
                self.region.link_taken(link.slot)[self.peer] += 1

    cdef int spread(self, InDelivery* d, Content* c, const Target* target, uint32_t count, int overflow) except -1:
        """Copies to those targets that are still there, from `progress` on; the others released them."""
        cdef OutgoingLink link
        cdef uint32_t i
        while self.progress < count:
            i = self.progress
            link = self.links.get(target[i].slot)
            if link is not None and link.slot.generation == target[i].generation and not link.detached:
                link.offer(d, c, overflow)
                self.region.link_taken(link.slot)[self.peer] += 1
            else:
                self.no_target(d, c)
            self.progress = i + 1
        return 0

    cdef int no_target(self, InDelivery* d, Content* c) except -1:
        """A copy that nobody gets."""
        cdef Slice state = plain_state(D_RELEASED)
        cdef OutDelivery* o
        if c.settled:
            totals.dropped_presettled += 1
            totals.dropped[DROP_CONSUMER_LOST] += 1
            return 0
        o = out_new(self, d, c, True)
        out_update(o, D_RELEASED, &state, True)
        out_free(o)
        return 0

    cdef int on_continue(self, const uint8_t* p, uint32_t size) except -1:
        cdef const Head* head = <const Head*>p
        cdef InDelivery* d = <InDelivery*>map_get(&self.received, head.key)
        cdef Inflow inflow = self.inflows.get(head.key)
        cdef Message* m
        cdef bint last = not head.flags & F_MORE
        if inflow is not None:
            inflow.received += size - sizeof(Head)
            if last:
                del self.inflows[head.key]
        if d is NULL:
            return 0
        m = d.message
        if head.flags & F_ABORTED:
            map_take(&self.received, head.key)
            return in_lost(d)
        if head.flags & F_PRESETTLED and not d.flags & IN_PRESETTLED:
            in_settled_late(d)
        message_append(m, p + sizeof(Head), size - sizeof(Head))
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

    cdef int on_settled(self, const uint8_t* p, uint32_t size) except -1:
        """The consumers over there, about what we sent."""
        cdef const Head* head = <const Head*>p
        cdef OutDelivery* o
        cdef Slice state
        cdef uint32_t i
        if head.extra:
            state.data = p + sizeof(Head)
            state.size = head.extra
        else:
            state = plain_state(head.kind)
        for i in range(self.progress, head.count):
            o = <OutDelivery*>map_get(&self.sent, head.key + i)
            if o is NULL:
                continue
            # For record_failed.
            self.progress = i
            self.failing = o
            self.concerned = o.peer.upstream if o.peer is not NULL else NULL
            if head.type == R_SETTLED and not head.flags & F_SETTLED:
                out_update(o, head.kind, &state, False)
                continue
            map_take(&self.sent, head.key + i)
            if o.flags & OUT_QUEUED:
                queue_remove(self, o)
            if head.type == R_RETURNED:
                out_left(o)
            else:
                out_update(o, head.kind, &state, True)
            out_free(o)
        return 0

    cdef int on_update(self, const uint8_t* p, uint32_t size) except -1:
        """The producer over there."""
        cdef const Head* head = <const Head*>p
        cdef InDelivery* d = <InDelivery*>map_get(&self.received, head.key)
        cdef Slice state
        if d is NULL:
            return 0
        state.data = p + sizeof(Head) if head.extra else NULL
        state.size = head.extra
        self.concerned = d.outs.downstream if d.outs is not NULL else NULL
        in_update(d, head.kind, &state, head.flags & F_SETTLED)
        if head.flags & F_SETTLED:
            return self.finish(d)
        return 0

    cdef int on_window(self, const uint8_t* p) except -1:
        cdef const Head* head = <const Head*>p
        cdef OutDelivery* o = <OutDelivery*>map_get(&self.sent, head.key)
        if o is not NULL:
            o.acknowledged += head.format
            self.mark()
        return 0

    cdef int on_link_record(self, const uint8_t* p, uint32_t size) except -1:
        """For one end of a routed link, if it is still the one that the peer means."""
        cdef const LinkHead* head = <const LinkHead*>p
        cdef RoutedLink link = self.routed.get(head.slot)
        cdef LinkHead answer
        cdef FarEnd end
        if link is not None and link.slot.generation == head.generation and link.far is not None:
            end = link.far                 # the link may end, and let go of it
            return end.on_record(p, size)
        end = self.leaving.get(<uint64_t>head.slot << 32 | head.generation)
        if end is not None:
            return end.on_record(p, size)
        if head.type == R_LINK_TOLD and head.kind == TOLD_ATTACH:
            # It was gone before anything was known of the other end.
            memset(&answer, 0, sizeof(LinkHead))
            answer.type = R_LINK_TOLD
            answer.kind = TOLD_LOST
            answer.slot = <uint32_t>(head.key >> 32)
            answer.generation = <uint32_t>head.key
            return self.post(<uint8_t*>&answer, sizeof(LinkHead), NULL, 0)
        return 0

    cdef int finish(self, InDelivery* d) except -1:
        map_take(&self.received, d.key)
        if self.inflows:
            self.inflows.pop(d.key, None)
        in_free(d)
        return 0

    # -- what our consumers do with the peer's deliveries -------------------------------------------------------------

    cdef int report(self, uint8_t kind_of_record, uint64_t key, uint8_t kind, const Slice* state) except -1:
        """A settlement (or return); consecutive equal ones become one record."""
        cdef Head head
        # As its kind alone only what the other side would encode the same way.
        if kind_of_record == R_SETTLED and (state.size > 4 or state.size != plain_state(kind).size):
            self.flush_pending()
            memset(&head, 0, sizeof(Head))
            head.type = R_SETTLED
            head.flags = F_SETTLED
            head.kind = kind
            head.count = 1
            head.key = key
            head.extra = <uint32_t>state.size
            return self.post(<uint8_t*>&head, sizeof(Head), state.data, state.size)
        if self.pending_count and self.pending_type == kind_of_record and self.pending_kind == kind \
                and key == self.pending_first + self.pending_count:
            self.pending_count += 1
            return 0
        self.flush_pending()
        self.pending_type = kind_of_record
        self.pending_kind = kind
        self.pending_first = key
        self.pending_count = 1
        self.mark()
        return 0

    cdef int flush_pending(self) except -1:
        cdef Head head
        if not self.pending_count:
            return 0
        memset(&head, 0, sizeof(Head))
        head.type = self.pending_type
        head.flags = F_SETTLED
        head.kind = self.pending_kind
        head.count = self.pending_count
        head.key = self.pending_first
        self.pending_count = 0
        return self.post(<uint8_t*>&head, sizeof(Head), NULL, 0)

    cdef int outcome(self, InDelivery* d, uint8_t kind, const Slice* state, bint settled) except -1:
        cdef Head head
        cdef Slice said = self.fitting(kind, state)
        if settled:
            self.report(R_SETTLED, d.key, kind, &said)
            return self.finish(d)
        self.flush_pending()
        memset(&head, 0, sizeof(Head))
        head.type = R_SETTLED
        head.kind = kind
        head.count = 1
        head.key = d.key
        head.extra = <uint32_t>said.size
        return self.post(<uint8_t*>&head, sizeof(Head), said.data, said.size)

    cdef int returned(self, InDelivery* d) except -1:
        cdef Slice none
        none.data = NULL
        none.size = 0
        self.report(R_RETURNED, d.key, 0, &none)
        return self.finish(d)

    # -- end of a wake ------------------------------------------------------------------------------------------------

    cdef int flush(self) except -1:
        """Everything that is to go to the peer in this wake; wakes it when it sleeps."""
        cdef Inflow inflow
        cdef list windows
        cdef list due
        cdef FarEnd end
        if not self.alive:
            self.dirty = False
            return 0
        self.flush_pending()
        if self.windows:
            windows = self.windows
            self.windows = []
            for inflow in windows:
                inflow.due = False
                self.report_window(inflow)
        if self.due:
            due = self.due
            self.due = []
            for end in due:
                try:
                    end.flush()
                except Exception as fault:
                    self.end_failed(end, fault)
        if self.queue_first is not NULL or buffer_used(&self.backlog):
            self.pump()
        if self.waiting and not self.stuck():
            self.release_waiting()
        if self.signal:
            self.signal = False
            if worker_sleeps(self.peer_slot):
                wake(self.peer_eventfd)
        self.dirty = self.pending_count > 0 or bool(self.windows) or bool(self.due)  # what came of it meanwhile
        return 0

    cdef int end_failed(self, FarEnd end, object fault) except -1:
        """The net below what an end of a routed link says at the end of a wake."""
        link = end.link                    # it lets go of its end
        if link is None:
            raise fault
        return (<RoutedLink>link).end_by(fault)

    cdef int report_window(self, Inflow inflow) except -1:
        cdef Head head
        cdef uint64_t left = inflow.received - inflow.meter.held if inflow.received > inflow.meter.held else 0
        if left <= inflow.reported:
            return 0
        memset(&head, 0, sizeof(Head))
        head.type = R_WINDOW
        head.key = inflow.key
        head.format = <uint32_t>(left - inflow.reported)
        inflow.reported = left
        return self.post(<uint8_t*>&head, sizeof(Head), NULL, 0)

    def counts(self):
        """(deliveries given and not settled, deliveries taken and not settled, octets in the backlog), for tests."""
        return self.sent.used, self.received.used, buffer_used(&self.backlog)
