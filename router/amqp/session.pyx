"""AMQP session (AMQP 1.0 part 2, 2.5): windows, delivery ids, dispositions over ranges.

routing-semantics.md 2.

Cold events go to a handler, a Python object with

    on_begun(session)                     the peer has answered this side's begin
    on_attach(session, fields) -> Link    the peer's attach (encoded items)
    on_attached(link, fields)             the peer's answer to an attach of this side; frames for an outgoing link wait
                                          until `link.decided()`
    on_detached(link) -> bool             the link was detached, or lost with its session. True: the answer to the
                                          peer's detach or end waits until `link.answer_detach()`
    on_message(link, octets)              while `link.logged`: the first 8192 octets of a message
    on_link_evicted(link, held, what)     at the bound of memory: the action taken on the link that held most
    on_wrong_transfer_count(session, next_id, sent)
                                          a flow has a next-incoming-id (or None) that is impossible after this many
                                          transfers; reported once for a session
    on_oversized(link)                    a message exceeds `limit_size`: it is dropped, and link and connection end
                                          after its last frame
"""
cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t
from libc.stdlib cimport free

from sluice.router.amqp.buffer cimport buffer_room, buffer_used
from sluice.router.amqp.channel cimport FRAME_TAKEN, FRAME_WAITS
from sluice.router.amqp.connection cimport PAUSE_ATTACH, PAUSE_MEMORY, Connection
from sluice.router.amqp.endpoint cimport (
    LINK_QUANTUM, OUTPUT_HIGH, TURN_MORE, TURN_WINDOW, DeliveryEntry, is_detached, is_pending, output_bound,
)
from sluice.router.amqp.frames cimport (
    FLOW_ROOM, parse_disposition, parse_flow, parse_transfer, usual_transfer, write_flow,
)
from sluice.router.amqp.id_map cimport IdMap, map_free, map_get, map_keys_within
from sluice.router.amqp.meter cimport DELIVERY_OCTETS, meter_new, meter_release
from sluice.router.amqp.node_list cimport ListNode, list_append, list_clear, list_prepend, list_remove
from sluice.router.amqp.object_table cimport number_at
from sluice.router.amqp.performatives cimport WINDOW_OPEN, begin_body, begin_values
from sluice.router.amqp.quota cimport Quota
from sluice.router.amqp.runs cimport runs_release
from sluice.router.amqp.scheduler cimport Scheduler, charge, slice_left
from sluice.router.amqp.session_links cimport HANDLE_MAX
from sluice.router.amqp.session_reports cimport SessionReports
from sluice.router.amqp.spec cimport (
    P_ATTACH, P_DETACH, P_DISPOSITION, P_FLOW, P_TRANSFER,
)
from sluice.router.amqp.states cimport state_kind
from sluice.router.amqp.survey cimport STANDSTILL_MS

from sluice.router.amqp import codec
from sluice.router.amqp.errors import (
    INVALID_FIELD, NOT_ALLOWED, SESSION_INVALID_FIELD, SESSION_WINDOW_VIOLATION, RemoteError, delivery_id_in_use,
)

cdef enum:
    # Window in octets if the configuration names none. It is counted at first in frames of the largest size, within
    # these bounds, then in frames of the average size received, up to WINDOW_SHORT. A peer with small messages is to
    # be limited by credit, not by the window.
    WINDOW_OCTETS = 8388608
    WINDOW_FEWEST = 64
    WINDOW_MOST = 8192
    WINDOW_SHORT = 2048
    FRAMES_MEASURED = 64       # frames received before the window follows their average size
    FINISHING_FRAMES = 2       # window in which a session completes messages at the bound of a quota
    FRAME_OVERHEAD = 32        # octets of a transfer frame besides its payload, approximately
    HELD_WINDOW_OCTETS = 1048576  # window in octets while something is held up
    SLOTS_PER_UNIT = 16          # slots of a map that are visited for one cost unit


cdef void session_freed(void* owner) noexcept:
    (<Session>owner).content_freed()


cdef uint32_t frames_of(uint32_t octets, Connection connection, uint32_t fewest, uint32_t most) noexcept:
    """Return the number of frames of the largest size that hold `octets` octets, within bounds."""
    cdef uint32_t frames = octets // connection.local_max_frame
    if frames < fewest:
        frames = fewest
    return frames if frames < most else most


cdef inline int take_transfer(Session session, const uint8_t* p, const uint8_t* end) except -1:
    cdef Transfer t
    cdef Endpoint link
    cdef void* found
    if not usual_transfer(p, end, &t):
        parse_transfer(p, end, &t)
    found = number_at(<void*>session.by_remote_handle, t.handle)
    link = <Endpoint>found if found is not NULL and found is not <void*>None else session.link_of(t.handle)
    if is_pending(link):
        session.connection.pause(PAUSE_ATTACH)
        return FRAME_WAITS
    if <int>(session.next_incoming_id - session.update_at) >= -1 and not session.window_used():
        return FRAME_WAITS
    session.next_incoming_id += 1
    session.octets += t.payload.size
    if not link.incoming:
        raise RemoteError("session", INVALID_FIELD,
                          f"transfer on handle {t.handle}, on whose link the peer is the receiver")
    if is_detached(link):
        # The transfer counts for the ids of later ones, and is dropped.
        if t.has_delivery_id and t.delivery_id == session.expected_delivery_id:
            session.expected_delivery_id += 1
    elif link.size_limit:
        link.on_limited_transfer(&t)
    else:
        link.on_transfer(&t)
    return FRAME_TAKEN


cdef class Session(SessionReports):
    """AMQP session. Owner: its connection."""

    def __cinit__(self, Connection connection not None, remote_channel, list begin, handler, *, window=None,
                  routers=False):
        """Create a session and write this side's begin.

        begin: items of the peer's begin, encoded; None: this side begins first, and there is no remote channel yet.
        window: frames; None: not configured. routers: the peer is a router.
        """
        self.connection = connection
        self.handler = handler
        self.routers = routers
        self.flows = []
        self.strict = window is not None
        if self.strict:
            self.incoming_window = min(window, WINDOW_OPEN)
        else:
            self.incoming_window = frames_of(WINDOW_OCTETS, connection, WINDOW_FEWEST, WINDOW_MOST)
        self.long_window = self.incoming_window
        self.held_window = frames_of(HELD_WINDOW_OCTETS, connection, 2, self.incoming_window)
        if begin is None:
            self.unanswered = True
        else:
            self.take_begin(begin)
        connection.assign_channel(self, remote_channel)
        connection.send_frame(self.local_channel,
                              begin_body(None if begin is None else remote_channel,
                                         self.incoming_window if self.strict else WINDOW_OPEN, HANDLE_MAX, routers))

    cdef int take_begin(self, list begin) except -1:
        """Take the values of the peer's begin."""
        cdef list values = begin_values(begin)
        if values[4] is not None:
            self.handle_max = values[4]
        self.next_incoming_id = self.incoming_limit = self.promised_limit = self.measured_at = values[1]
        self.remote_incoming_window = values[2]
        if self.strict:
            self.promised_limit += self.incoming_window    # announced by this side's begin
        self.open_window(min(self.incoming_window, self.window_most()))
        return 0

    cdef int answered(self, uint16_t number, list items) except -1:
        """Handle the peer's answer to this side's begin."""
        self.take_begin(items)
        self.window_opened()
        self.handler.on_begun(self)
        return 0

    def __dealloc__(self):
        list_clear(&self.ready)
        list_clear(&self.waiting)
        list_clear(&self.served)
        map_free(&self.sent)
        map_free(&self.received)
        if self.streams is not NULL:
            self.streams.owner = NULL
            meter_release(self.streams)
        if self.whole is not NULL:
            self.whole.owner = NULL
            meter_release(self.whole)
        if self.crossed is not NULL:
            meter_release(self.crossed)

    cdef int frame(self, uint8_t code, const uint8_t* p, const uint8_t* end) except -1:
        if code == P_TRANSFER:
            return take_transfer(self, p, end)
        if code == P_DISPOSITION:
            return self.disposition(p, end)
        if code == P_FLOW:
            return self.flow(p, end)
        if code == P_ATTACH:
            return self.attach(p, end)
        if code == P_DETACH:
            return self.detach(p, end)
        raise RemoteError("session", NOT_ALLOWED, f"performative 0x{code:02x} is not allowed within a session")

    # -- transfers ----------------------------------------------------------------------------------------------------

    cdef bint window_used(self) except *:
        """Note that half of the window or more is used with the current frame. False: the frame waits for room.

        A peer may not have seen in time that its window was shortened. Its frames are accepted as far as memory
        allows. Raises RemoteError for a frame that no window ever promised, if the configuration or memory leaves no
        room for it.
        """
        if <int>(self.promised_limit - self.next_incoming_id) <= 0 and (self.strict or self.connection.full()):
            raise RemoteError("session", SESSION_WINDOW_VIOLATION,
                              f"transfer {self.next_incoming_id} is outside of the incoming window")
        if self.connection.must_defer_transfer(self.window_left() > 0):
            self.connection.pause(PAUSE_MEMORY)
            self.wait_for_room()
            return False
        self.window_changed = True
        self.connection.mark_channel(self)
        return True

    cdef int new_delivery(self, const Transfer* t) except -1:
        """Check that the first transfer of a delivery has the expected id (2.6.12)."""
        if not t.has_delivery_id:
            raise RemoteError("link", INVALID_FIELD, "transfer: the first transfer of a delivery has no delivery-id")
        if self.any_delivery and t.delivery_id != self.expected_delivery_id:
            raise RemoteError("session", SESSION_INVALID_FIELD,
                              f"sequencing error, expected delivery-id {self.expected_delivery_id}, "
                              f"got {t.delivery_id}")
        self.any_delivery = True
        self.expected_delivery_id = t.delivery_id + 1
        return 0

    cdef void note_delivery_id_reused(self) noexcept:
        """Note that a new delivery has the id of one unsettled for 2**32 deliveries: the two cannot be told
        apart. `flush` ends the connection, since no caller is in the middle of a delivery there."""
        self.delivery_id_reused = True
        self.connection.mark_channel(self)

    @cython.final
    cdef int window_left(self) noexcept:
        """Return the frames that the peer may still send; below 0: it has sent more, since it may not have seen the
        window shrink.
        """
        return <int>(self.incoming_limit - self.next_incoming_id)

    cdef void open_window(self, uint32_t frames) noexcept:
        """Allow the peer `frames` more frames. A wider window announced before is not shortened."""
        if self.window_left() < <int>frames:
            self.incoming_limit = self.next_incoming_id + frames
            if <int>(self.incoming_limit - self.promised_limit) > 0:
                self.promised_limit = self.incoming_limit
        self.update_at = self.incoming_limit - frames // 2
        self.set_shut(False)

    cdef void shorten_window(self) noexcept:
        cdef uint32_t frames = 0 if self.connection.must_defer_transfer(True) else self.window_most()
        if self.ended or self.unanswered or self.window_left() <= <int>frames:
            return
        self.incoming_limit = self.next_incoming_id + frames
        self.update_at = self.incoming_limit - frames // 2
        self.shorter = True
        self.window_changed |= frames == 0     # from now on the link waits for room
        self.connection.mark_channel(self)

    cdef void adjust_window(self) noexcept:
        """Adjust the window to the average size of the frames received since the last time."""
        cdef uint32_t frames = self.next_incoming_id - self.measured_at
        cdef uint64_t most
        if self.strict or frames < FRAMES_MEASURED:
            return
        most = <uint64_t>WINDOW_OCTETS // (self.octets // frames + FRAME_OVERHEAD)
        if most > WINDOW_SHORT:
            most = WINDOW_SHORT
        self.incoming_window = <uint32_t>most if most > self.long_window else self.long_window
        self.measured_at = self.next_incoming_id
        self.octets = 0

    cdef void set_shut(self, bint shut) noexcept:
        if shut != self.shut:
            self.shut = shut
            self.connection.process.windows_shut += 1 if shut else -1
        if self.waits and not shut:
            self.waits = False
            self.connection.resume(PAUSE_MEMORY)
            if self.connection.shut is not None:
                self.connection.shut.discard(self)

    cdef uint32_t window_now(self) noexcept:
        """Return the frames of the window that the peer may have now; 0: it stays shut (credit.md, "Windows").

        inter-router-protocol.md 3.3.
        """
        cdef size_t held = self.streams.held if self.streams is not NULL else 0
        cdef size_t whole = self.whole.held if self.whole is not NULL else 0
        cdef Quota quota = self.connection.quota
        if quota is not None and not quota.frames(self.connection.local_max_frame):
            quota.wait_session(self)
            # Otherwise parts of messages that nobody can take yet would fill the bound permanently.
            return FINISHING_FRAMES if quota.full() and self.any_unrouted() else 0
        if held < HOLD_OCTETS and (not self.connection.full() or held + whole + self.awaited() < self.little()):
            if held == 0:
                self.pressed = False
            return min(self.held_window if self.pressed else self.incoming_window, self.window_most())
        self.pressed = True
        # Open a small window if somebody waits for what comes next, or some link can pass on what arrives.
        if self.connection.full() or not self.any_can_progress():
            return 0
        return min(self.held_window, self.window_most())

    cdef size_t awaited(self) noexcept:
        """Return the octets that count for received deliveries that are not settled.

        Messages at other workers count at the connection's bound only, since this process does not hold them.
        """
        cdef size_t octets = 0 if self.connection.relays else DELIVERY_OCTETS * <size_t>self.received.used
        if self.crossed is not NULL and self.connection.content_full():
            octets += self.crossed.held
        return octets

    cdef size_t little(self) noexcept:
        """Return the octets that the session may hold at a bound of memory and still get a window."""
        return min(HOLD_OCTETS,
                   self.connection.process.guaranteed_octets() // max(self.connection.local_channels.count, 1))

    cdef uint32_t window_most(self) noexcept:
        """Return the frames of the largest size for which memory and quota have room, at least one."""
        cdef uint64_t octets = self.connection.window_octets()
        cdef Quota quota = self.connection.quota
        cdef uint32_t frames = WINDOW_OPEN
        if octets < WINDOW_OCTETS:
            frames = max(<uint32_t>octets // self.connection.local_max_frame, 1)
        return frames if quota is None else min(frames, max(quota.frames(self.connection.local_max_frame), 1))

    cdef int update_window(self) except -1:
        """Open the peer's window again if the octets held allow it."""
        cdef uint32_t frames
        if <int>(self.next_incoming_id - self.update_at) < 0 or self.incoming_window == 0:
            return 0
        self.adjust_window()
        frames = self.window_now()
        if frames == 0:
            self.set_shut(self.window_left() <= 0)
            if self.shut and self.connection.full():
                self.wait_for_room()
            return 0
        self.open_window(frames)
        return self.send_window()

    cdef void wait_for_room(self) noexcept:
        if not self.waits:
            self.waits = True
            self.waits_since = self.connection.scheduler.now
            self.waits_passed = self.passed
            self.connection.wait_for_room(self)

    cdef int send_window(self) except -1:
        cdef Flow f
        f.has_handle = f.echo = False
        return self.send_flow(&f)

    cdef Meter* streams_meter(self) except NULL:
        if self.streams is NULL:
            self.streams = meter_new(<void*>self, session_freed, self.connection.content_meter())
        return self.streams

    cdef Meter* whole_meter(self) except NULL:
        if self.whole is NULL:
            self.whole = meter_new(<void*>self, session_freed, self.connection.content_meter())
        return self.whole

    cdef Meter* crossed_meter(self) except NULL:
        if self.crossed is NULL:
            self.crossed = meter_new(NULL, NULL, self.connection.crossed_meter())
        return self.crossed

    cdef void content_freed(self) noexcept:
        self.passed += 1
        self.recheck_window()

    cdef void recheck_window(self) noexcept:
        """Have the window recomputed at the end of this wake, if it may open."""
        if not self.ended and not self.window_changed and <int>(self.next_incoming_id - self.update_at) >= 0:
            self.window_changed = True
            self.connection.mark_channel(self)

    # -- the bound of memory ------------------------------------------------------------------------------------------

    cdef void reopen_window(self) noexcept:
        self.waits = False
        self.connection.resume(PAUSE_MEMORY)
        self.recheck_window()

    cdef bint has_waited_too_long(self, uint64_t now) noexcept:
        """True if nothing of the session was taken for STANDSTILL_MS although some link, or a frame that waits, could
        make progress."""
        if self.passed != self.waits_passed:
            self.waits_passed = self.passed
            self.waits_since = now
        return now - self.waits_since >= STANDSTILL_MS and (self.connection.paused & PAUSE_MEMORY
                                                            or self.any_can_progress())

    # -- flow ---------------------------------------------------------------------------------------------------------

    cdef int flow(self, const uint8_t* p, const uint8_t* end) except -1:
        cdef Flow f
        cdef Endpoint link = None
        cdef bint was_shut = self.remote_incoming_window == 0
        parse_flow(p, end, &f)
        if f.has_handle:
            link = self.link_of(f.handle)
        self.apply_flow_window(&f)
        if link is not None and not is_detached(link):
            link.on_flow(&f)
        elif f.echo:
            f.has_handle = f.echo = False
            self.send_flow(&f)
        if was_shut and self.remote_incoming_window:
            self.window_opened()
        return FRAME_TAKEN

    cdef int apply_flow_window(self, const Flow* f) except -1:
        """Compute the frames that the peer accepts from its flow: its window less the transfers that it had not
        received.

        The result never exceeds the window, since ids are serial numbers (RFC 1982). If the id is ahead of what was
        sent, or missing, the window counts from what was sent, as in Proton.
        """
        cdef int32_t under_way = 0
        cdef bint wrong = False
        if f.has_next_incoming_id:
            under_way = <int32_t>(self.next_outgoing_id - f.next_incoming_id)
            wrong = under_way < 0
            if wrong:
                under_way = 0
        elif f.incoming_window:
            # A peer that has not received this side's begin has no id to name (2.7.4). A peer that was sent a whole
            # window has.
            wrong = self.next_outgoing_id >= f.incoming_window
        self.remote_incoming_window = f.incoming_window - <uint32_t>under_way \
            if <uint32_t>under_way < f.incoming_window else 0
        if wrong and not self.miscounted:
            self.miscounted = True
            self.handler.on_wrong_transfer_count(self, f.next_incoming_id if f.has_next_incoming_id else None,
                                                 self.next_outgoing_id)
        return 0

    cdef int window_opened(self) except -1:
        """Let links write again after the peer opened its window, beginning with those that had no turn since it was
        last open."""
        cdef ListNode* node
        while self.served.last is not NULL or self.waiting.last is not NULL:
            node = self.served.last if self.served.last is not NULL else self.waiting.last
            list_remove(node)
            list_prepend(&self.ready, node)
        if self.ready.first is not NULL:
            self.connection.want_turn(self, False)
        return 0

    cdef bint turn(self) except *:
        cdef Endpoint link
        cdef uint32_t before = self.next_outgoing_id
        cdef int result
        if self.ended:
            return False
        if self.any_report_due():
            self.write_reports(output_bound(&self.ready))
            if self.any_report_due():
                return True
        if self.flow_due():
            self.write_flows()
        if self.ready.first is NULL:
            self.contended = self.waiting.first is not NULL or self.served.first is not NULL
            return False
        link = <Endpoint>self.ready.first.object
        list_remove(&link.turn)
        result = link.pump(LINK_QUANTUM)
        if link.turn.list is NULL and not self.ended:
            if result == TURN_MORE:
                list_append(&self.ready, &link.turn)
            elif result == TURN_WINDOW:
                list_append(&self.waiting if before == self.next_outgoing_id else &self.served, &link.turn)
                self.contended = True
        if self.ready.first is not NULL:
            return not self.ended
        self.contended = self.waiting.first is not NULL or self.served.first is not NULL
        return False

    cdef int send_flow(self, Flow* flow) except -1:
        """Write a flow of the router itself. `handle` to `echo` are set by the caller, the rest here."""
        flow.has_delivery_count = flow.has_link_credit = True
        flow.has_available = False
        flow.properties.size = 0
        return self.send_whole_flow(flow)

    cdef int send_whole_flow(self, Flow* flow) except -1:
        """Write a flow whose link fields are complete."""
        cdef uint8_t* w
        cdef uint32_t frames
        if FLOW_ROOM + flow.properties.size > self.connection.remote_max_frame:
            flow.properties.size = 0       # they came over a connection with longer frames
        w = buffer_room(&self.connection.out, FLOW_ROOM + flow.properties.size)
        flow.has_next_incoming_id = True
        flow.next_incoming_id = self.next_incoming_id
        if 4 * self.window_left() < 3 * <int>self.incoming_window and not self.pressed \
                and (self.streams is NULL or self.streams.held == 0):
            self.adjust_window()
            frames = self.window_now()
            if frames:
                self.open_window(frames)   # saves a flow of its own
        flow.incoming_window = self.window_left() if self.window_left() > 0 else 0
        self.shorter = False
        flow.next_outgoing_id = self.next_outgoing_id
        flow.outgoing_window = WINDOW_OPEN
        self.connection.out.end += write_flow(w, self.local_channel, flow)
        self.connection.mark_dirty()
        return 0

    cdef void want_flow(self, Endpoint link) noexcept:
        """List a link that has credit to grant at the end of this wake."""
        if not link.needs_flow:
            link.needs_flow = True
            self.flows.append(link)
            self.connection.mark_channel(self)

    # -- dispositions -------------------------------------------------------------------------------------------------

    @cython.final
    cdef int check_value(self, const Slice* value) except -1:
        """Check a value that is relayed to another connection, such as a delivery state, and charge for it: decoding a
        map of small values costs more than 0.1 microseconds for each octet."""
        if value.size > 4 or (value.size and value.data[0]):
            charge(self.connection.scheduler, <uint32_t>value.size * UNITS_PER_OCTET)
            codec.decode_one(PyBytes_FromStringAndSize(<const char*>value.data, value.size))
        return 0

    @cython.final
    cdef int disposition(self, const uint8_t* p, const uint8_t* end) except -1:
        cdef Disposition d
        cdef uint8_t kind
        cdef uint32_t count, done
        parse_disposition(p, end, &d)
        kind = state_kind(&d.state)
        if not self.applied:
            self.check_value(&d.state)
        count = d.last - d.first + 1
        if count > 0x80000000 or count == 0:
            raise RemoteError("session", INVALID_FIELD, f"disposition: last {d.last} is before first {d.first}")
        # The frame is offered again until its whole range is handled.
        done = self.applied
        self.applied = 0
        if d.role:
            done += self.apply_sent(d.first + done, count - done, kind, &d.state, d.settled)
        else:
            done += self.apply_received(d.first + done, count - done, kind, &d.state, d.settled)
        if done == count or self.ended:
            return FRAME_TAKEN
        self.applied = done
        self.connection.pause_for_slice()
        return FRAME_WAITS

    @cython.final
    cdef uint32_t apply_sent(self, uint32_t first, uint32_t count, uint8_t kind, const Slice* state,
                             bint settled) except? 0xFFFFFFFF:
        """Apply a disposition to deliveries sent. Return the number of ids handled: all, or as many as the slice
        allows, at least one."""
        cdef DeliveryEntry* entry
        cdef uint32_t i = 0
        cdef uint32_t most
        if count > 2 * self.sent.used + 64:
            return self.apply_sparse(True, first, count, kind, state, settled)
        most = slice_left(self.connection.scheduler)
        if count > most:
            count = most
        while i < count:
            entry = <DeliveryEntry*>map_get(&self.sent, <uint32_t>(first + i))
            if entry is NULL:
                i += 1
            elif settled and kind:
                i += (<Endpoint>entry.owner.link).deliveries_settled(entry, count - i, kind, state)
            else:
                (<Endpoint>entry.owner.link).delivery_outcome(entry, kind, state, settled)
                i += 1
        charge(self.connection.scheduler, count)
        return count

    cdef uint32_t apply_received(self, uint32_t first, uint32_t count, uint8_t kind, const Slice* state,
                                 bint settled) except? 0xFFFFFFFF:
        """Apply a disposition to deliveries received. Return the number of ids handled, as apply_sent does."""
        cdef DeliveryEntry* entry
        cdef uint32_t i, most
        if count > 2 * self.received.used + 64:
            return self.apply_sparse(False, first, count, kind, state, settled)
        most = slice_left(self.connection.scheduler)
        if count > most:
            count = most
        for i in range(count):
            entry = <DeliveryEntry*>map_get(&self.received, <uint32_t>(first + i))
            if entry is not NULL:
                (<Endpoint>entry.owner.link).delivery_update(entry, kind, state, settled)
        charge(self.connection.scheduler, count)
        return count

    cdef uint32_t apply_sparse(self, bint role, uint32_t first, uint32_t count, uint8_t kind, const Slice* state,
                               bint settled) except? 0xFFFFFFFF:
        """Apply a disposition whose range is far longer than the number of deliveries, by walking the deliveries.
        Return the number of ids handled, as apply_sent does."""
        cdef IdMap* deliveries = &self.sent if role else &self.received
        cdef Scheduler scheduler = self.connection.scheduler
        cdef DeliveryEntry* entry
        cdef uint32_t i, most
        cdef uint32_t n = count
        cdef uint32_t* ids = map_keys_within(deliveries, first, &n)
        charge(scheduler, 1 + deliveries.size // SLOTS_PER_UNIT)
        most = slice_left(scheduler)
        charge(scheduler, n if n < most else most)
        try:
            for i in range(n if n < most else most):
                entry = <DeliveryEntry*>map_get(deliveries, ids[i])
                if entry is NULL:
                    pass                       # settled along with an earlier one
                elif role:
                    (<Endpoint>entry.owner.link).delivery_outcome(entry, kind, state, settled)
                else:
                    (<Endpoint>entry.owner.link).delivery_update(entry, kind, state, settled)
            return count if n <= most else ids[most] - first
        finally:
            free(ids)

    cdef int flush(self) except -1:
        if self.ended:
            return 0
        if self.delivery_id_reused:
            self.connection.fail(delivery_id_in_use())
            return 0
        self.flush_settlements()
        if self.any_report_due():
            self.write_reports(OUTPUT_HIGH)
        # An idle session keeps no memory for settlements.
        runs_release(&self.settlements)
        if self.flow_due():
            if buffer_used(&self.connection.out) < OUTPUT_HIGH:
                self.write_flows()
            else:
                # Credit is granted only if the producer can be notified: a peer that does not read gets none.
                self.connection.want_turn(self, False)
        return 0

    @cython.final
    cdef bint flow_due(self) noexcept:
        return self.window_changed or self.shorter or len(self.flows) > 0

    cdef int write_flows(self) except -1:
        """Grant credit to the listed links, and open the peer's window."""
        cdef Endpoint link
        cdef list flows
        if self.flows:
            flows = self.flows
            self.flows = []
            for link in flows:
                link.needs_flow = False
                if not is_detached(link):
                    link.grant()
            # A link that got credit can make progress, which may open the window.
            self.window_changed = self.window_changed or self.shut
        if self.window_changed:
            self.window_changed = False
            self.update_window()
        if self.shorter:
            self.send_window()
        return 0

    # -- end ----------------------------------------------------------------------------------------------------------

    cdef int stop(self) except -1:
        self.flush_reports()
        self.connection.resume(PAUSE_MEMORY)
        self.set_shut(False)
        self.remote_incoming_window = 0    # transfers for its consumers wait with them for their end
        self.flows = []
        return 0
