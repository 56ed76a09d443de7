"""Sending link (part 2, 2.6), within credit and window.

Its handler is a Python object with

    on_credit(sender)                                      the receiver has granted credit
    on_outcome(sender, delivery, state, settled)           the receiver's state of a delivery: encoded, or b""

A drain is answered when nothing is queued. Attach and detach go to the session's handler.
"""
from libc.string cimport memcpy

from sluice.router.amqp.buffer cimport buffer_room, buffer_used
from sluice.router.amqp.codec cimport Slice
from sluice.router.amqp.connection cimport Connection
from sluice.router.amqp.endpoint cimport LINK_QUANTUM, TURN_DONE, TURN_MORE, TURN_WINDOW, is_detached
from sluice.router.amqp.credit cimport credit_left
from sluice.router.amqp.frames cimport TRANSFER_ROOM, Flow, Transfer, write_transfer
from sluice.router.amqp.session cimport Session
from sluice.router.amqp.states cimport plain_state

from collections import deque

from sluice.router.amqp.errors import LocalError

cdef enum:
    TAG_MOST = 32              # most octets of a delivery-tag (part 2, 2.8.7)


cdef int check_transfer_state(bytes state) except -1:
    if len(state) > STATE_MOST:
        raise ValueError(f"the delivery state of a transfer has at most {STATE_MOST} octets here, not {len(state)}")
    return 0


cdef class SentDelivery:
    """Outgoing delivery."""


cdef class Sender(PlainLink):
    """Sending link. Owner: its session."""

    def __cinit__(self, handler, *, initial_delivery_count=0):
        self.queue = deque()
        self.delivery_count = initial_delivery_count

    @property
    def queued(self):
        """Number of deliveries that are not fully in the write buffer."""
        return len(self.queue)

    def send(self, bytes octets not None, *, bytes tag=None, settled=False, message_format=0, context=None,
             bytes state not None=b""):
        """Queue an encoded message. A caller that must bound the queue waits for `credit` first.

        state: encoded delivery state of its first transfer, at most 128 octets.
        """
        cdef SentDelivery d = SentDelivery()
        if is_detached(self):
            raise LocalError("link", "amqp:not-allowed", f"link {self.name} is detached")
        if tag is None:
            tag = self.next_tag.to_bytes(8, "big")
            self.next_tag += 1
        elif not 1 <= len(tag) <= TAG_MOST:
            raise ValueError(f"a delivery-tag has 1 to {TAG_MOST} octets")
        check_transfer_state(state)
        d.octets = octets
        d.state = state
        d.tag = tag
        d.settled = settled
        d.message_format = message_format
        d.context = context
        self.queue.append(d)
        self.mark_ready()
        return d

    def settle(self, SentDelivery delivery not None):
        """Settle a delivery that the receiver has not settled."""
        cdef Slice none = plain_state(0)
        if not delivery.settled and delivery.started and not is_detached(self):
            delivery.settled = True
            self.forget(&self.session.sent, delivery.id)
            self.session.report_outcome(False, delivery.id, 1, &none)

    cdef int pump(self, size_t budget) except -1:
        cdef Session session = self.session
        cdef SentDelivery d
        if is_detached(self) or session.ended:
            return TURN_DONE
        while self.queue:
            d = self.queue[0]
            if not d.started and not self.credit:
                break
            if not session.remote_incoming_window:
                return TURN_WINDOW
            if buffer_used(&session.connection.out) >= self.output_high or budget == 0:
                return TURN_MORE
            self.write_part(d, &budget)
        if self.drain and (not self.queue or not self.credit):
            self.finish_drain()
        return TURN_DONE

    cdef int write_part(self, SentDelivery d, size_t* budget) except -1:
        """Write one frame of a delivery."""
        cdef Session session = self.session
        cdef Connection connection = session.connection
        cdef size_t left = len(d.octets) - d.written
        cdef size_t state = 0 if d.started else len(d.state)
        cdef size_t part = connection.remote_max_frame - TRANSFER_ROOM - state
        cdef bint more
        cdef uint8_t* w
        if part > LINK_QUANTUM:
            part = LINK_QUANTUM
        if part > left:
            part = left
        if d.aborted:
            part = 0
        more = part < left and not d.aborted
        if not d.started:
            d.started = True
            d.id = session.next_delivery_id
            if not d.settled:
                self.remember(&session.sent, d.id, d)
            session.next_delivery_id += 1
            self.delivery_count += 1
            self.credit -= 1
        w = buffer_room(&connection.out, TRANSFER_ROOM + state + part)
        w += write_transfer(w, session.local_channel, self.handle, d.id, <const uint8_t*>d.tag, len(d.tag),
                            d.message_format, d.settled, more, d.aborted, <const uint8_t*>d.state, state, part)
        memcpy(w, <const uint8_t*>d.octets + d.written, part)
        connection.out.end = w + part - connection.out.data
        d.written += part
        session.next_outgoing_id += 1
        session.remote_incoming_window -= 1
        part += TRANSFER_ROOM              # a frame counts, too: messages may be tiny
        budget[0] = budget[0] - part if budget[0] > part else 0
        if not more:
            self.queue.popleft()
            d.octets = None
            d.written_out = True
        return 0

    cdef int on_transfer(self, const Transfer* t) except -1:
        raise NotImplementedError          # the session has refused it: this side is the sender

    cdef int on_flow(self, const Flow* f) except -1:
        if f.has_link_credit:
            # The receiver's delivery-count, or the initial one (2.6.7).
            self.credit = credit_left(f.delivery_count if f.has_delivery_count else 0, f.link_credit,
                                      self.delivery_count)
        self.drain = f.drain
        if self.queue or self.drain:
            self.mark_ready()
        if f.echo and not f.drain:
            self.send_state(False)
        self.handler.on_credit(self)
        return 0

    cdef int finish_drain(self) except -1:
        """Give the remaining credit back (2.6.7)."""
        self.drain = False
        self.delivery_count += self.credit
        self.credit = 0
        return self.send_state(True)

    cdef int send_state(self, bint drain) except -1:
        cdef Flow answer
        answer.has_handle = True
        answer.echo = False
        answer.handle = self.handle
        answer.delivery_count = self.delivery_count
        answer.link_credit = self.credit
        answer.drain = drain
        return self.session.send_flow(&answer)

    cdef int grant(self) except -1:
        return 0                           # the receiver grants credit

    cdef int delivery_outcome(self, void* entry, uint8_t kind, const Slice* state, bint settled) except -1:
        cdef SentDelivery d = self.unsettled[(<UnsettledEntry*>entry).id]
        cdef bytes octets = state.data[:state.size] if state.size else b""
        if settled:
            d.settled = True
            self.forget(&self.session.sent, d.id)
            if d.octets is not None:
                d.aborted = True           # the rest of it is of no use
                self.mark_ready()
        self.handler.on_outcome(self, d, octets, settled)
        return 0
