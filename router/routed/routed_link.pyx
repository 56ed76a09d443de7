"""Routed links: pairs of links, one to each peer, that relay everything (brokers-and-edge.md 5).

The router takes no part in what the two peers agree on. Credit is the receiver's. Deliveries keep tag, state and
octets. Dispositions pass unchanged in both directions. A detach is answered when the remote peer has answered it.

What the router adds is bounded. Octets that the receiver's connection does not take are metered by the sender's
session, whose window closes (session.pyx). A link has at most ROUTED_MOST deliveries. Flows and detaches for a
connection whose write buffer is full are kept as state of the link (pending_flow.pyx, `detach_is_due`) until the link
has its turn to write. Attaches for a connection that has ROUTED_UNSENT_MOST octets to send are refused.

Rare events go to `context`, an object with

    on_event(what, body)       EVENT_ATTACH, EVENT_ANSWER: fields of an attach, an encoded list
    send_null_attach() -> bool before the detach of an unanswered link: send an attach with null terminus; False: there
                               was no attach to answer
    detached() -> bool         as of other links
"""
from libc.stdlib cimport malloc
from libc.string cimport memcpy, memset

from sluice.router.stats.counters cimport unblock
from sluice.router.amqp.buffer cimport buffer_used
from sluice.router.links.credit cimport shown_credit
from sluice.router.amqp.endpoint cimport TURN_DONE, is_detached, is_over
from sluice.router.amqp.link_life cimport (
    LIFE_ROUTE_CLOSED, ON_OTHER_DETACH, ON_PEER_ATTACH, ON_PEER_DETACH, ON_ROUTE_DETACH, ON_ROUTE_MADE,
    ON_ROUTE_WITHDRAWN, ON_ROUTE_WRITTEN, life_allows,
)
from sluice.router.routed.pending_flow cimport pending_merge, pending_passed
from sluice.router.delivery.delivery cimport OUT_ABORT, OUT_LATE_SETTLED, OUT_SETTLED
from sluice.router.message.content cimport (
    cursor_close, cursor_open, message_append, message_meter, message_new, message_routed, message_state,
)
from sluice.router.links.consumer_link cimport ConsumerLink
from sluice.router.amqp.connection cimport Connection
from sluice.router.amqp.session cimport Session

from enum import IntEnum

from sluice.router.amqp import codec
from sluice.router.amqp.performatives import check_error
from sluice.router.amqp.errors import INTERNAL_ERROR, AmqpError, LocalError
from sluice.router.routed.errors import LINK_LOST

# The events by name, for Python.
LinkEvent = IntEnum("LinkEvent", {
    "EVENT_ATTACH": EVENT_ATTACH, "EVENT_ANSWER": EVENT_ANSWER, "EVENT_DETACH": EVENT_DETACH, "EVENT_LOST": EVENT_LOST,
}, module=__name__)

LOST = codec.encode_error(*LINK_LOST)


# ---------------------------------------------------------------------------------------------------------------------
# Queued frames

cdef int keep_head(OutDelivery* o, const Transfer* t) except -1:
    """Keep the fields of the first transfer."""
    cdef RoutedHead* head = <RoutedHead*>malloc(sizeof(RoutedHead))
    if head is NULL:
        raise MemoryError("transfer")
    o.prefix = <uint8_t*>head
    head.options = t.options
    head.tag_size = <uint8_t>t.tag.size
    if t.tag.size:
        memcpy(&head.tag[0], t.tag.data, t.tag.size)
    if t.state.size:
        message_state(o.message, &t.state)
    return 0


cdef int update_queued(OutDelivery* o, const Slice* state, bint settled) except -1:
    if settled:
        o.flags |= OUT_SETTLED
    if state.size:
        message_state(o.message, state)    # carried by its first transfer
    return 0


cdef int store_frame(OutDelivery* o, const Transfer* t, bint first, Meter* m) except -1:
    if o.message is NULL:
        o.message = message_new(t.message_format)
        message_meter(o.message, m)
    if first:
        keep_head(o, t)
    if t.payload.size:
        message_append(o.message, t.payload.data, t.payload.size)
        if o.cursor.chunk is NULL:
            # Octets are freed as this copy, their only reader, passes them.
            cursor_open(&o.cursor, o.message, 0)
            message_routed(o.message)
    o.message.complete = not t.more
    if t.settled and not o.flags & OUT_SETTLED:
        o.flags |= OUT_SETTLED | OUT_LATE_SETTLED
    if t.aborted:
        o.flags |= OUT_ABORT
        cursor_close(&o.cursor)
    return 0


cdef class OtherEnd(ReportingNode):
    cdef int deliver(self, InDelivery* d, const Transfer* t, bint first, Meter* m) except -1:
        raise NotImplementedError

    cdef int flow(self, const Flow* f) except -1:
        raise NotImplementedError

    cdef int send_event(self, int what, bytes body) except -1:
        raise NotImplementedError

    cdef int cut(self) except -1:
        raise NotImplementedError

    cdef int on_record(self, const LinkRecord* r) except -1:
        raise NotImplementedError

    cdef int flush(self) except -1:
        raise NotImplementedError

    cdef int port_lost(self) except -1:
        raise NotImplementedError

    cdef bint through(self, object port) noexcept:
        return False


# ---------------------------------------------------------------------------------------------------------------------
# Base of both ends

cdef class RoutedLink(DeliveryLink):
    def __cinit__(self, *, capacity=0, survives=False, remote_survives=False):
        self.capacity = capacity
        self.survives = survives
        self.remote_survives = remote_survives

    def __dealloc__(self):
        pending_passed(&self.pending_flow)

    # -- pairs --------------------------------------------------------------------------------------------------------

    @property
    def pairable(self):
        """Generation of its slot; 0: the link has ended."""
        return 0 if is_detached(self) else self.slot.generation

    def pair(self, RoutedLink other not None):
        """Join two links of this worker."""
        self.local_end = other
        other.local_end = self

    def use_remote(self, OtherEnd remote_end not None):
        """Set the other end, which is on another worker."""
        remote_end.link = self
        self.remote_end = remote_end

    cdef int part(self) except -1:
        """Part from the other end: nothing passes to it any more."""
        if self.local_end is not None:
            self.local_end.local_end = None
            self.local_end = None
        if self.remote_end is not None:
            remote_end = self.remote_end
            self.remote_end = None
            (<OtherEnd>remote_end).cut()
        return 0

    def send(self, int what, bytes body not None):
        """Send an event to the other end: `send_event` for Python callers."""
        self.send_event(what, body)

    cdef int send_event(self, int what, bytes body) except -1:
        """Send an event to the other end."""
        cdef RoutedLink local_end = self.local_end   # the other link may end, and release this one
        cdef OtherEnd remote_end = self.remote_end
        if local_end is not None:
            return local_end.on_event(what, body)
        if remote_end is not None:
            return remote_end.send_event(what, body)
        return 0

    cdef int on_event(self, int what, bytes body) except -1:
        """Process an event of the other end."""
        if what == EVENT_DETACH:
            return self.remote_detached(body[0] != 0, body[1:] or None)
        if what == EVENT_LOST:
            return self.remote_lost()
        # Too late for a link that was answered, or has ended.
        if life_allows(self.life, ON_ROUTE_WRITTEN) and not self.session.connection.close_sent:
            try:
                self.context.on_event(what, body)
            except Exception as error:
                self.end_by(error)
        return 0

    cdef int end_by(self, object error) except -1:
        """End both links of the pair after an error of the router, or of the other peer, that concerns only them."""
        cdef Connection connection = self.session.connection
        if not isinstance(error, AmqpError):
            connection.report_fault(error)
            error = LocalError("link", INTERNAL_ERROR, f"{type(error).__name__}: {error}")
        try:
            self.close_with(error.condition, error.description)
        except Exception as fault:
            connection.end_by(fault)
        return 0

    # -- attach -------------------------------------------------------------------------------------------------------

    cdef int begin_state(self) except -1:
        return self.live(ON_ROUTE_MADE)

    cdef int on_peer_attach(self) except -1:
        return self.live(ON_PEER_ATTACH)

    def take_credit_from(self, DeliveryLink old not None):
        """Take over the credit that the peer granted before the link was routed."""
        cdef Flow f
        cdef ConsumerLink was
        if isinstance(old, ConsumerLink):
            was = <ConsumerLink>old
            if was.credit or was.drain:
                memset(&f, 0, sizeof(Flow))
                f.has_link_credit = True
                f.link_credit = was.credit
                f.drain = was.drain
                self.on_flow(&f)

    def set_initial_count(self, uint32_t count):
        """Set the initial-delivery-count of the sender."""
        self.delivery_count = self.initial_count = count

    def attach_written(self):
        """Start to write frames for the link: its attach is written."""
        self.live(ON_ROUTE_WRITTEN)
        if self.pending_flow.due:
            self.session.want_flow(self)
        if self.node.queue_first is not NULL:
            self.mark_ready()

    # -- flow ---------------------------------------------------------------------------------------------------------

    cdef int pass_flow(self, const Flow* f) except -1:
        """Take a flow of the other peer, to be merged with others until it is written.

        Properties of the pending flow are written first, if the write buffer has room.
        """
        if is_detached(self) or detach_is_due(self):
            return 0
        if self.pending_flow.octets is not NULL:
            self.grant()
        pending_merge(&self.pending_flow, f)
        self.session.want_flow(self)
        return 0

    cdef bint output_full(self) noexcept:
        return buffer_used(&self.session.connection.out) >= self.output_high

    @property
    def unsent_too_much(self):
        """True if the connection has so much to send that no further routed link is attached or answered there."""
        return buffer_used(&self.session.connection.out) >= ROUTED_UNSENT_MOST

    cdef int grant(self) except -1:
        cdef Flow f
        if not self.pending_flow.due or not is_answered(self) or self.holds():
            return 0
        if self.output_full():
            return self.mark_ready()
        f = self.pending_flow.flow
        f.has_handle = True
        f.handle = self.handle
        self.write_pending(&f)
        pending_passed(&self.pending_flow)
        return 0

    cdef int write_pending(self, Flow* f) except -1:
        raise NotImplementedError

    cdef int write_if_new(self, Flow* f) except -1:
        """Write a flow, unless the peer knows all of it from the last one.

        Some flows are always written: without a delivery-count, credit cannot be compared, and a drain asks for an
        answer or is one.
        """
        cdef Flow* last = &self.written
        if self.any_written and not f.echo and not f.drain and not f.properties.size and f.has_delivery_count \
                and last.has_delivery_count and f.delivery_count == last.delivery_count \
                and f.has_link_credit == last.has_link_credit and f.link_credit == last.link_credit \
                and f.drain == last.drain and f.has_available == last.has_available \
                and f.available == last.available:
            return 0
        self.written = f[0]
        self.any_written = True
        return self.session.send_whole_flow(f)

    # -- turns to write -----------------------------------------------------------------------------------------------

    cdef int pump(self, size_t budget) except -1:
        if not detach_is_due(self) or not self.leaves_deliveries():
            return DeliveryLink.pump(self, budget) if is_answered(self) else TURN_DONE
        if not self.session.ended:
            self.pumped()
        return TURN_DONE

    cdef bint leaves_deliveries(self) noexcept:
        """Return True if our detach need not wait for queued deliveries: the peer takes none."""
        return has_left(self) or not is_answered(self)

    cdef int defer_detach(self) except -1:
        """Wait for room in the write buffer with the detach that is due."""
        if self.leaves_deliveries() or not self.holds():
            self.forget_ready()            # also if the link waits for a window: the detach needs none
            return self.mark_ready()
        return 0

    cdef int pumped(self) except -1:
        self.grant()
        if detach_is_due(self):
            if self.output_full():
                return self.mark_ready()
            self.write_detach(self.due_closed, self.due_error)
            if self.local_end is None and self.remote_end is None:
                self.end()
        return 0

    cdef bint holds(self) noexcept:
        """Return True if deliveries wait, which nothing else of the link may overtake."""
        return self.node.queue_first is not NULL

    cdef void note_credit(self, uint32_t credit) noexcept:
        self.slot.credit = shown_credit(credit)
        if credit == 0:
            if self.slot.blocked_since == 0:
                self.slot.blocked_since = self.session.connection.scheduler.now_ns
        elif self.slot.blocked_since:
            self.granted = True
            unblock(self.slot)

    cdef int deliver(self, InDelivery* d, const Transfer* t, bint first, Meter* m) except -1:
        raise NotImplementedError

    # -- end ----------------------------------------------------------------------------------------------------------

    cdef int peer_detached(self) except -1:
        """Pass the peer's detach to the other peer. Its answer is the answer to this one."""
        cdef RoutedLink keep = self
        cdef bytes closed = b"\x01" if self.answer_closed else b"\x00"
        if is_over(self):
            self.live(ON_PEER_DETACH)
            return self.session.release(self)
        if self.detach_error is not None:
            check_error(self.detach_error)
        self.live(ON_PEER_DETACH)
        self.abort_current()
        self.send_event(EVENT_DETACH, closed + (self.detach_error or b""))
        if is_over(self):
            return 0
        if is_detached(self):
            keep.end()
            return keep.session.release(keep)
        if detach_is_due(self):
            return self.defer_detach() if self.output_full() else self.write_detach(self.due_closed, self.due_error)
        if self.local_end is None and self.remote_end is None:
            return self.write_detach(self.answer_closed, None)
        return 0

    cdef int remote_detached(self, bint closed, bytes error) except -1:
        """Process the other peer's detach, which follows all that it sent."""
        if is_detached(self):
            return 0
        pending_passed(&self.pending_flow)
        if (self.holds() and not has_left(self)) or self.output_full():
            self.live(ON_OTHER_DETACH)
            self.due_closed = closed
            self.due_error = error
            return self.defer_detach()
        return self.write_detach(closed, error)

    cdef int remote_lost(self) except -1:
        """End or detach the link: the other end was lost without a detach."""
        cdef RoutedLink keep = self
        if is_over(self):
            return 0
        self.other_gone = True
        self.part()
        if is_detached(self):
            return self.end()
        if detach_is_due(self):
            return 0
        if has_left(self):
            return self.write_detach(self.answer_closed, None)
        keep.remote_detached(not self.remote_survives, LOST)
        return keep.end() if is_detached(keep) else 0

    def lose(self):
        """End or detach the link: there will be no other end."""
        self.remote_lost()

    cdef int write_detach(self, bint closed, bytes error) except -1:
        cdef Session session = self.session
        cdef RoutedLink keep = self
        cdef bint silent = session.ended or session.connection.close_sent or session.connection.finished
        cdef bint there = is_answered(self)
        if not there and not silent:
            there = self.context.send_null_attach()
        self.live(ON_ROUTE_DETACH if there else ON_ROUTE_WITHDRAWN)
        if there and not silent:
            session.send_raw_detach(self.handle, closed, error)
        if not there:
            session.forget_attach(self)
        if self.life == LIFE_ROUTE_CLOSED:
            keep.end()
            session.release(keep)
        return 0

    def close_with(self, condition, description):
        """Detach from our side. Frames for the handle are absorbed until the peer's detach."""
        if is_detached(self):
            return
        self.abort_current()
        self.send_event(EVENT_LOST, b"")
        self.write_detach(True, codec.encode_error(condition, description))
        self.end()

    def report_loss(self, condition, description):
        """Pass the reason to the other end for which the peer has ended the session. `lost` is to follow."""
        self.abort_current()
        self.send_event(EVENT_DETACH, b"\x01" + codec.encode_error(condition, description))

    cdef int lost(self, uint8_t event) except -1:
        """End the link, whose session or connection is lost."""
        if is_over(self):
            return 0
        self.abort_current()
        self.live(event)
        self.send_event(EVENT_LOST, b"")
        return self.end()

    cdef int end(self) except -1:
        """Finish the link: no more frames come for it."""
        cdef RoutedLink keep = self        # the other end and the session drop their references to this link
        if is_over(self):
            return 0
        self.forget_ready()
        pending_passed(&self.pending_flow)
        self.part()
        self.lose_deliveries()
        return keep.session.link_gone(keep)

    cdef int lose_deliveries(self) except -1:
        raise NotImplementedError

    cdef int abort_current(self) except -1:
        """Abort the delivery that the peer has begun to send."""
        return 0
