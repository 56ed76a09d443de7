"""Taps: copies of the messages of some addresses for another address (docs/user/tap.md, decision 0087).

A copy is a delivery of its own, with the tap as upstream: unsettled, whatever its original is, so its outcome is known.
Copies that no delivery waits for are bounded in number and octets, in each worker. A message beyond these bounds has no
copy. So a consumer of copies that takes none slows nobody.

The delivery of a required tap has a leg, with the tap as downstream. The leg is settled without a state once the copy
is accepted. The delivery then has the outcome of its own consumers, as a multicast delivery has. If the copy ends
otherwise, the delivery is modified at once.

Copies of messages that are routed before they are complete: arriving_copy.pyx.
"""
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy, memset

from sluice.router.amqp.buffer cimport write32
from sluice.router.amqp.codec cimport Slice, open_variable, skip_value
from sluice.router.amqp.meter cimport Meter, meter_new, meter_release
from sluice.router.amqp.spec cimport (
    D_ACCEPTED, D_MODIFIED, D_REJECTED, S_MESSAGE_ANNOTATIONS, T_MAP32, T_SMALLULONG, T_SYM8,
)
from sluice.router.amqp.states cimport is_outcome, plain_state
from sluice.router.delivery.delivery cimport (
    IN_COMPLETE, IN_FINAL, IN_MULTI, IN_ROUTED, InDelivery, OutDelivery, in_abandon, in_free, in_new, out_detach,
    out_free, out_make,
)
from sluice.router.delivery.outcome cimport in_keep_state, in_routed, in_update, out_left, out_update
from sluice.router.delivery.settled_state cimport settled_state
from sluice.router.message.annotation_filter cimport (
    STEPS_A_UNIT, AnnotationFilter, filter_octets, finish_filter,
)
from sluice.router.message.content cimport Chunk, Content, message_meter, message_release, message_routed
from sluice.router.message.sections cimport Sections, is_router_key, scan
from sluice.router.ring.atomics cimport RELAXED, load64
from sluice.router.table.forward cimport forward

cdef enum:
    ADDRESS_KEY = 20           # octets of "x-opt-sluice.address"
    SECTION_HEAD = 12          # octets before the items of the annotations: descriptor, map with 32-bit lengths
    SCRATCH_KEPT = 262144      # octets of the buffer that stays allocated

# Buffer in which a copy is composed.
cdef uint8_t* scratch = NULL
cdef size_t scratch_size = 0


cdef uint8_t* scratch_room(size_t size) except NULL:
    """Return the buffer, grown to `size` octets."""
    global scratch, scratch_size
    if size > scratch_size:
        free(scratch)
        scratch_size = 0
        scratch = <uint8_t*>malloc(size)
        if scratch is NULL:
            raise MemoryError("copy for a tap")
        scratch_size = size
    return scratch


cdef void shrink_scratch() noexcept:
    global scratch, scratch_size
    if scratch_size > SCRATCH_KEPT:
        free(scratch)
        scratch = NULL
        scratch_size = 0


cdef inline bint is_address_key(const uint8_t* key, const uint8_t* end) noexcept nogil:
    """Return True for the key of the annotation that names the original address. A producer may not set it.

    Many consumers do not distinguish a symbol from a string, so any encoding of the text counts.
    """
    cdef Slice name
    return open_variable(key, end, &name) is not NULL and name.size == ADDRESS_KEY \
        and memcmp(name.data, b"x-opt-sluice.address", ADDRESS_KEY) == 0


cdef str encoded_text(bytes source):
    """Return the text of an encoded string; "" for no octets."""
    cdef Slice text
    cdef const uint8_t* data = source
    if open_variable(data, data + len(source), &text) is NULL:
        return ""
    return text.data[:text.size].decode("utf-8", "replace")


cdef uint8_t* put_annotations(uint8_t* w, const Sections* s, const uint8_t* address, size_t size) noexcept nogil:
    """Write the message-annotations of a copy: those of users, and the original address (an encoded string)."""
    cdef const uint8_t* p = s.map.data
    cdef const uint8_t* end = s.map.data + s.map.size
    cdef const uint8_t* value
    cdef const uint8_t* following
    cdef uint8_t* head = w
    cdef uint32_t items = 2
    cdef Slice name
    w += SECTION_HEAD
    while p < end:
        value = skip_value(p, end)
        if value is NULL:
            break
        following = skip_value(value, end)
        if following is NULL:
            break
        if not is_router_key(p, value, &name) and not is_address_key(p, end):
            memcpy(w, p, following - p)
            w += following - p
            items += 2
        p = following
    w[0] = T_SYM8
    w[1] = ADDRESS_KEY
    memcpy(w + 2, b"x-opt-sluice.address", ADDRESS_KEY)
    w += 2 + ADDRESS_KEY
    memcpy(w, address, size)
    w += size
    head[0] = 0
    head[1] = T_SMALLULONG
    head[2] = S_MESSAGE_ANNOTATIONS
    head[3] = T_MAP32
    write32(head + 4, <uint32_t>(w - head - 8))
    write32(head + 8, items)
    return w


cdef uint8_t* put_rest(uint8_t* w, const Content* c) noexcept nogil:
    """Write what follows the message-annotations."""
    cdef size_t skipped = c.sections.end
    cdef const Chunk* chunk
    if c.whole:
        memcpy(w, c.data + skipped, c.size - skipped)
        return w + (c.size - skipped)
    chunk = c.stored.head
    while chunk is not NULL:
        if chunk.size > skipped:
            memcpy(w, &chunk.data[0] + skipped, chunk.size - skipped)
            w += chunk.size - skipped
            skipped = 0
        else:
            skipped -= chunk.size
        chunk = chunk.next
    return w


cdef inline size_t content_octets(const Content* c) noexcept nogil:
    return c.size if c.whole else <size_t>c.stored.size


cdef uint8_t* compose_copy(bytes source, const Content* c, AnnotationFilter* f, size_t* size,
                           uint64_t* units) except NULL:
    cdef size_t name = len(source)
    cdef uint8_t* start = scratch_room(
        content_octets(c) + c.sections.map.size + SECTION_HEAD + 2 + ADDRESS_KEY + name)
    cdef uint8_t* w
    cdef uint8_t* end
    memcpy(start, c.data, c.sections.at)
    w = put_annotations(start + c.sections.at, &c.sections, source, name)
    end = put_rest(w, c)
    memset(f, 0, sizeof(AnnotationFilter))
    w += filter_octets(f, w, end - w, w)
    if c.complete:
        w += finish_filter(f, w)
    size[0] = w - start
    units[0] += f.steps // STEPS_A_UNIT + size[0] // OCTETS_A_UNIT
    return start


# Free rooms of this process, at most as many as its taps have had unsettled deliveries at a time.
cdef CopyRoom* free_rooms = NULL


cdef uint64_t room_key(bytes source, uint64_t octets, uint64_t copies) except 0:
    global free_rooms
    cdef CopyRoom* room = free_rooms
    if room is not NULL:
        free_rooms = room.next
    else:
        room = <CopyRoom*>malloc(sizeof(CopyRoom))
        if room is NULL:
            raise MemoryError("tap")
    Py_INCREF(source)
    room.source = <PyObject*>source
    room.octets = octets
    room.copies = copies
    return <uint64_t>room | KEY_ROOM


cdef inline CopyRoom* room_of(uint64_t key) noexcept nogil:
    return <CopyRoom*>(key - KEY_ROOM)


cdef void drop_room(uint64_t key) noexcept:
    global free_rooms
    cdef CopyRoom* room = room_of(key)
    Py_DECREF(<object>room.source)
    room.next = free_rooms
    free_rooms = room


cdef class UnfinishedCopy:
    cdef int copy_ended(self, uint8_t kind) except -1:
        raise NotImplementedError

    cdef int cut(self, bint lost) except -1:
        raise NotImplementedError

    cdef void forget_leg(self) noexcept:
        pass

    cdef uint64_t check_stall(self, uint64_t waiting_since) except? 1:
        raise NotImplementedError


cdef class Tap(AddressTap):
    """Tap of the configuration. Owner: the table."""

    def __cinit__(self, uint32_t number, str key not None, str pattern not None, bint required,
                  Region region not None, int worker, uint32_t counters, on_missed=None):
        """key: of the address that gets the copies. counters: number of its counter slot. on_missed: see `missed`."""
        cdef Meter* parent = meter_new(NULL, NULL)
        self.counts = region.address_slot(worker, counters)
        self.region = region
        self.number = counters
        self.worker = worker
        # With a parent, so that the meter counts the copies of multicast deliveries, too (`counts_copies`).
        self.meter = meter_new(NULL, NULL, parent)
        meter_release(parent)
        self.arriving = meter_new(NULL, NULL)
        self.unfinished = []
        self.missed = {}
        self.on_missed = on_missed

    def __dealloc__(self):
        while self.node.in_first is not NULL:
            if self.node.in_first.key & KEY_ROOM:
                drop_room(self.node.in_first.key)
            elif not self.node.in_first.key & KEY_UNFINISHED:
                out_free(<OutDelivery*>self.node.in_first.key)
            in_free(self.node.in_first)
        meter_release(self.meter)
        meter_release(self.arriving)

    # -- copies -------------------------------------------------------------------------------------------------------

    cdef int copy(self, bytes source, const Content* c, uint64_t producer, uint64_t now) except -1:
        cdef InDelivery* d
        cdef size_t octets
        cdef int copies
        if not self.live:
            return 0
        self.counts.ingress += 1
        if content_octets(c) > TAP_OCTETS:
            self.counts.ingress_container += 1
            return self.count_missed(source)
        octets = content_octets(c)
        if not self.reachable():
            self.counts.transit += 1
            return self.count_missed(source)
        if not self.has_room(octets):
            self.counts.to_container += 1
            return self.count_missed(source)
        d = in_new(&self.node, room_key(source, octets, 0), now, IN_COMPLETE)
        self.octets += octets
        copies = self.send(d, source, c, producer, self.meter)
        if copies == 0:
            self.counts.transit += 1
            self.octets -= octets
            drop_room(d.key)
            in_free(d)
            return self.count_missed(source)
        self.copies += copies
        room_of(d.key).copies = copies
        return in_routed(d)

    cdef int require(self, InDelivery* d, bytes source, const Content* c, uint64_t producer, uint64_t now,
                     Meter* meter) except -1:
        cdef OutDelivery* leg
        cdef InDelivery* copy
        if not self.live:
            return 0
        self.counts.ingress += 1
        leg = out_make(&self.node, d, False, True)
        copy = in_new(&self.node, <uint64_t>leg, now, IN_COMPLETE)
        if self.send(copy, source, c, producer, meter) == 0:
            self.counts.transit += 1
            self.count_missed(source)
            in_free(copy)
            return self.finish_leg(leg, False)
        return in_routed(copy)

    cdef int send(self, InDelivery* d, bytes source, const Content* c, uint64_t producer, Meter* meter) except -1:
        """Forward the copy d of a message; return the number of consumers and next hops that get it."""
        cdef AnnotationFilter sections
        cdef Content copy
        cdef int copies = 0
        if self.address is None:
            return 0
        memset(&copy, 0, sizeof(Content))
        copy.data = compose_copy(source, c, &sections, &copy.size, &self.copied)
        copy.complete = copy.whole = True
        copy.format = c.format
        try:
            copies = self.forward_copy(d, &copy, producer)
        finally:
            if copy.stored is not NULL:
                message_meter(copy.stored, meter)
                message_routed(copy.stored)
                message_release(copy.stored)
            shrink_scratch()
        return copies

    cdef int forward_copy(self, InDelivery* d, Content* copy, uint64_t producer) except -1:
        copy.producer = producer
        copy.to.data = self.address.to
        copy.to.size = len(self.address.to)
        copy.phase = self.address.phase
        scan(copy.data, copy.size, False, False, &copy.sections)
        return forward(self.address, d, copy)

    def check_starved(self):
        """End incomplete copies that hold others up. Called for taps in Scheduler.starved.

        Returns the time (ms) of the next check; 0: none.
        """
        cdef UnfinishedCopy copy
        cdef uint64_t due
        cdef uint64_t first = 0
        cdef uint64_t here = self.waiting_here()
        cdef uint64_t elsewhere = self.waiting_at_others()
        cdef uint64_t waiting = min(here, elsewhere) if here and elsewhere else here + elsewhere
        for copy in [*self.unfinished]:
            due = copy.check_stall(waiting)
            if due and (first == 0 or due < first):
                first = due
        self.watched = first != 0
        if not self.watched:
            self.waiting_elsewhere = 0
        return first

    cdef uint64_t waiting_here(self) noexcept:
        cdef UnfinishedCopy copy
        cdef uint64_t first = 0
        cdef InDelivery* d = self.node.in_first
        for copy in self.unfinished:
            if copy.is_forwarded and (first == 0 or copy.forwarded_at < first):
                first = copy.forwarded_at
        while first and d is not NULL:
            if d.since >= first and not d.key & KEY_UNFINISHED:
                return d.since
            d = d.next
        return 0

    cdef uint64_t waiting_at_others(self) noexcept:
        cdef const AddressSlot* slot
        cdef uint64_t selected = 0
        cdef uint64_t ended = 0
        cdef int worker
        for worker in range(self.region.workers):
            if worker != self.worker:
                slot = self.region.address_slot(worker, self.number)
                selected += load64(&slot.ingress, RELAXED)
                ended += (load64(&slot.egress, RELAXED) + load64(&slot.redirected, RELAXED)
                          + load64(&slot.from_container, RELAXED) + load64(&slot.transit, RELAXED)
                          + load64(&slot.to_container, RELAXED) + load64(&slot.ingress_container, RELAXED)
                          + load64(&slot.egress_container, RELAXED))
        if selected == ended:
            self.waiting_elsewhere = 0
        elif self.waiting_elsewhere == 0 or ended != self.ended_elsewhere:
            self.waiting_elsewhere = self.clock.now_ns
        self.ended_elsewhere = ended
        return self.waiting_elsewhere

    # -- outcomes -----------------------------------------------------------------------------------------------------

    cdef int outcome(self, InDelivery* d, uint8_t kind, const Slice* state, bint settled) except -1:
        cdef uint64_t key = d.key
        cdef Slice told
        if not settled:
            if not is_outcome(kind):
                return 0
            if not d.flags & IN_COMPLETE:
                return 0                   # settled with the last octet: `ArrivingCopy.finish`
            # The consumer waits for the settlement of its outcome.
            told = plain_state(0) if d.flags & IN_MULTI else settled_state(kind, state)
            in_update(d, kind if told.size else 0, &told, True)
        in_free(d)
        return self.ended(key, kind)

    cdef bint settled(self, OutDelivery** run, uint32_t n, uint8_t kind, const Slice* state) except -1:
        cdef InDelivery* d
        cdef uint64_t key
        cdef uint32_t i
        self.count_ended(kind, n)
        for i in range(n):
            d = run[i].source
            key = d.key
            d.copies = NULL
            run[i].source = NULL
            in_free(d)
            if key & KEY_ROOM:
                self.free_room(key, kind)
            else:
                self.finish_leg(<OutDelivery*>key, kind == D_ACCEPTED)
        return True

    cdef bint has_room(self, uint64_t octets) noexcept:
        """True if another message may be copied, for which no delivery waits."""
        return self.copies < TAP_COPIES and max(self.octets, self.meter.held) + octets <= TAP_OCTETS

    cdef int free_room(self, uint64_t key, uint8_t kind) except -1:
        cdef CopyRoom* room = room_of(key)
        cdef bytes source = None
        self.octets -= room.octets
        self.copies -= room.copies
        if kind != D_ACCEPTED and kind != D_REJECTED:
            source = <bytes>room.source
        drop_room(key)
        return 0 if source is None else self.count_missed(source)

    cdef int count_missed(self, bytes source) except -1:
        if not self.live or self.on_missed is None:
            return 0
        if not self.missed:
            self.on_missed(self)
        if len(source) > TAP_MISSED_NAME or (source not in self.missed and len(self.missed) >= TAP_MISSED_ADDRESSES):
            source = b""
        self.missed[source] = self.missed.get(source, 0) + 1
        return 0

    def take_missed(self):
        """Return the number of missed messages by address since the last call; of further addresses as ""."""
        cdef dict missed = self.missed
        self.missed = {}
        return {encoded_text(source): count for source, count in missed.items()}

    cdef void count_ended(self, uint8_t kind, uint32_t n) noexcept:
        """Count n copies that have ended with this outcome."""
        if not self.live:
            return
        if kind == D_ACCEPTED:
            self.counts.egress += n
        elif kind == D_REJECTED:
            self.counts.redirected += n
        else:
            self.counts.from_container += n

    cdef int ended(self, uint64_t key, uint8_t kind) except -1:
        """Count a copy that has ended, and report its outcome to the delivery that waits for it."""
        cdef UnfinishedCopy unfinished
        self.count_ended(kind, 1)
        if key & KEY_ROOM:
            return self.free_room(key, kind)
        if key & KEY_UNFINISHED:
            unfinished = <UnfinishedCopy><void*>(key - KEY_UNFINISHED)
            return unfinished.copy_ended(kind)
        return self.finish_leg(<OutDelivery*>key, kind == D_ACCEPTED)

    cdef int finish_leg(self, OutDelivery* leg, bint accepted) except -1:
        """End a leg: its delivery waits no more, or is modified because the copy was not accepted."""
        cdef InDelivery* d = leg.source
        cdef Slice state = plain_state(0 if accepted else D_MODIFIED)
        if d is NULL:                      # the producer has settled, or is gone
            out_free(leg)
        elif accepted:
            out_update(leg, 0, &state, True)
            out_free(leg)
        else:
            out_detach(leg)
            out_free(leg)
            if not d.flags & IN_COMPLETE:
                if d.flags & IN_FINAL and d.flags & IN_ROUTED:
                    return 0               # the producer has an outcome already
                in_abandon(d)              # no consumer gets all of a message that is not accepted
            if d.flags & IN_ROUTED:
                return d.upstream.calls.outcome(d.upstream.owner, d, D_MODIFIED, &state, True)
            d.flags |= IN_FINAL
            in_keep_state(d, D_MODIFIED, &state)
        return 0

    # The producer's side of a leg: only the outcome of the copy ends it.

    cdef int more(self, OutDelivery* o) except -1:
        return 0

    cdef int producer_update(self, OutDelivery* o, uint8_t kind, const Slice* state, bint settled) except -1:
        if settled and o.source is not NULL:
            # The producer settled the delivery before its last octet (`in_settled_late`): nothing waits for the copy.
            (<UnfinishedCopy><void*>o.tag_octets).forget_leg()
            out_left(o)
            out_free(o)
        return 0

    cdef int producer_lost(self, OutDelivery* o) except -1:
        return 0

    cdef int abandon(self, OutDelivery* o) except -1:
        return 0

    # -- end ----------------------------------------------------------------------------------------------------------

    cdef int end(self, bint lost) except -1:
        cdef uint64_t key
        cdef UnfinishedCopy unfinished
        self.live = False
        for unfinished in [*self.unfinished]:
            unfinished.cut(lost)
        while self.node.in_first is not NULL:
            key = self.node.in_first.key
            in_free(self.node.in_first)
            if key & KEY_ROOM:
                drop_room(key)
            else:
                self.finish_leg(<OutDelivery*>key, not lost)
        self.octets = self.copies = 0
        return 0


cdef bint is_required(tuple taps, str tenant) noexcept:
    cdef Tap tap
    for tap in taps:
        if tap.required and tap.live and tap.serves(tenant):
            return True
    return False
