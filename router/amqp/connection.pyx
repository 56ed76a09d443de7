"""AMQP connection (AMQP 1.0 part 2, 2.4): headers, open and close, channels, idle time-out, output.

Octets enter by `receive` and leave from `out` after `prepare`. Cold events go to a handler, a Python object with

    on_open(connection, open)                                   the peer's open, a dict; answer with `send_open`, now
                                                                or, after `pause(PAUSE_OPEN)`, later
    on_begin(connection, remote_channel, fields) -> Channel     a session for the peer's begin
    on_session_error(channel, error)                            the peer ends a session with an error; its links are
                                                                lost next
    on_closing(connection, error) -> bool                       the peer's close; every channel is lost. True: the
                                                                answer waits until `connection.answer_close()`
    on_closed(connection, error)                                the end; error: (condition, description) or None
    authenticator() -> SaslServer | None                        the peer requests the SASL layer; None: not allowed
                                                                (as initiator: SaslClient, for `start`; None: no SASL
                                                                layer). Its answers may come later, by
                                                                `connection.answer_sasl(octets)`
    refusal(connection, sasl) -> (condition, description) | None
                                                                the peer begins the SASL layer (sasl) or the AMQP layer,
                                                                which may be without SASL
    on_authenticated(connection, user)                          SASL has succeeded (as initiator: send the open now;
                                                                user None: without SASL)
    on_fault(connection, exception)                             internal error, to be logged; the connection is closed
    on_frame(connection, received, octets, size)                while `traced`: a frame (its first TRACE_OCTETS octets)
                                                                or a protocol header, received or about to be sent

States and the events between them (any error leads to CLOSED, after a close frame if one may be sent):

    HEADER --"AMQP" 3 1 0 0--> SASL --outcome ok--> HEADER2 --"AMQP" 0 1 0 0--> OPENING --open--> OPEN --close--> CLOSED
    HEADER --"AMQP" 0 1 0 0--> OPENING

The initiator takes the same paths after `start`. With SASL, its AMQP header and open follow the outcome at once.
"""
cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize

from sluice.router.amqp.buffer cimport buffer_used, read16, read32
from sluice.router.amqp.channel cimport FRAME_WAITS, Channel
from sluice.router.amqp.codec cimport open_described, split_fields
from sluice.router.amqp.connection_channels cimport CHANNEL_MAX_LIMIT, above_channel_max
from sluice.router.amqp.memory cimport CONNECTION_CONTENT
from sluice.router.amqp.object_table cimport ObjectTable, number_at
from sluice.router.amqp.performatives cimport open_body, open_fields, open_values
from sluice.router.amqp.quota cimport Quota
from sluice.router.amqp.scheduler cimport FRAMES_PER_TURN, slice_used
from sluice.router.amqp.spec cimport (
    FRAME_AMQP, FRAME_HEADER, FRAME_SASL, MIN_MAX_FRAME_SIZE, P_ATTACH, P_BEGIN, P_CLOSE, P_DETACH, P_END, P_OPEN,
    T_SMALLULONG,
)

from collections import deque
from enum import IntEnum

from sluice.router.amqp import codec
from sluice.router.amqp.errors import (
    FRAMING_ERROR, INTERNAL_ERROR, NOT_ALLOWED, NOT_IMPLEMENTED, RESOURCE_LIMIT, AmqpError, LocalError, RemoteError,
)
from sluice.router.amqp.headers import AMQP_HEADER, SASL_HEADER, TLS_HEADER, bad_header, not_expected
from sluice.router.amqp.performatives import read_error

cdef enum:
    HEADER = 0
    SASL = 1
    HEADER2 = 2
    OPENING = 3
    OPEN = 4
    CLOSED = 5


# The reasons for a pause by name, for Python.
Pause = IntEnum("Pause", {
    "PAUSE_ATTACH": PAUSE_ATTACH, "PAUSE_TURN": PAUSE_TURN, "PAUSE_SASL": PAUSE_SASL, "PAUSE_OPEN": PAUSE_OPEN,
    "PAUSE_SLICE": PAUSE_SLICE, "PAUSE_MEMORY": PAUSE_MEMORY,
}, module=__name__)

STATES = ("header", "sasl", "header after sasl", "opening", "open", "closed")

cdef enum:
    USUAL_HEADER = 2 << 8 | FRAME_AMQP  # data offset and type of a frame without an extended header

cdef bytes EMPTY_FRAME = b"\x00\x00\x00\x08\x02\x00\x00\x00"

# Reason for the end of a connection that the router opened, in the words of Dispatch (brokers-and-edge.md C-7).
IDLE = (RESOURCE_LIMIT, "local-idle-timeout expired")
# Item that a connection opened by the router waited for, by its state. The handshakes of TLS and WebSocket come before
# the SASL header.
AWAITED = ("SASL header", "answer in SASL", "AMQP header", "open")
NO_HEADER = (FRAMING_ERROR, "Expected AMQP protocol header: no protocol header found (connection aborted)")
ABORTED = (FRAMING_ERROR, "connection aborted")
MALFORMED_SASL = (FRAMING_ERROR, "malformed SASL frame")
TLS_HEADER_REFUSED = (FRAMING_ERROR, "AMQP's TLS header is not supported: set the client to start TLS without it, on a"
                      " listener with an sslProfile")

cdef enum:
    LEAST_IDLE_MS = 100        # shortest idle-time-out that a peer may request; each period costs two empty frames
    # Action after all links of a connection have ended.
    THEN_NOTHING = 0
    THEN_CLOSING = 1           # call on_closing: the peer has closed
    THEN_CLOSED = 2            # call on_closed


cdef inline int take_frame(Connection connection, const uint8_t* frame, uint32_t size) except -1:
    """Handle a frame, with a fast path for the usual flow, transfer or disposition of a session with a listed channel.
    """
    cdef Channel channel
    cdef void* found
    if size > FRAME_HEADER + 3 and connection.state == OPEN and read16(frame + 4) == USUAL_HEADER \
            and read16(frame + 8) == T_SMALLULONG and P_ATTACH < frame[10] < P_DETACH:
        found = number_at(<void*>connection.channels, read16(frame + 6))
        if found is not NULL and found is not <void*>None:
            channel = <Channel>found
            return channel.frame(frame[10], frame + 11, frame + size)
    return connection.one_frame(frame, size)


cdef tuple silence(Connection connection):
    """Return the error of a connection that is not open in time."""
    condition, text = IDLE
    if not connection.initiator:
        return condition, text
    return condition, f"{text} before the peer's {AWAITED[connection.state]}"


cdef class Connection(ConnectionChannels):
    """AMQP connection. Owner: the worker."""

    def __cinit__(self, Scheduler scheduler not None, handler, *, max_frame=16384, channel_max=CHANNEL_MAX_LIMIT,
                  idle_ms=0, initiator=False, content_limit=CONNECTION_CONTENT, relays=False):
        self.scheduler = scheduler
        self.process = scheduler.memory
        self.handler = handler
        self.initiator = initiator
        self.state = HEADER
        self.content_limit = content_limit
        self.relays = relays
        self.local_max_frame = max(max_frame, MIN_MAX_FRAME_SIZE)
        self.local_channel_max = min(channel_max, CHANNEL_MAX_LIMIT)
        self.remote_max_frame = MIN_MAX_FRAME_SIZE
        self.local_idle = idle_ms
        self.last_received = self.last_sent = scheduler.now

    def start(self):
        """Request the SASL layer, as initiator (brokers-and-edge.md C-14; inter-router.md 2.1).

        inter-router-protocol.md 2.1. Without an authenticator, AMQP begins at once, as with the tools of 1.19
        (management.md 8.1).
        """
        self.sasl = self.handler.authenticator()
        if self.sasl is None:
            self.state = HEADER2
            self.write(AMQP_HEADER)
            self.handler.on_authenticated(self, None)
            return
        self.write(SASL_HEADER)

    # -- input --------------------------------------------------------------------------------------------------------

    cdef Py_ssize_t receive(self, const uint8_t* data, size_t size) except -1:
        """Handle received octets; return the number of octets taken. Offer the rest again when more has arrived.

        An error, of the peer or internal, ends this connection and is not raised.
        """
        cdef Py_ssize_t taken
        self.last_received = self.scheduler.now
        if self.finished or self.answers_later:
            return size
        self.turn_left = FRAMES_PER_TURN
        self.scheduler.charged += self.scheduler.work
        self.scheduler.work = 0
        try:
            taken = self.consume(data, size)
        except Exception as error:
            self.end_by(error)
            return size
        finally:
            self.granted = False
        return size if self.state == CLOSED else taken

    cpdef void end_by(self, object error):
        """End the connection after any exception, which is confined to it: the error net of all work for this
        connection."""
        if not isinstance(error, AmqpError):
            self.report_fault(error)
            error = LocalError("connection", INTERNAL_ERROR, f"{type(error).__name__}: {error}")
        self.fail(error)

    cpdef void drop_by(self, object error):
        """End the connection as `end_by` does, but write nothing, since the write buffer may be inconsistent."""
        self.silent = True
        self.end_by(error)

    @cython.final
    cdef Py_ssize_t consume(self, const uint8_t* data, size_t size) except -1:
        cdef size_t at = 0
        cdef uint32_t length
        while size - at >= FRAME_HEADER and not self.paused and self.state != CLOSED:
            if self.state == HEADER or self.state == HEADER2:
                if self.traced:
                    self.trace_received(data + at, FRAME_HEADER)
                self.protocol_header(data + at)
                at += FRAME_HEADER
                continue
            length = read32(data + at)
            if length < FRAME_HEADER or length > self.local_max_frame:
                raise RemoteError("transport", FRAMING_ERROR, "malformed frame")
            if length > size - at:
                break
            if self.traced:
                self.trace_received(data + at, length)
            if self.state == SASL:
                self.sasl_frame(data + at, length)
                at += length
            elif take_frame(self, data + at, length) == FRAME_WAITS:
                self.shown = self.traced
                break
            else:
                at += length
                if slice_used(self.scheduler):
                    self.pause_for_slice()
        if self.content is not NULL:
            self.withdraw_windows()
        return at

    cdef int pause_for_slice(self) except -1:
        """Pause the following frames, or the rest of the current one, until other connections had their turn."""
        self.pause(PAUSE_SLICE)
        self.scheduler.sliced.append(self)
        return 0

    cdef int take_slice(self) except -1:
        self.resume(PAUSE_SLICE)
        return 0

    cdef int one_frame(self, const uint8_t* frame, uint32_t size) except -1:
        cdef const uint8_t* p
        cdef const uint8_t* end = frame + size
        cdef uint64_t code
        cdef uint16_t number = read16(frame + 6)
        cdef uint32_t offset = 4 * <uint32_t>frame[4]
        cdef Channel channel
        cdef void* found
        if frame[5] != FRAME_AMQP or offset < FRAME_HEADER or offset > size:
            raise RemoteError("transport", FRAMING_ERROR, "malformed frame")
        if offset == size:
            return 0
        p = frame + offset
        if size - offset >= 3 and p[0] == 0 and p[1] == T_SMALLULONG:
            code = p[2]
            p += 3
        else:
            p = open_described(p, end, &code)
            if p is NULL:
                raise RemoteError("connection", "amqp:decode-error", "frame body is not a performative")
        if not P_ATTACH < code < P_DETACH and not self.may_take_frame():
            return FRAME_WAITS
        if P_BEGIN < code < P_END and self.state == OPEN:
            found = number_at(<void*>self.channels, number)
            channel = <Channel>found if found is not NULL else self.channel_of(number)
            if channel is None:
                if number > self.local_channel_max:
                    raise above_channel_max(number, self.local_channel_max)
                raise RemoteError("connection", NOT_ALLOWED, f"no such channel: {number}")
            return channel.frame(<uint8_t>code, p, end)
        return self.cold_frame(code, number, p, end)

    cdef bint may_take_frame(self) except *:
        """Take a frame with interpreter work, if a turn is left. False: the frame waits until others had their turn."""
        cdef bint waited = self.granted and self.turn_left == FRAMES_PER_TURN
        cdef uint32_t* left = &self.scheduler.turn_frames_left if self.granted else &self.scheduler.frames_left
        if self.scheduler.behind or self.turn_left == 0 or not (waited or (left[0] and self.scheduler.has_time())):
            self.pause(PAUSE_TURN)
            self.scheduler.turns.append(self)
            return False
        self.turn_left -= 1
        if not waited:
            left[0] -= 1
        self.scheduler.frames += 1
        return True

    cdef int resume_turn(self) except -1:
        self.granted = True
        self.resume(PAUSE_TURN)
        return 0

    cdef int cold_frame(self, uint64_t code, uint16_t number, const uint8_t* p, const uint8_t* end) except -1:
        cdef Channel channel
        if code == P_OPEN and self.state == OPENING:
            self.read_open(split_fields(p, end))  # errors in it are answered by an open and a close
            self.state = OPEN
            self.opened_at = self.scheduler.now
            self.process.connections.add(self)
            self.handshake_deadline = 0
            self.handler.on_open(self, self.remote_open)
            return 0
        if code == P_CLOSE and self.state == OPENING and self.initiator:
            self.peer_closed(split_fields(p, end))  # the peer refuses the connection without an open
            return 0
        if self.state != OPEN or code < P_OPEN or code > P_CLOSE or code == P_OPEN:
            raise RemoteError("connection", NOT_ALLOWED,
                              f"performative 0x{code:02x} is not allowed in state {STATES[self.state]}")
        if code == P_CLOSE:
            self.peer_closed(split_fields(p, end))
            return 0
        if number > self.local_channel_max:
            if code == P_BEGIN:
                self.handler.on_too_many_sessions()
            raise above_channel_max(number, self.local_channel_max)
        channel = self.channel_of(number)
        if code == P_BEGIN:
            if channel is not None:
                raise RemoteError("connection", NOT_ALLOWED, f"channel {number} already has a session")
            items = split_fields(p, end)
            if not items or not self.begun(number, items[0], items):
                self.begin(number, items)
            return 0
        if channel is None:
            raise RemoteError("connection", NOT_ALLOWED, f"no such channel: {number}")
        items = split_fields(p, end)
        error = read_error(items[0]) if items else None
        if error is not None:
            self.handler.on_session_error(channel, error)
        self.channels.remove(number)
        channel.end()
        return self.add_lost_session(channel)

    cdef int protocol_header(self, const uint8_t* p) except -1:
        cdef bytes text = PyBytes_FromStringAndSize(<const char*>p, FRAME_HEADER)
        if self.initiator:
            return self.answered_header(text)
        if self.state == HEADER2:
            if text != AMQP_HEADER:
                raise bad_header(text)
            self.begin_amqp()
        elif text == SASL_HEADER:
            if self.refused(True):
                return 0
            self.sasl = self.handler.authenticator()
            if self.sasl is None:
                return self.drop()
            self.state = SASL
            self.write(SASL_HEADER)
            self.sasl_answered(self.sasl.begin())
        elif text == AMQP_HEADER:
            self.begin_amqp()
        elif text == TLS_HEADER:
            self.silent = True
            return self.finish(TLS_HEADER_REFUSED)
        else:
            raise bad_header(text)
        return 0

    cdef int begin_amqp(self) except -1:
        if self.refused(False):
            return 0
        self.write(AMQP_HEADER)
        self.state = OPENING
        return 0

    cdef bint refused(self, bint sasl) except -1:
        """True if the peer may not begin this layer; the connection is closed without sending anything."""
        refusal = self.handler.refusal(self, sasl)
        if refusal is None:
            return False
        self.silent = True
        self.finish(refusal)
        return True

    cdef int answered_header(self, bytes text) except -1:
        """Handle the header of a peer that this router connected to."""
        expected = AMQP_HEADER if self.state == HEADER2 else SASL_HEADER
        if text != expected:
            raise not_expected("AMQP" if self.state == HEADER2 else "SASL", text)
        self.state = OPENING if self.state == HEADER2 else SASL
        return 0

    cdef int sasl_frame(self, const uint8_t* frame, uint32_t size) except -1:
        cdef uint32_t offset = 4 * <uint32_t>frame[4]
        # Part 5, 5.3.1, limits SASL frames to 512 octets. Clients with tokens send more, since a token does not fit.
        if frame[5] != FRAME_SASL or offset < FRAME_HEADER or offset > size:
            return self.drop(MALFORMED_SASL)
        if offset == size:
            return 0
        body = PyBytes_FromStringAndSize(<const char*>(frame + offset), size - offset)
        try:
            answer = self.sasl.step(body)
        except AmqpError:
            # Only an outcome may be sent in this layer, and its codes do not name a malformed frame.
            return self.drop(MALFORMED_SASL)
        return self.sasl_answered(answer)

    def answer_sasl(self, bytes answer not None):
        """Send the frames that `begin` or `step` of the SASL layer left for later, and continue the exchange."""
        if self.state != SASL or self.finished:
            return
        try:
            self.sasl_answered(answer)
        except Exception as error:
            self.end_by(error)
        self.resume(PAUSE_SASL)

    cdef int sasl_answered(self, bytes answer) except -1:
        """Send an answer of the SASL layer. answer: frames; None: the answer comes later."""
        if answer is None:
            self.pause(PAUSE_SASL)
            return 0
        if answer:
            self.write(answer)
        if self.sasl.done:
            if self.sasl.user is None:
                return self.finish(self.sasl.error)
            self.state = HEADER2
            user = self.sasl.user
            self.sasl = None
            if self.initiator:
                self.write(AMQP_HEADER)
            self.handler.on_authenticated(self, user)
        return 0

    # -- open and close -----------------------------------------------------------------------------------------------

    cdef int read_open(self, list items) except -1:
        cdef list values = open_values(items)
        self.remote_max_frame = 0xFFFFFFFF if values[2] is None else max(values[2], MIN_MAX_FRAME_SIZE)
        if values[3] is not None:
            self.remote_channel_max = min(values[3], CHANNEL_MAX_LIMIT)
        if values[4] and values[4] < LEAST_IDLE_MS:
            # 2.4.5: a peer that cannot support a proposed time-out closes with a reason.
            raise RemoteError("connection", NOT_IMPLEMENTED,
                              f"idle-time-out of {values[4]} ms is too short, it must be {LEAST_IDLE_MS} ms or more")
        self.remote_idle = values[4] or 0
        self.remote_open = open_fields(values, items)
        return 0

    def share(self, Quota quota):
        """Charge a quota from now on; None: charge none. Existing links need `note_quota`."""
        self.quota = quota

    def limit(self, max_frame, channel_max):
        """Set limits of this connection. To be called before `send_open`."""
        self.local_max_frame = max(max_frame, MIN_MAX_FRAME_SIZE)
        self.local_channel_max = min(channel_max, CHANNEL_MAX_LIMIT)

    def send_open(self, container, *, hostname=None, properties=None, bytes offered not None=b"\x40",
                  bytes desired not None=b"\x40"):
        """Send the router's open. properties: encoded keys and values alternately. offered, desired: encoded
        capabilities. brokers-and-edge.md W-1."""
        if self.open_sent or self.finished:
            return
        self.open_sent = True
        self.send_frame(0, open_body(container, hostname, self.local_max_frame, self.local_channel_max,
                                     self.local_idle // 2, offered, desired, properties))

    cdef int peer_closed(self, list items) except -1:
        self.close_received = True
        self.remote_error = read_error(items[0]) if items else None
        self.then = THEN_CLOSING
        return self.end_sessions()

    def answer_close(self):
        """Answer the peer's close, which `on_closing` has delayed."""
        self.answers_later = False
        if not self.close_sent and not self.finished:
            self.close_sent = True
            self.send_close(None)
        self.finish(self.remote_error)

    cpdef void fail(self, object error):
        """End this connection because of `error` (an AmqpError), with a close frame if the peer can read one."""
        try:
            if not self.close_sent and not self.finished:
                self.close_sent = True
                if self.initiator and self.state in (HEADER, SASL):
                    self.silent = True
                if self.state != SASL:
                    self.send_close(codec.encode_error(error.condition, error.description))
        except Exception as fault:
            self.silent = True
            self.report_fault(fault)
        self.finish((error.condition, error.description))

    def close(self, condition=None, description=None, info=None):
        """Close the connection. The transport ends when the frame is sent. info: encoded map of the error."""
        if self.close_sent or self.finished:
            return
        if self.state == SASL or (self.initiator and self.state == HEADER):
            self.drop()
            return
        self.close_sent = True
        self.send_close(codec.encode_error(condition, description, info) if condition else None)
        self.finish((condition, description) if condition else None)

    cdef int close_for_awaited(self, size_t octets) except -1:
        self.process.given_up += 1
        self.handler.on_evicted_for_unsettled(self, octets)
        self.close(RESOURCE_LIMIT, "memory limit reached: this peer does not settle its deliveries")
        return 0

    cdef int send_close(self, bytes error) except -1:
        """Write a close, preceded by header and open where they are missing. error: encoded, or None."""
        if not self.initiator:
            if self.state == HEADER:
                self.write(AMQP_HEADER)
            if not self.open_sent:
                self.open_sent = True
                self.send_frame(0, codec.encode_described(P_OPEN, [codec.encode_string("")]))
        return self.send_frame(0, codec.encode_described(P_CLOSE, [error] if error else []))

    def drop_silently(self):
        """Close the socket without any frame."""
        self.drop()

    cdef int drop(self, object error=None) except -1:
        self.silent = True
        return self.finish(error if self.initiator else None)

    def transport_failed(self, text, what="SSL Failure"):
        """End the connection after its transport has failed, in its handshake or through the peer's fault."""
        self.silent = True
        self.finish((FRAMING_ERROR, f"{what}: {text}"))

    def transport_lost(self):
        """End the connection after its socket was lost."""
        self.drop(None if self.state == CLOSED else NO_HEADER if self.state < OPENING else ABORTED)

    @property
    def ended(self):
        """True if the sessions have ended: closed by either side, or lost."""
        return self.state == CLOSED

    cdef int finish(self, object error) except -1:
        if self.finished:
            return 0
        self.finished = True
        self.end_error = error
        if self.then != THEN_CLOSING:          # otherwise the handler is to be notified of the peer's close first
            self.then = THEN_CLOSED
        self.mark_dirty()
        return self.end_sessions()

    def release(self):
        """Drop the reference to the handler, which refers to the connection, after the handler was notified of the
        end. Called when the transport has ended."""
        if self.then != THEN_NOTHING:
            self.release_due = True
        else:
            self.handler = None

    cdef int end_sessions(self) except -1:
        """End all sessions, then continue with `then`. An exception for one session does not keep the others from
        being lost.
        """
        cdef Channel channel
        cdef list channels = self.local_channels.values()
        self.state = CLOSED
        self.channels = ObjectTable()
        if self.losing is None:
            self.losing = deque()
        ending = set(self.losing)
        for channel in channels:
            if channel not in ending:
                self.losing.append(channel)
            try:
                channel.lost()
            except Exception as fault:
                self.report_fault(fault)
        self.local_channels = ObjectTable()
        self.forget_output()
        self.let_go()
        return self.end_some_lost_links()

    cdef int on_all_links_ended(self) except -1:
        """Continue after the last lost link has ended: notify the handler."""
        cdef int then = self.then
        cdef bint later = False
        self.then = THEN_NOTHING
        if then == THEN_CLOSING:
            try:
                later = not self.close_sent and self.handler.on_closing(self, self.remote_error)
            except Exception as fault:
                if not self.finished:
                    raise                      # the exception ends the connection
                self.report_fault(fault)
            if self.finished:
                then = THEN_CLOSED             # the socket was lost, too, while links were ending
            elif later:
                self.answers_later = True
            else:
                self.answer_close()
        if then == THEN_CLOSED:
            try:
                self.handler.on_closed(self, self.end_error)
            except Exception as fault:
                self.report_fault(fault)
            if self.release_due:
                self.handler = None
        return 0

    # -- sessions -----------------------------------------------------------------------------------------------------

    cdef int begin(self, uint16_t number, list items) except -1:
        cdef Channel channel = self.handler.on_begin(self, number, items)
        return self.channels.put(number, channel)

    # -- pauses --------------------------------------------------------------------------------------------------------

    cpdef void pause(self, uint32_t reason):
        """Leave frames in the transport for this reason, for example until there is room or a decision."""
        self.paused |= reason

    cpdef void resume(self, uint32_t reason):
        """Remove a reason to pause. After the last one, the worker offers the kept octets again."""
        if self.paused & reason:
            self.paused &= ~reason
            self.last_received = self.scheduler.now
            if not self.paused and not self.finished:
                self.scheduler.resumed.append(self)

    # -- time ---------------------------------------------------------------------------------------------------------

    cdef bint overdue(self, uint64_t now) noexcept:
        """True if `tick` would end the connection for its silence."""
        if self.finished:
            return False
        if self.handshake_deadline and now >= self.handshake_deadline:
            return True
        return self.local_idle and not self.paused and (self.state == OPEN or (self.initiator and self.state < OPEN)) \
            and now >= self.last_received + self.local_idle

    cdef void extend_deadline(self, uint64_t went_on) noexcept:
        """Extend the handshake deadline after this process did not run until `went_on` (ms), since the peer got no
        answer meanwhile."""
        if self.handshake_deadline and went_on + self.handshake_ms > self.handshake_deadline:
            self.handshake_deadline = went_on + self.handshake_ms
        if self.initiator and self.state < OPEN and went_on > self.last_received:
            self.last_received = went_on

    def limit_handshake(self, uint32_t ms):
        """Limit the time until the peer's open; 0: no limit. routing-semantics.md C-6; brokers-and-edge.md L-7."""
        self.handshake_ms = ms
        self.handshake_deadline = self.scheduler.now + ms if ms else 0

    def tick(self, uint64_t now):
        """Send heartbeats and check time-outs that are due. Return the time in ms of the next call; 0: none.

        routing-semantics.md C-13 to C-15; brokers-and-edge.md W-5.
        """
        cdef uint64_t due = 0
        cdef uint64_t at
        if self.finished:
            return 0
        if self.handshake_deadline:
            if now >= self.handshake_deadline:
                self.drop(silence(self))
                return 0
            due = self.handshake_deadline
        if self.local_idle and (self.state == OPEN or (self.initiator and self.state < OPEN)):
            if self.paused:
                self.last_received = now   # a peer that is not read does not count as silent
            at = self.last_received + self.local_idle
            if now >= at and self.state != OPEN:
                self.drop(silence(self))
                return 0
            if now >= at:
                self.fail(RemoteError("connection", *IDLE))
                return 0
            due = at if due == 0 or at < due else due
        if self.open_sent and self.state == OPEN and self.remote_idle:
            at = self.last_sent + max(self.remote_idle // 2, 1)
            if now >= at:
                if not buffer_used(&self.out):
                    self.write(EMPTY_FRAME)    # output that waits serves as well
                    self.last_sent = now
                at = now + max(self.remote_idle // 2, 1)
            due = at if due == 0 or at < due else due
        return due

    # -- for the client and for tests ---------------------------------------------------------------------------------

    def feed(self, data not None):
        """Pass octets, of an object with the buffer protocol, to `receive`; return the number of octets taken."""
        cdef Py_buffer view
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            return self.receive(<const uint8_t*>view.buf, view.len)
        finally:
            PyBuffer_Release(&view)
