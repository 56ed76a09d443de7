"""AMQP link (AMQP 1.0 part 2, 2.6): base class for links with any kind of deliveries.

It counts the octets of messages that the link holds, enforces the largest message size, and answers the end of the
link.
"""
from libc.stdint cimport UINT64_MAX, uint64_t

from sluice.router.amqp.codec cimport Slice
from sluice.router.amqp.connection cimport PAUSE_ATTACH
from sluice.router.amqp.endpoint cimport is_detached, is_open, is_pending
from sluice.router.amqp.link_life cimport (
    LIFE_ANSWERING, LIFE_DETACHING, LIFE_OWED, ON_CONFIRMED, ON_DETACH, ON_PEER_DETACH, ON_SESSION_LOST,
)
from sluice.router.amqp.meter cimport meter_new, meter_release
from sluice.router.amqp.node_list cimport list_append, list_prepend
from sluice.router.amqp.quota cimport Quota
from sluice.router.amqp.spec cimport D_REJECTED

from sluice.router.amqp import codec
from sluice.router.amqp.errors import CONNECTION_FORCED, MESSAGE_SIZE_EXCEEDED

SIZE_EXCEEDED = "Message size exceeded"

cdef enum:
    MESSAGE_OCTETS = 8192      # first octets of a message that are logged


cdef class Link(Endpoint):
    cdef int join(self, object session) except -1:
        self.session = <Session?>session
        return 0

    def limit_size(self, uint64_t octets):
        """Limit the size in octets of messages that the peer sends; 0: no limit (security.md P-52)."""
        self.size_limit = octets
        self.size = 0
        self.note_quota()

    def note_quota(self):
        """Have transfers counted if the connection has a quota."""
        if self.session.connection.quota is not None and not self.size_limit:
            self.size_limit = UINT64_MAX

    cdef int on_limited_transfer(self, Transfer* t) except -1:
        """Count the octets of a message, then handle its frame."""
        cdef bint more
        cdef Quota quota = self.session.connection.quota
        if quota is not None:
            quota.charge(t.payload.size, self.size == 0)
        if self.oversized:
            return self.oversized_rest(t)
        if self.size == 0 and t.has_delivery_id:
            self.sized_delivery_id = t.delivery_id
            self.sized_settled = False
        self.sized_settled = self.sized_settled or t.settled
        self.size += t.payload.size
        if self.size <= self.size_limit or t.aborted:
            if not t.more or t.aborted:
                self.size = 0
            return self.on_transfer(t)
        more = t.more
        self.oversized = True
        self.session.handler.on_oversized(self)
        t.aborted = True       # drops the part received before
        self.on_transfer(t)
        t.aborted = False
        return 0 if more else self.oversized_rest(t)

    cdef int oversized_rest(self, const Transfer* t) except -1:
        """Drop a frame of a message that is too large. After the last one, end link and connection.

        routing-semantics.md 11.8.
        """
        cdef Session session = self.session
        cdef bytes state
        cdef Slice s
        self.sized_settled = self.sized_settled or t.settled
        if t.more and not t.aborted:
            return 0
        self.oversized = False
        self.size = 0
        if t.aborted:
            return 0
        if not self.sized_settled and not is_detached(self):
            state = codec.encode_described(D_REJECTED, [codec.encode_error(MESSAGE_SIZE_EXCEEDED, SIZE_EXCEEDED)])
            s.data = state
            s.size = len(state)
            session.flush_reports()
            session.write_report(True, self.sized_delivery_id, 1, &s, True)
        if not is_detached(self):
            session.send_detach(self.handle, True)
        session.connection.close(CONNECTION_FORCED, SIZE_EXCEEDED)
        return 0

    def __dealloc__(self):
        if self.streams is not NULL:
            self.streams.owner = NULL
            meter_release(self.streams)
        if self.whole is not NULL:
            self.whole.owner = NULL
            meter_release(self.whole)

    cdef Meter* streams_meter(self) except NULL:
        if self.streams is NULL:
            self.streams = meter_new(<void*>self, link_freed, self.session.streams_meter())
        return self.streams

    cdef Meter* whole_meter(self) except NULL:
        if self.whole is NULL:
            self.whole = meter_new(<void*>self, link_freed, self.session.whole_meter())
        return self.whole

    cdef void content_freed(self) noexcept:
        if self.credit_held and self.streams.held < <size_t>CREDIT_OCTETS // 2 and not is_detached(self):
            self.credit_held = False
            self.session.want_flow(self)

    cdef void grant_again(self) noexcept:
        self.credit_withheld = False
        if not is_detached(self):
            self.session.want_flow(self)

    cdef str give_up(self):
        raise NotImplementedError

    cdef int last_resort(self, size_t held) except -1:
        self.session.connection.process.given_up += 1
        self.session.connection.handler.on_link_evicted(self, held, self.give_up())
        return 0

    cdef uint32_t progress(self) noexcept:
        return self.passed

    cdef int mark_ready(self) except -1:
        cdef Session session = self.session
        cdef bint front = self.urgent
        if self.turn.list is NULL and is_open(self) and not session.connection.finished:
            if front:
                list_prepend(&session.ready, &self.turn)
            else:
                list_append(&session.ready, &self.turn)
            session.connection.want_turn(session, front)
        return 0

    cdef int trace_message(self, const uint8_t* data, size_t size) except -1:
        self.session.handler.on_message(self, data[:size if size < MESSAGE_OCTETS else MESSAGE_OCTETS])
        return 0

    cdef int leave(self, bint closed) except -1:
        """End the link from this side. Its detach is to be written next.

        If its session has ended, the link is lost with it, and the handler may hold back the answer to the peer's end.
        """
        cdef bint pending = is_pending(self)
        self.answer_closed = closed
        self.lost(ON_SESSION_LOST if self.session.ended else ON_DETACH)
        if pending:
            # No frame waits for a decision on this link.
            self.session.connection.resume(PAUSE_ATTACH)
        return 0

    def end_by(self, fault):
        """End the connection after an internal error in work for the link."""
        self.session.connection.end_by(fault)

    def close_on_detach(self):
        """Answer the peer's detach by closing the link, whatever the detach says."""
        self.answer_closed = True

    def answer_detach(self):
        """Answer the peer's detach or end, which `on_detached` has delayed."""
        self.confirm()

    cdef int confirm(self) except -1:
        cdef Session session = self.session
        cdef uint8_t before = self.life
        self.live(ON_CONFIRMED)
        if before == LIFE_OWED:
            session.answers -= 1
            session.end_if_due()
        elif before == LIFE_ANSWERING:
            session.send_detach(self.handle, self.answer_closed)
            session.release(self)
        return 0

    cdef int peer_detached(self) except -1:
        if self.life == LIFE_DETACHING:
            self.live(ON_PEER_DETACH)
            return self.session.release(self)
        return self.lost(ON_PEER_DETACH)


cdef void link_freed(void* owner) noexcept:
    (<Link>owner).passed += 1
    (<Link>owner).content_freed()
