"""Copies that taps make of messages which are routed before they are complete (docs/user/tap.md, decision 0097).

The copy has octets of its own, beside those of the message: its consumers may be slower than those of the message, and
must not hold the octets that the producer's window depends on. It is stored until the message is complete and then
forwarded like any other copy, so that consumers of copies never wait for a producer. A message that grows to FORWARD_AT
octets is forwarded as it arrives, because its length has no bound.

Octets of copies that no delivery waits for count for the tap. If these exceed their bound, the connection that holds
most of them loses its largest copy. Octets of a copy that a delivery waits for count for the producer's link.
"""
from libc.string cimport memset

from sluice.router.amqp.codec cimport Slice
from sluice.router.amqp.meter cimport meter_new, meter_release
from sluice.router.amqp.scheduler cimport Scheduler
from sluice.router.amqp.spec cimport D_ACCEPTED, D_REJECTED
from sluice.router.amqp.states cimport is_outcome
from sluice.router.delivery.delivery cimport IN_COMPLETE, in_free, in_more, in_new, out_free, out_make
from sluice.router.delivery.outcome cimport in_lost, in_routed
from sluice.router.message.annotation_filter cimport (
    LONGEST_BEGINNING, STEPS_A_UNIT, AnnotationFilter, filter_octets, finish_filter, keeps_all, pass_octets,
)
from sluice.router.message.content cimport (
    message_append, message_meter, message_new, message_release, message_routed,
)
from sluice.router.table.tap cimport (
    KEY_UNFINISHED, OCTETS_A_UNIT, TAP_ARRIVING, compose_copy, room_key, scratch_room, shrink_scratch,
)

cdef enum:
    FORWARD_AT = 1048576       # octets of an incomplete message from which its copy is forwarded as it arrives
    # Time for which others may wait behind such a copy; also the time without an octet after which it ends while any
    # others are under way.
    STALL_MS = 10000


cdef ArrivingCopy begin_arriving_copy(Tap tap, Link link, uint64_t producer, InDelivery* d, bytes source,
                                      const Content* c):
    cdef ArrivingCopy copy
    cdef uint8_t* octets
    cdef size_t size
    if not tap.live:
        return None
    copy = ArrivingCopy()
    copy.tap = tap
    copy.link = link
    copy.producer = producer
    copy.source = source
    copy.required = d is not NULL
    copy.message = message_new(c.format)
    if copy.required:
        copy.meter = link.whole_meter()
        copy.meter.refs += 1
        copy.leg = out_make(&tap.node, d, False, True)
        copy.leg.tag_octets = <uint64_t><void*>copy
    else:
        copy.meter = meter_new(NULL, NULL, tap.arriving)
    message_meter(copy.message, copy.meter)
    tap.unfinished.append(copy)
    if not tap.reachable():
        copy.miss(&tap.counts.transit)
        return None
    octets = compose_copy(source, c, &copy.filter, &size, &tap.copied)
    copy.grown = link.session.connection.scheduler.now
    if not copy.make_room(size):
        return None
    message_append(copy.message, octets, size)
    shrink_scratch()
    return copy


cdef class ArrivingCopy(UnfinishedCopy):
    def __dealloc__(self):
        # `copy` is of the tap, which frees it.
        if self.leg is not NULL:
            out_free(self.leg)
        if self.message is not NULL:
            message_release(self.message)
        if self.meter is not NULL:
            meter_release(self.meter)

    # -- growth -------------------------------------------------------------------------------------------------------

    cdef int append(self, const uint8_t* data, size_t size, bint last) except -1:
        if self.message is NULL or not self.make_room(size):
            return 0
        self.add(data, size, last)
        self.message.complete = last
        self.grown = self.link.session.connection.scheduler.now
        if self.copy is not NULL:
            if last:
                self.copy.flags |= IN_COMPLETE
            in_more(self.copy)
            return self.finish(0) if last else 0
        return self.forward(last) if last or self.message.size >= FORWARD_AT else 0

    cdef int add(self, const uint8_t* data, size_t size, bint last) except -1:
        """Add octets of the message, without message-annotations in a wrong place."""
        cdef AnnotationFilter* f = &self.filter
        cdef uint64_t steps = f.steps
        cdef uint8_t* kept
        cdef size_t n
        if keeps_all(f, size):
            pass_octets(f, size)
            message_append(self.message, data, size)
        else:
            kept = scratch_room(size + LONGEST_BEGINNING)
            n = filter_octets(f, data, size, kept)
            if last:
                n += finish_filter(f, kept + n)
            message_append(self.message, kept, n)
            shrink_scratch()
        self.tap.copied += (f.steps - steps) // STEPS_A_UNIT + size // OCTETS_A_UNIT
        return 0

    cdef bint make_room(self, size_t size) except *:
        """Make room for octets that count for the tap. False: the copy has ended, because there is none."""
        cdef ArrivingCopy largest
        while not self.required and self.tap.arriving.held + size > TAP_ARRIVING:
            largest = self.largest(size)
            largest.miss(&largest.tap.counts.to_container)
            if largest is self:
                return False
        return True

    cdef ArrivingCopy largest(self, size_t size):
        """Return the largest copy of the connection whose copies hold most octets, with `size` more of this one."""
        cdef ArrivingCopy copy
        cdef ArrivingCopy found = self
        cdef dict held = {self.link.session.connection: size}
        for copy in self.tap.unfinished:
            if not copy.required:
                connection = copy.link.session.connection
                held[connection] = held.get(connection, 0) + copy.meter.held
        most = max(held, key=held.__getitem__)
        if most is not self.link.session.connection:
            found = None
        for copy in self.tap.unfinished:
            if not copy.required and copy.link.session.connection is most \
                    and (found is None or copy.meter.held > found.meter.held):
                found = copy
        return found

    # -- forwarding ---------------------------------------------------------------------------------------------------

    cdef int forward(self, bint last) except -1:
        """Forward the copy: as a message that is complete, or as one that still arrives."""
        cdef Tap tap = self.tap
        cdef Message* m = self.message
        cdef uint64_t octets = m.size if last and not self.required else 0
        cdef InDelivery* d
        cdef Content c
        cdef int copies
        if not tap.reachable():
            return self.miss(&tap.counts.transit)
        if not self.required and not tap.has_room(octets):
            return self.miss(&tap.counts.to_container)
        memset(&c, 0, sizeof(Content))
        c.stored = m
        c.data = &m.head.data[0]
        c.size = m.head.size
        c.complete = last
        c.whole = last and m.head is m.tail
        c.format = m.format
        if last and not self.required:
            message_meter(m, tap.meter)
        elif self.required and not last:
            message_meter(m, self.link.streams_meter())
        d = in_new(&tap.node, <uint64_t><void*>self | KEY_UNFINISHED,
                   self.link.session.connection.scheduler.now_ns, IN_COMPLETE if last else 0)
        self.copy = d
        copies = tap.forward_copy(d, &c, self.producer)
        message_routed(m)
        if copies == 0:
            self.copy = NULL
            in_free(d)
            return self.miss(&tap.counts.transit)
        tap.octets += octets
        if not self.required:
            self.copies = copies
            tap.copies += copies
        if last:
            self.finish(octets)
            return in_routed(d)
        self.is_forwarded = True
        self.forwarded_at = d.since
        d.message = m
        m.refs += 1
        if not tap.watched:
            tap.watched = True
            tap.clock = self.link.session.connection.scheduler
            self.link.session.connection.scheduler.starved.append(tap)
        return in_routed(d)

    cdef int finish(self, uint64_t octets) except -1:
        """Leave the copy of a complete message to the tap. octets: those that count for the tap until it is settled."""
        cdef InDelivery* d = self.copy
        cdef Tap tap = self.tap
        cdef Slice state
        if d is NULL:
            return 0
        if tap.live:
            tap.counts.ingress += 1
        if self.leg is not NULL:
            d.key = <uint64_t>self.leg
        else:
            d.key = room_key(self.source, octets, self.copies)
        self.copies = 0
        self.leg = NULL
        self.copy = NULL
        self.drop()
        if d.message is not NULL:
            message_release(d.message)
            d.message = NULL
            if d.live and d.pending == 0 and is_outcome(d.kind):
                # Its consumers wait for the settlement of an outcome that they have set before the last octet.
                state.data = d.state
                state.size = d.state_size
                return tap.outcome(d, d.kind, &state, False)
        return 0

    # -- end ----------------------------------------------------------------------------------------------------------

    cdef int miss(self, uint64_t* reason) except -1:
        """End the copy, which cannot be made, and count the reason. A delivery that waits for the copy is modified."""
        cdef Tap tap = self.tap
        cdef OutDelivery* leg = self.leg
        self.leg = NULL
        if tap.live:
            tap.counts.ingress += 1
            reason[0] += 1
        tap.count_missed(self.source)
        self.end_copy()
        return tap.finish_leg(leg, False) if leg is not NULL else 0

    cdef int copy_ended(self, uint8_t kind) except -1:
        cdef Tap tap = self.tap
        cdef OutDelivery* leg = self.leg
        self.leg = NULL
        self.copy = NULL
        if tap.live:
            tap.counts.ingress += 1
        self.drop()
        if not self.required and kind != D_ACCEPTED and kind != D_REJECTED:
            tap.count_missed(self.source)
        return tap.finish_leg(leg, kind == D_ACCEPTED) if leg is not NULL else 0

    cdef int cut(self, bint lost) except -1:
        cdef Tap tap = self.tap
        cdef OutDelivery* leg = self.leg
        self.leg = NULL
        self.end_copy()
        return tap.finish_leg(leg, not lost) if leg is not NULL else 0

    cdef int abort(self) except -1:
        cdef OutDelivery* leg = self.leg
        if self.message is NULL:
            return 0
        self.leg = NULL
        if leg is not NULL:
            out_free(leg)
        return self.end_copy()

    cdef void forget_leg(self) noexcept:
        self.leg = NULL

    cdef uint64_t check_stall(self, uint64_t waiting_since) except? 1:
        cdef Scheduler scheduler
        cdef uint64_t since
        if not self.is_forwarded:
            return 0
        scheduler = self.link.session.connection.scheduler
        if waiting_since == 0:
            return scheduler.now + STALL_MS
        since = max(waiting_since, self.forwarded_at) // 1000000
        if scheduler.now < since + STALL_MS and scheduler.now < self.grown + STALL_MS:
            return min(since, self.grown) + STALL_MS
        self.miss(&self.tap.counts.egress_container)
        return 0

    cdef int end_copy(self) except -1:
        """End the copy; consumers that have a part of it get an aborted transfer."""
        cdef InDelivery* d = self.copy
        self.copy = NULL
        self.drop()
        return in_lost(d) if d is not NULL else 0

    cdef int drop(self) except -1:
        """Release the octets, which the tap's delivery and its copies may still hold."""
        message_release(self.message)
        self.message = NULL
        self.tap.copies -= self.copies
        self.copies = 0
        self.is_forwarded = False
        self.tap.unfinished.remove(self)
        self.link = None
        return 0
