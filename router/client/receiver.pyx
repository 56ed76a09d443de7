"""Receiving link (part 2, 2.6): grants credit, and collects the frames of each delivery.

Its handler is a Python object with

    on_delivery(receiver, delivery)        a complete message: `delivery.octets`
    on_settled(receiver, delivery)         the sender has settled the delivery
    on_drained(receiver)                   the sender has used or given back all credit

Its memory is bounded by credit and `max_message_size`. Attach and detach go to the session's handler.
"""
from sluice.router.amqp.codec cimport Slice
from sluice.router.amqp.endpoint cimport is_detached
from sluice.router.amqp.frames cimport Flow, Transfer
from sluice.router.amqp.session cimport Session
from sluice.router.amqp.states cimport state_kind

from sluice.router.amqp.errors import MESSAGE_SIZE_EXCEEDED, SESSION_INVALID_FIELD, RemoteError

LIMIT_EXCEEDED = "amqp:link:transfer-limit-exceeded"


cdef class ReceivedDelivery:
    """Received delivery."""


cdef class Receiver(PlainLink):
    """Receiving link. Owner: its session."""

    def __cinit__(self, handler, *, initial_delivery_count=None, max_message_size=0):
        """Create the link. initial_delivery_count: of the peer's attach; None: this side attaches, and calls
        `begin_at` later."""
        self.max_message_size = max_message_size
        if initial_delivery_count is not None:
            self.begin_at(initial_delivery_count)

    def begin_at(self, uint32_t initial_delivery_count):
        """Start at the sender's initial delivery-count, and send the credit granted before."""
        self.delivery_count = initial_delivery_count
        self.known = True
        if self.needs_flow or self.credit:
            self.session.want_flow(self)

    def flow(self, uint32_t credit, *, drain=False):
        """Set the credit. drain: the sender gives back what it cannot use at once."""
        self.credit = credit
        if credit > self.granted:
            self.granted = credit
        self.beyond = 0
        self.draining = drain
        if not is_detached(self):
            self.session.want_flow(self)

    def settle(self, ReceivedDelivery delivery not None, bytes state not None, *, settled=True):
        """Report an outcome (an encoded state) to the sender. False: the delivery is settled already, or the link has
        ended."""
        cdef Slice s
        if delivery.settled or is_detached(self) or delivery.link is not self:
            return False
        s.data = state
        s.size = len(state)
        if settled:
            delivery.settled = True
            self.forget(&self.session.received, delivery.id)
        self.session.report(delivery.id, state_kind(&s), &s, settled)
        return True

    cdef int pump(self, size_t budget) except -1:
        return 0

    cdef int grant(self) except -1:
        cdef Flow f
        if not self.known:
            return 0
        f.has_handle = True
        f.echo = False
        f.handle = self.handle
        f.delivery_count = self.delivery_count
        f.link_credit = self.credit
        f.drain = self.draining
        return self.session.send_flow(&f)

    cdef int on_flow(self, const Flow* f) except -1:
        cdef uint32_t ahead
        if f.has_delivery_count:
            ahead = f.delivery_count - self.delivery_count
            if ahead <= 0x7FFFFFFF:
                self.delivery_count = f.delivery_count
                self.credit = self.credit - ahead if self.credit > ahead else 0
        if f.echo:
            self.session.want_flow(self)
        if self.draining and self.credit == 0:
            self.draining = False
            self.handler.on_drained(self)
        return 0

    cdef bint count_delivery(self, const Transfer* t) except *:
        self.session.new_delivery(t)
        self.delivery_count += 1
        if self.credit:
            self.credit -= 1
            return True
        # Withdrawn credit may have been used before the sender was notified.
        self.beyond += 1
        if self.beyond > self.granted:
            self.detach(True, LIMIT_EXCEEDED, "the peer sent more transfers than it had credit for")
            return False
        return True

    cdef int on_transfer(self, const Transfer* t) except -1:
        cdef Session session = self.session
        cdef ReceivedDelivery d = self.current
        if d is None:
            if not self.count_delivery(t):
                return 0
            d = self.current = ReceivedDelivery()
            d.link = self
            d.id = t.delivery_id
            d.tag = t.tag.data[:t.tag.size] if t.tag.size else b""
            d.message_format = t.message_format
            d.settled = t.settled
            d.state = b""
            d.parts = []
            if not d.settled:
                self.remember(&session.received, d.id, d)
        elif t.has_delivery_id and t.delivery_id != d.id:
            raise RemoteError("link", SESSION_INVALID_FIELD,
                              f"transfer: delivery-id {t.delivery_id}, but delivery {d.id} is not complete")
        if t.state.size:
            d.state = t.state.data[:t.state.size]
        if t.aborted:
            self.current = None
            if not d.settled:
                self.forget(&session.received, d.id)
            return 0
        if t.settled and not d.settled:
            d.settled = True
            self.forget(&session.received, d.id)
        d.size += t.payload.size
        if self.max_message_size and d.size > self.max_message_size:
            self.current = None
            self.detach(True, MESSAGE_SIZE_EXCEEDED, f"a message has more than {self.max_message_size} octets")
            return 0
        if t.payload.size:
            d.parts.append(t.payload.data[:t.payload.size])
        return 0 if t.more else self.complete(d)

    cdef int complete(self, ReceivedDelivery d) except -1:
        self.current = None
        d.octets = b"".join(d.parts)
        d.parts = None
        self.handler.on_delivery(self, d)
        if self.draining and self.credit == 0:
            self.draining = False
            self.handler.on_drained(self)
        return 0

    cdef int delivery_update(self, void* entry, uint8_t kind, const Slice* state, bint settled) except -1:
        cdef ReceivedDelivery d = self.unsettled[(<UnsettledEntry*>entry).id]
        if settled:
            d.settled = True
            self.forget(&self.session.received, d.id)
            self.handler.on_settled(self, d)
        return 0
