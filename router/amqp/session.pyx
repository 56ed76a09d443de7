"""A session (part 2, 2.5): windows, delivery ids, dispositions over ranges; the links it carries.

Cold events go to a handler, a Python object with

    on_begun(session)                     the peer has answered our begin
    on_attach(session, fields) -> Link    the peer's attach (encoded items)
    on_attached(link, fields)             the peer's answer to an attach of ours; frames for an outgoing link wait until
                                          `link.decided()`
    on_detached(link) -> bool             the link is gone: detached, or lost with its session. True: the answer to the
                                          peer's detach or end waits until `link.answer_detach()`
    on_message(link, octets)              while `link.logged`: the first MESSAGE_OCTETS octets of a message
    on_given_up(link, held, what)         at the bound of memory: what was done with the link that held most
"""
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdlib cimport free, malloc, qsort

from router.amqp.buffer cimport buffer_room
from router.amqp.codec cimport split_fields
from router.amqp.connection cimport (
    FRAME_TAKEN, FRAME_WAITS, LINK_QUANTUM, PAUSE_ATTACH, TURN_MORE, TURN_WINDOW,
)
from router.amqp.counters cimport PrivateSlot, totals
from router.amqp.delivery cimport map_free, map_get, plain_state, state_kind
from router.amqp.frames cimport (
    DISPOSITION_ROOM, FLOW_ROOM, parse_disposition, parse_flow, parse_transfer, write_disposition, write_flow,
)
from router.amqp.message cimport meter_new, meter_release
from router.amqp.numbers cimport number_get
from router.amqp.spec cimport (
    D_ACCEPTED, D_RELEASED, P_ATTACH, P_BEGIN, P_DETACH, P_DISPOSITION, P_END, P_FLOW, P_TRANSFER,
)

import heapq

from router.amqp import codec
from router.amqp.connection import short_error
from router.amqp.errors import (
    INVALID_FIELD, NOT_ALLOWED, RESOURCE_LIMIT, SESSION_HANDLE_IN_USE, SESSION_INVALID_FIELD, SESSION_WINDOW_VIOLATION,
    FatalFault, RemoteError,
)

cdef enum:
    MESSAGE_OCTETS = 8192      # of a message that its line in the log is made of
    DETACH_ROOM = 32           # a detach without its error
    # A window when the configuration names none: this many octets in frames of the longest kind, within these bounds.
    # A peer with small messages is to be stopped by credit, not by it.
    WINDOW_OCTETS = 8388608
    WINDOW_FEWEST = 64
    WINDOW_MOST = 8192
    HELD_WINDOW_OCTETS = 1048576  # the same while something is held up
    STANDSTILL_MS = 2000       # at the bound of memory: nothing was taken for so long, although others wait for it


cdef class Link(Endpoint):
    def __cinit__(self):
        cdef PrivateSlot private = PrivateSlot()
        self.slot = private.slot
        self.slot_owner = private

    cdef int on_transfer(self, const Transfer* t) except -1:
        raise NotImplementedError

    cdef int on_flow(self, const Flow* f) except -1:
        raise NotImplementedError

    cdef int delivery_outcome(self, OutDelivery* o, uint8_t kind, const Slice* state, bint settled) except -1:
        raise NotImplementedError

    cdef int delivery_update(self, InDelivery* d, uint8_t kind, const Slice* state, bint settled) except -1:
        raise NotImplementedError

    cdef int grant(self) except -1:
        raise NotImplementedError

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

    cdef size_t octets_held(self) noexcept:
        return (self.streams.held if self.streams is not NULL else 0) \
            + (self.whole.held if self.whole is not NULL else 0)

    cdef void content_freed(self) noexcept:
        if self.credit_held and self.streams.held < <size_t>CREDIT_OCTETS // 2 and not self.detached:
            self.credit_held = False
            self.session.want_flow(self)

    cdef void grant_again(self) noexcept:
        self.credit_withheld = False
        if not self.detached:
            self.session.want_flow(self)

    cdef bint goes_on(self) noexcept:
        return False

    cdef str give_up(self):
        raise NotImplementedError

    cdef int mark_ready(self) except -1:
        cdef Session session = self.session
        cdef bint front = self.urgent
        if self.in_ready is NULL and not session.connection.finished:
            if front:
                ready_prepend(&session.ready, self)
            else:
                ready_append(&session.ready, self)
            session.connection.want_turn(session, front)
        return 0

    cdef int forget_ready(self) except -1:
        if self.in_ready is not NULL:
            ready_remove(self.in_ready, self)
        return 0

    cdef uint32_t mark_stuck(self, uint64_t before) noexcept:
        return 0

    cdef int show_message(self, const uint8_t* data, size_t size) except -1:
        self.session.handler.on_message(self, data[:size if size < MESSAGE_OCTETS else MESSAGE_OCTETS])
        return 0

    cdef int decide_no_more(self) except -1:
        """We have detached the link, maybe while its attach was being decided: no frame waits for that any more."""
        if self.pending:
            self.pending = False
            self.session.connection.resume(PAUSE_ATTACH)
        return 0

    def end_by(self, fault):
        """A fault of ours on behalf of the link ends its connection."""
        self.session.connection.end_by(fault)

    def close_on_detach(self):
        """Whatever the peer's detach says, the answer is to close the link: it is over."""
        self.answer_closed = True

    def answer_detach(self):
        """What on_detached asked to wait for has happened: answer the peer."""
        cdef Session session = self.session
        if not self.answers_later:
            return
        self.answers_later = False
        if session.ended:
            session.answers -= 1
            if session.end_due and session.answers == 0 and not session.connection.finished:
                session.send_end()
        else:
            session.send_detach(self.handle, self.answer_closed)
            session.release(self)

    cdef int lost(self) except -1:
        raise NotImplementedError

    cdef int peer_detached(self) except -1:
        if self.detached:
            return self.session.release(self)
        self.lost()
        if not self.answers_later:
            self.session.send_detach(self.handle, self.answer_closed)
            self.session.release(self)
        return 0


cdef void link_freed(void* owner) noexcept:
    (<Link>owner).passed += 1
    (<Link>owner).content_freed()


cdef void session_freed(void* owner) noexcept:
    (<Session>owner).content_freed()


# ---------------------------------------------------------------------------------------------------------------------
# Links in the order of their turns

cdef void ready_append(ReadyList* ready, Endpoint link) noexcept:
    link.in_ready = ready
    link.next_ready = None
    link.previous_ready = <Endpoint>ready.last if ready.last is not NULL else None
    if ready.last is not NULL:
        (<Endpoint>ready.last).next_ready = link
    else:
        ready.first = <void*>link
    ready.last = <void*>link


cdef void ready_prepend(ReadyList* ready, Endpoint link) noexcept:
    link.in_ready = ready
    link.previous_ready = None
    link.next_ready = <Endpoint>ready.first if ready.first is not NULL else None
    if ready.first is not NULL:
        (<Endpoint>ready.first).previous_ready = link
    else:
        ready.last = <void*>link
    ready.first = <void*>link


cdef void ready_remove(ReadyList* ready, Endpoint link) noexcept:
    if link.previous_ready is not None:
        link.previous_ready.next_ready = link.next_ready
    else:
        ready.first = <void*>link.next_ready if link.next_ready is not None else NULL
    if link.next_ready is not None:
        link.next_ready.previous_ready = link.previous_ready
    else:
        ready.last = <void*>link.previous_ready if link.previous_ready is not None else NULL
    link.previous_ready = link.next_ready = None
    link.in_ready = NULL


cdef uint32_t frames_of(uint32_t octets, Connection connection, uint32_t fewest, uint32_t most) noexcept:
    """Frames of the longest kind that have so many octets, within bounds."""
    cdef uint32_t frames = octets // connection.local_max_frame
    if frames < fewest:
        frames = fewest
    return frames if frames < most else most


cdef class Session(Channel):
    """One session. Owner: its connection."""

    def __cinit__(self, Connection connection not None, remote_channel, list begin, handler, *, window=0,
                  routers=False):
        """begin: items of the peer's begin, encoded; None: we begin, and there is no remote channel yet.
        window: frames, 0 for unbounded. routers: the peer is one, too. Writes our begin."""
        self.connection = connection
        self.handler = handler
        self.by_remote_handle = NumberTable()
        self.by_handle = []
        self.free_handles = []
        self.names = set()
        self.attaching = {}
        self.flows = []
        self.strict = window > 0
        self.incoming_window = window or frames_of(WINDOW_OCTETS, connection, WINDOW_FEWEST, WINDOW_MOST)
        self.held_window = frames_of(HELD_WINDOW_OCTETS, connection, 2, self.incoming_window)
        self.handle_max = 0xFFFFFFFF
        if begin is None:
            self.unanswered = True
        else:
            self.take_begin(begin)
        connection.assign_channel(self, remote_channel)
        items = [b"\x40" if begin is None else codec.encode_ushort(remote_channel), codec.encode_uint(0),
                 codec.encode_uint(window or WINDOW_OPEN), codec.encode_uint(WINDOW_OPEN)]
        self.routers = routers
        if not routers:
            # Some clients index the rest of the list without looking at its length.
            items += [b"\x40", b"\x40", b"\x40", b"\x40"]
        connection.send_frame(self.local_channel, codec.encode_described(P_BEGIN, items))

    cdef int take_begin(self, list begin) except -1:
        """What the peer says in its begin."""
        cdef list values = [codec.decode_one(item) for item in begin[:5]]
        values += [None] * (5 - len(values))
        for index, name in ((1, "next-outgoing-id"), (2, "incoming-window"), (3, "outgoing-window")):
            if not isinstance(values[index], int) or not 0 <= values[index] <= 0xFFFFFFFF:
                raise RemoteError("session", INVALID_FIELD, f"begin: {name} is missing or not a uint")
        if values[4] is not None:
            if not isinstance(values[4], int) or not 0 <= values[4] <= 0xFFFFFFFF:
                raise RemoteError("session", INVALID_FIELD, "begin: handle-max is not a uint")
            self.handle_max = values[4]
        self.next_incoming_id = self.incoming_limit = values[1]
        self.remote_incoming_window = values[2]
        self.open_window(self.incoming_window)
        return 0

    cdef int answered(self, uint16_t number, list items) except -1:
        """The peer has answered our begin."""
        self.take_begin(items)
        self.window_opened()
        self.handler.on_begun(self)
        return 0

    def __dealloc__(self):
        map_free(&self.sent)
        map_free(&self.received)
        free(self.ranges)
        if self.streams is not NULL:
            self.streams.owner = NULL
            meter_release(self.streams)
        if self.whole is not NULL:
            self.whole.owner = NULL
            meter_release(self.whole)

    cdef int frame(self, uint8_t code, const uint8_t* p, const uint8_t* end) except -1:
        if code == P_TRANSFER:
            return self.transfer(p, end)
        if code == P_DISPOSITION:
            return self.disposition(p, end)
        if code == P_FLOW:
            return self.flow(p, end)
        if code == P_ATTACH:
            return self.attach(p, end)
        if code == P_DETACH:
            return self.detach(p, end)
        raise RemoteError("session", NOT_ALLOWED, f"performative 0x{code:02x} within a session")

    cdef Link link_of(self, uint32_t handle):
        cdef Link link = <Link>number_get(self.by_remote_handle, handle)
        if link is None:
            raise RemoteError("session", INVALID_FIELD, f"no such handle: {handle}")
        return link

    # -- transfers ----------------------------------------------------------------------------------------------------

    cdef int transfer(self, const uint8_t* p, const uint8_t* end) except -1:
        cdef Transfer t
        cdef Link link
        parse_transfer(p, end, &t)
        link = self.link_of(t.handle)
        if link.pending:
            self.connection.pause(PAUSE_ATTACH)
            return FRAME_WAITS
        self.next_incoming_id += 1
        if <int>(self.next_incoming_id - self.update_at) >= 0:
            # Who did not see the window in time is let in, as far as memory goes.
            if self.window_left() < 0 and (self.strict or self.connection.full()):
                raise RemoteError("session", SESSION_WINDOW_VIOLATION,
                                  f"transfer {self.next_incoming_id - 1} is outside of the incoming window")
            self.window_changed = True
            self.connection.mark_channel(self)
        if not link.incoming:
            raise RemoteError("session", INVALID_FIELD, f"transfer on handle {t.handle}, which sends to you")
        if link.detached:
            # It counts for what comes after it, and goes nowhere.
            if t.has_delivery_id and t.delivery_id == self.expected_delivery_id:
                self.expected_delivery_id += 1
            return FRAME_TAKEN
        link.on_transfer(&t)
        return FRAME_TAKEN

    cdef int new_delivery(self, const Transfer* t) except -1:
        """The first transfer of a delivery has the id that is due (2.6.12)."""
        if not t.has_delivery_id:
            raise RemoteError("link", INVALID_FIELD, "transfer: the first of a delivery has no delivery-id")
        if self.any_delivery and t.delivery_id != self.expected_delivery_id:
            raise RemoteError("session", SESSION_INVALID_FIELD,
                              f"sequencing error, expected delivery-id {self.expected_delivery_id}, "
                              f"got {t.delivery_id}")
        self.any_delivery = True
        self.expected_delivery_id = t.delivery_id + 1
        return 0

    cdef int window_left(self) noexcept:
        """Frames that the peer may still send; less than 0 when it has sent more (it may not have seen the window
        shrink).
        """
        return <int>(self.incoming_limit - self.next_incoming_id)

    cdef void open_window(self, uint32_t frames) noexcept:
        """The peer may send so many frames from now on; what it was told before it may send in any case."""
        if self.window_left() < <int>frames:
            self.incoming_limit = self.next_incoming_id + frames
        self.update_at = self.incoming_limit - frames // 2
        self.set_shut(False)

    cdef void set_shut(self, bint shut) noexcept:
        if shut != self.shut:
            self.shut = shut
            totals.windows_shut += 1 if shut else -1

    cdef uint32_t window_now(self) noexcept:
        """Frames of the window that the peer may have now, 0: it is to stay shut (credit.md, "Windows")."""
        cdef size_t held = self.streams.held if self.streams is not NULL else 0
        cdef size_t whole = self.whole.held if self.whole is not NULL else 0
        if held < HOLD_OCTETS and (held + whole < HOLD_OCTETS or not self.connection.full()):
            if held == 0:
                self.pressed = False
            return self.held_window if self.pressed or self.connection.scheduler.crowded else self.incoming_window
        self.pressed = True
        # Somebody waits for what comes next, or comes for somebody who takes it.
        return self.held_window if not self.connection.full() and self.any_goes_on() else 0

    cdef bint any_goes_on(self) noexcept:
        cdef Link link = self.went_on
        if link is not None and link.goes_on():
            return True
        for link in self.by_handle:
            if link is not None and link.goes_on():
                self.went_on = link
                return True
        self.went_on = None
        return False

    cdef int update_window(self) except -1:
        """Give the peer a window again where what is held allows it."""
        cdef uint32_t frames
        cdef Flow f
        if <int>(self.next_incoming_id - self.update_at) < 0:
            return 0
        frames = self.window_now()
        if frames == 0:
            self.set_shut(self.window_left() <= 0)
            if self.shut and not self.watched and self.connection.full():
                self.watch()
            return 0
        self.open_window(frames)
        f.has_handle = f.echo = False
        self.send_flow(&f)
        return 0

    cdef Meter* streams_meter(self) except NULL:
        if self.streams is NULL:
            self.streams = meter_new(<void*>self, session_freed, self.connection.content_meter())
        return self.streams

    cdef Meter* whole_meter(self) except NULL:
        if self.whole is NULL:
            self.whole = meter_new(<void*>self, session_freed, self.connection.content_meter())
        return self.whole

    cdef void content_freed(self) noexcept:
        self.passed += 1
        self.look_at_window()

    cdef void look_at_window(self) noexcept:
        """Something has changed for which it may open, at the end of this wake."""
        if not self.ended and not self.window_changed and <int>(self.next_incoming_id - self.update_at) >= 0:
            self.window_changed = True
            self.connection.mark_channel(self)

    # -- the bound of memory ------------------------------------------------------------------------------------------

    cdef int watch(self) except -1:
        """The window is shut because there is no memory left. See to it that this does not last."""
        self.watched = self.first_look = True
        self.watched_passed = self.passed
        self.connection.scheduler.starved.append(self)
        return 0

    def check_starved(self):
        """For the scheduler: returns when (ms) to look again, 0: never. Where nobody takes anything of the session for
        STANDSTILL_MS and somebody waits for that, a link of the connection ends: of those of which nobody takes
        anything the one that holds most."""
        cdef uint64_t now = self.connection.scheduler.now
        cdef Channel channel
        cdef Link most = None
        if self.ended or not self.shut or not self.connection.full():
            self.watched = False
            self.window_changed = True
            self.connection.mark_channel(self)
            return 0
        for channel in self.connection.local_channels.values():
            most = (<Session>channel).fullest(most, now)
        if self.first_look:
            self.first_look = False
        elif self.passed == self.watched_passed and most is not None and self.any_goes_on():
            totals.given_up += 1
            self.connection.handler.on_given_up(most, most.octets_held(), most.give_up())
            self.look_at_window()
        self.watched_passed = self.passed
        return now + STANDSTILL_MS

    def end_by(self, fault):
        """A fault of ours on behalf of the session ends its connection."""
        self.connection.end_by(fault)

    cdef Link fullest(self, Link most, uint64_t now):
        """Of `most` and the links by which messages come that nobody has taken for STANDSTILL_MS: what holds most."""
        cdef Link link
        for link in self.by_handle:
            if link is None or not link.incoming or not link.octets_held():
                continue
            if link.passed != link.looked_passed or not link.stood_since:
                link.looked_passed = link.passed
                link.stood_since = now
            elif now - link.stood_since >= STANDSTILL_MS and (most is None or link.octets_held() > most.octets_held()):
                most = link
        return most

    # -- flow ---------------------------------------------------------------------------------------------------------

    cdef int flow(self, const uint8_t* p, const uint8_t* end) except -1:
        cdef Flow f
        cdef Link link = None
        cdef bint was_shut = self.remote_incoming_window == 0
        parse_flow(p, end, &f)
        if f.has_handle:
            link = self.link_of(f.handle)
        self.remote_incoming_window = f.next_incoming_id + f.incoming_window - self.next_outgoing_id
        if self.remote_incoming_window > f.incoming_window:
            # Only transfers on their way can make it smaller; a wrap means that they are more than the window.
            self.remote_incoming_window = 0
        if link is not None and not link.detached:
            link.on_flow(&f)
        elif f.echo:
            f.has_handle = f.echo = False
            self.send_flow(&f)
        if was_shut and self.remote_incoming_window:
            self.window_opened()
        return FRAME_TAKEN

    cdef int window_opened(self) except -1:
        """The peer takes transfers again: first from those links that had no turn since it did last."""
        cdef Endpoint link
        while self.served.last is not NULL:
            link = <Endpoint>self.served.last
            ready_remove(&self.served, link)
            ready_prepend(&self.ready, link)
        while self.waiting.last is not NULL:
            link = <Endpoint>self.waiting.last
            ready_remove(&self.waiting, link)
            ready_prepend(&self.ready, link)
        if self.ready.first is not NULL:
            self.connection.want_turn(self, False)
        return 0

    cdef bint turn(self) except *:
        cdef Endpoint link
        cdef uint32_t before = self.next_outgoing_id
        cdef int result
        if self.ready.first is NULL or self.ended:
            return False
        link = <Endpoint>self.ready.first
        ready_remove(&self.ready, link)
        result = link.pump(LINK_QUANTUM)
        if link.in_ready is NULL and not self.ended:
            if result == TURN_MORE:
                ready_append(&self.ready, link)
            elif result == TURN_WINDOW:
                ready_append(&self.waiting if before == self.next_outgoing_id else &self.served, link)
                self.contended = True
        if self.ready.first is not NULL:
            return not self.ended
        self.contended = self.waiting.first is not NULL or self.served.first is not NULL
        return False

    cdef int send_flow(self, Flow* flow) except -1:
        """Writes a flow of the router's own, of which `handle` to `echo` are set; the rest is filled in here."""
        flow.has_delivery_count = flow.has_link_credit = True
        flow.has_available = False
        flow.properties.size = 0
        return self.send_whole_flow(flow)

    cdef int send_whole_flow(self, Flow* flow) except -1:
        """Writes a flow of which the link's fields are complete."""
        cdef uint8_t* w
        if FLOW_ROOM + flow.properties.size > self.connection.remote_max_frame:
            flow.properties.size = 0       # another connection has longer frames
        w = buffer_room(&self.connection.out, FLOW_ROOM + flow.properties.size)
        flow.has_next_incoming_id = True
        flow.next_incoming_id = self.next_incoming_id
        if 4 * self.window_left() < 3 * <int>self.incoming_window and not self.pressed \
                and (self.streams is NULL or self.streams.held == 0):
            self.open_window(self.window_now())  # it needs no flow of its own then
        flow.incoming_window = self.window_left() if self.window_left() > 0 else 0
        flow.next_outgoing_id = self.next_outgoing_id
        flow.outgoing_window = WINDOW_OPEN
        self.connection.out.end += write_flow(w, self.local_channel, flow)
        self.connection.mark_dirty()
        return 0

    cdef void want_flow(self, Link link) noexcept:
        """The link has credit to grant, at the end of this wake."""
        if not link.needs_flow:
            link.needs_flow = True
            self.flows.append(link)
            self.connection.mark_channel(self)

    # -- dispositions -------------------------------------------------------------------------------------------------

    cdef int disposition(self, const uint8_t* p, const uint8_t* end) except -1:
        cdef Disposition d
        cdef uint8_t kind
        cdef uint32_t count
        parse_disposition(p, end, &d)
        kind = state_kind(&d.state)
        if d.state.size > 4 or (d.state.size and d.state.data[0]):
            # It is relayed in a frame of another connection: nobody else is to stumble over it.
            codec.decode_one(PyBytes_FromStringAndSize(<const char*>d.state.data, d.state.size))
        count = d.last - d.first + 1
        if count > 0x80000000 or count == 0:
            raise RemoteError("session", INVALID_FIELD, f"disposition of deliveries {d.first} to {d.last}: not a range")
        if d.role:
            self.apply_sent(d.first, count, kind, &d.state, d.settled)
        else:
            self.apply_received(d.first, count, kind, &d.state, d.settled)
        return FRAME_TAKEN

    cdef int apply_sent(self, uint32_t first, uint32_t count, uint8_t kind, const Slice* state, bint settled) except -1:
        """About deliveries that we sent."""
        cdef OutDelivery* o
        cdef uint32_t i
        cdef uint32_t* ids
        if count > 2 * self.sent.used + 64:
            ids = ids_within(&self.sent, first, &count)
            try:
                for i in range(count):
                    o = <OutDelivery*>map_get(&self.sent, ids[i])
                    if o is not NULL:
                        (<Link>o.downstream).delivery_outcome(o, kind, state, settled)
            finally:
                free(ids)
            return 0
        for i in range(count):
            o = <OutDelivery*>map_get(&self.sent, <uint32_t>(first + i))
            if o is not NULL:
                (<Link>o.downstream).delivery_outcome(o, kind, state, settled)
        return 0

    cdef int apply_received(self, uint32_t first, uint32_t count, uint8_t kind, const Slice* state,
                            bint settled) except -1:
        """About deliveries that we received."""
        cdef InDelivery* d
        cdef uint32_t i
        cdef uint32_t* ids
        if count > 2 * self.received.used + 64:
            ids = ids_within(&self.received, first, &count)
            try:
                for i in range(count):
                    d = <InDelivery*>map_get(&self.received, ids[i])
                    if d is not NULL:
                        (<Link>d.upstream).delivery_update(d, kind, state, settled)
            finally:
                free(ids)
            return 0
        for i in range(count):
            d = <InDelivery*>map_get(&self.received, <uint32_t>(first + i))
            if d is not NULL:
                (<Link>d.upstream).delivery_update(d, kind, state, settled)
        return 0

    cdef int report(self, uint32_t delivery_id, uint8_t kind, const Slice* state, bint settled) except -1:
        """Tell the producer about a delivery; equal outcomes of consecutive deliveries become one range."""
        cdef Range* r
        if not settled or state.size > 4 or (kind and kind != D_ACCEPTED and kind != D_RELEASED):
            # Has words of its own, or more will be said about it: nothing may overtake anything.
            self.flush_reports()
            return self.report_now(True, delivery_id, delivery_id, state, settled)
        if self.range_count:
            r = &self.ranges[self.range_count - 1]
            if kind == r.kind and delivery_id == r.first + r.count:
                r.count += 1
                return 0
            if self.range_count == RANGES:
                self.flush_reports()
        elif self.ranges is NULL:
            self.ranges = <Range*>malloc(RANGES * sizeof(Range))
            if self.ranges is NULL:
                raise MemoryError("dispositions")
        r = &self.ranges[self.range_count]
        r.first = delivery_id
        r.count = 1
        r.kind = kind
        self.range_count += 1
        self.connection.mark_channel(self)
        return 0

    cdef int flush_reports(self) except -1:
        cdef Slice state
        cdef uint32_t i, last
        cdef Range* r
        if self.range_count > 1:
            for i in range(self.range_count):
                self.ranges[i].behind = self.expected_delivery_id - self.ranges[i].first
            qsort(self.ranges, self.range_count, sizeof(Range), compare_ranges)
        i = 0
        while i < self.range_count:
            r = &self.ranges[i]
            i += 1
            while i < self.range_count and self.ranges[i].first == r.first + r.count and self.ranges[i].kind == r.kind:
                r.count += self.ranges[i].count
                i += 1
            last = r.first + r.count - 1
            state = plain_state(r.kind)
            self.report_now(True, r.first, last, &state, True)
        self.range_count = 0
        return 0

    cdef int report_now(self, bint role, uint32_t first, uint32_t last, const Slice* state, bint settled) except -1:
        cdef uint8_t* w
        cdef Slice plain
        if self.ended or self.connection.close_sent:
            return 0
        if DISPOSITION_ROOM + state.size > self.connection.remote_max_frame:
            plain = plain_state(state_kind(state))  # another connection has longer frames
            state = &plain
        w = buffer_room(&self.connection.out, DISPOSITION_ROOM + state.size)
        self.connection.out.end += write_disposition(w, self.local_channel, role, first, last, settled, state.data,
                                                     state.size)
        self.connection.mark_dirty()
        return 0

    cdef int flush(self) except -1:
        cdef Link link
        cdef list flows
        if self.ended:
            return 0
        self.flush_reports()
        # An idle session holds none of this.
        free(self.ranges)
        self.ranges = NULL
        if self.flows:
            flows = self.flows
            self.flows = []
            for link in flows:
                link.needs_flow = False
                if not link.detached:
                    link.grant()
            # A link that has credit now goes on.
            self.window_changed = self.window_changed or self.shut
        if self.window_changed:
            self.window_changed = False
            self.update_window()
        return 0

    # -- links --------------------------------------------------------------------------------------------------------

    cdef int attach(self, const uint8_t* p, const uint8_t* end) except -1:
        cdef list items = split_fields(p, end)
        cdef Link link
        if len(items) < 3:
            raise RemoteError("link", INVALID_FIELD, "attach: mandatory field name, handle or role is missing")
        name, handle, role = (codec.decode_one(item) for item in items[:3])
        if type(name) is not str or isinstance(handle, bool) or not isinstance(handle, int) \
                or not isinstance(role, bool):
            raise RemoteError("link", INVALID_FIELD, "attach: name, handle or role is not of its type")
        if not 0 <= handle <= 0xFFFFFFFF:
            raise RemoteError("link", INVALID_FIELD, "attach: handle is not a uint")
        if number_get(self.by_remote_handle, handle) is not None:
            raise RemoteError("link", SESSION_HANDLE_IN_USE, f"handle {handle} is in use")
        link = self.attaching.pop((name, not role), None)
        if link is not None:
            link.remote_handle = handle
            self.by_remote_handle.put(handle, link)
            if not link.detached:  # else nobody waits for the answer any more: the peer's detach is next
                self.handler.on_attached(link, items)
            return FRAME_TAKEN
        # Links of clients with equal names come from a router of Dispatch 1.19 as they are (LR-13).
        if (name, not role) in self.names and not self.routers:
            raise RemoteError("link", INVALID_FIELD, f"link name already attached: {name}")
        link = self.handler.on_attach(self, items)
        self.by_remote_handle.put(handle, link)
        return FRAME_TAKEN

    def add_link(self, Link link not None, name, remote_handle, incoming):
        """Give a new link its (lowest free) handle. remote_handle None: we attach it. Raises RemoteError when the peer
        allows no more.
        """
        handle = self.free_handles[0] if self.free_handles else len(self.by_handle)
        if handle > self.handle_max:
            raise RemoteError("session", RESOURCE_LIMIT, f"the peer's handle-max {self.handle_max} leaves no handle")
        if self.free_handles:
            heapq.heappop(self.free_handles)
            self.by_handle[handle] = link
        else:
            self.by_handle.append(link)
        self.names.add((name, incoming))
        link.session = self
        link.name = name
        link.handle = handle
        link.incoming = incoming
        link.initiated = remote_handle is None
        if link.initiated:
            self.attaching[name, incoming] = link
        else:
            link.remote_handle = remote_handle

    @property
    def room(self):
        """Whether we may attach another link. Until the peer has answered our begin it allows one, for all we know."""
        return (self.free_handles[0] if self.free_handles else len(self.by_handle)) \
            <= (0 if self.unanswered else self.handle_max)

    cdef int detach(self, const uint8_t* p, const uint8_t* end) except -1:
        cdef list items = split_fields(p, end)
        cdef Link link
        if not items:
            raise RemoteError("link", INVALID_FIELD, "detach: mandatory field handle is missing")
        handle = codec.decode_one(items[0])
        closed = len(items) > 1 and codec.decode_one(items[1]) is True
        if isinstance(handle, bool) or not isinstance(handle, int) or not 0 <= handle <= 0xFFFFFFFF:
            raise RemoteError("link", INVALID_FIELD, "detach: handle is not a uint")
        link = self.link_of(handle)
        if link.pending:
            self.connection.pause(PAUSE_ATTACH)
            return FRAME_WAITS
        self.by_remote_handle.remove(handle)
        link.answer_closed = closed
        link.detach_error = items[2] if len(items) > 2 and items[2] != b"\x40" else None
        link.peer_detached()
        return FRAME_TAKEN

    cdef int link_gone(self, Link link) except -1:
        """To be called once for each link, when it is lost for whatever reason."""
        link.gone = True
        if self.went_on is link:
            self.went_on = None
        self.names.discard((link.name, link.incoming))
        link.answers_later = self.handler.on_detached(link)
        if self.ended and link.answers_later:
            self.answers += 1
        return 0

    cdef int release(self, Link link) except -1:
        """Both detaches are through: the handle is free."""
        self.by_handle[link.handle] = None
        heapq.heappush(self.free_handles, link.handle)
        return 0

    def send_attach(self, items):
        """Write an attach of encoded items."""
        self.connection.send_frame(self.local_channel, codec.encode_described(P_ATTACH, items))

    def send_detach(self, uint32_t handle, closed, condition=None, description=None):
        """Write a detach, after the outcomes of what came on the link: behind it they would be of no use."""
        self.flush_reports()
        items = [codec.encode_uint(handle), b"\x41" if closed else b"\x42"]
        if condition is not None:
            items.append(codec.encode_error(condition, description))
        elif not closed:
            items.pop()
        self.connection.send_frame(self.local_channel, codec.encode_described(P_DETACH, items))

    def send_raw_detach(self, uint32_t handle, closed, error):
        """Write a detach with an encoded error, or None; after outcomes, as above."""
        self.flush_reports()
        if error and DETACH_ROOM + len(error) > self.connection.remote_max_frame:
            # Another connection has longer frames.
            error = short_error(error)
        items = [codec.encode_uint(handle), b"\x41" if closed else b"\x42"] + ([error] if error else [])
        self.connection.send_frame(self.local_channel, codec.encode_described(P_DETACH, items))

    def free_name(self, name, incoming):
        """A link name that no other link of the session has: two clients may have chosen the same for both."""
        chosen = name
        while (chosen, incoming) in self.names or (chosen, incoming) in self.attaching:
            self.copies += 1
            chosen = f"{name}#{self.copies + 1}"
        return chosen

    def forget_attach(self, Link link not None):
        """A link that was given a handle is not attached after all."""
        self.attaching.pop((link.name, link.incoming), None)

    def replace_link(self, Link old not None, Link new not None):
        """Another object stands for a link of which nothing has come yet but flows."""
        new.session = self
        new.name = old.name
        new.handle = old.handle
        new.remote_handle = old.remote_handle
        new.incoming = old.incoming
        self.by_handle[old.handle] = new
        self.by_remote_handle.put(old.remote_handle, new)
        old.gone = old.detached = True

    # -- end ----------------------------------------------------------------------------------------------------------

    cdef int end(self) except -1:
        """The peer's end: answered when the ends of its links are known wherever they matter."""
        self.lost()
        self.end_due = True
        return self.send_end() if self.answers == 0 else 0

    cdef int send_end(self) except -1:
        self.end_due = False
        self.connection.send_frame(self.local_channel, codec.encode_described(P_END, []))
        return self.connection.forget_channel(self)

    cdef int lost(self) except -1:
        """Every link is lost; nothing more is written."""
        cdef Link link
        if self.ended:
            return 0
        self.flush_reports()
        self.set_shut(False)
        self.ended = True
        for link in self.by_handle:
            if link is not None:
                link.forget_ready()
                if link.gone:
                    # Its detach waits for a confirmation, and the answer to an end waits with it.
                    self.answers += link.answers_later
                else:
                    try:
                        link.lost()
                    except Exception as fault:
                        self.lost_badly(link, fault)
        self.by_handle = []
        self.by_remote_handle = NumberTable()
        self.attaching = {}
        self.flows = []
        self.went_on = None                # it knows us: nothing of a session is to wait for the collector
        return 0

    cdef int lost_badly(self, Link link, object fault) except -1:
        """A fault of ours while a link was lost: the others are to be lost all the same. Deliveries that still refer to
        this link would outlive it, and nobody could say where they turn up: then the process ends.
        """
        if link.in_first is not NULL or link.queue_first is not NULL or link.sent_first is not NULL:
            raise FatalFault(f"a link could not be taken apart: {type(fault).__name__}: {fault}") from fault
        self.connection.report_fault(fault)
        link.detached = True
        if link.gone:
            return 0
        try:
            self.link_gone(link)
        except Exception as again:
            self.connection.report_fault(again)
        return 0


cdef int compare_ranges(const void* a, const void* b) noexcept nogil:
    cdef uint32_t x = (<Range*>a).behind
    cdef uint32_t y = (<Range*>b).behind
    return -1 if x > y else x < y


cdef int compare_ids(const void* a, const void* b) noexcept nogil:
    cdef uint32_t x = (<uint32_t*>a)[0]
    cdef uint32_t y = (<uint32_t*>b)[0]
    return -1 if x < y else x > y


cdef uint32_t* ids_within(const IdMap* m, uint32_t first, uint32_t* count) except NULL:
    """Keys of m in first … first + count - 1, in that order: for ranges far longer than what is there. Caller frees."""
    cdef uint32_t* ids = <uint32_t*>malloc((m.used + 1) * sizeof(uint32_t))
    cdef uint32_t i, found = 0
    if ids is NULL:
        raise MemoryError("disposition range")
    for i in range(m.size):
        if m.values[i] is not NULL and <uint32_t>m.keys[i] - first < count[0]:
            ids[found] = <uint32_t>m.keys[i] - first
            found += 1
    qsort(ids, found, sizeof(uint32_t), compare_ids)
    for i in range(found):
        ids[i] += first
    count[0] = found
    return ids
