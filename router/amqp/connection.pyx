"""An AMQP connection (part 2, 2.4): headers, open and close, channels, idle time-out, output.

Bytes go in by `receive`, come out of `out` after `prepare`; cold events go to a handler, a Python object with

    on_begin(connection, remote_channel, fields) -> Channel    a session for the peer's begin
    on_open(connection, open)                                   the peer's open, a dict; answer with `send_open`
    on_closing(connection, error) -> bool                       the peer's close, every channel is lost; True: the
                                                                answer waits until `connection.answer_close()`
    on_closed(connection, error)                                (condition, description) or None: nothing more is said
    authenticator() -> SaslServer | None                        a peer wants the SASL layer; None: not allowed
                                                                (as initiator: SaslClient, for `start`)
    allow_plain(connection) -> bool                             a peer starts without the SASL layer
    on_authenticated(connection, user)                          SASL is through (as initiator: send the open now)
    on_fault(connection, exception)                             we erred: to be logged; the connection is closed
    on_frame(connection, received, octets, size)                while `traced`: a frame (its first TRACE_OCTETS octets)
                                                                or a protocol header, received or about to be sent

States, and the event that leads on (any error leads to CLOSED after a close frame where one may be sent):

    HEADER --"AMQP" 3 1 0 0--> SASL --outcome ok--> HEADER2 --"AMQP" 0 1 0 0--> OPENING --open--> OPEN --close--> CLOSED
    HEADER --"AMQP" 0 1 0 0--> OPENING

As initiator, after `start`, the same way with SASL; our AMQP header and open follow the outcome at once.
"""
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.string cimport memcpy

from router.amqp.buffer cimport buffer_release, buffer_room, buffer_used, read16, read32
from router.amqp.codec cimport open_described, split_fields
from router.amqp.frames cimport write_frame
from router.amqp.message cimport meter_new, meter_release
from router.amqp.numbers cimport number_get
from router.amqp.spec cimport (
    FRAME_AMQP, FRAME_HEADER, FRAME_SASL, MIN_MAX_FRAME_SIZE, P_BEGIN, P_CLOSE, P_END, P_OPEN, T_SMALLULONG,
)

from router.amqp import codec
from router.amqp.errors import (
    FRAMING_ERROR, INTERNAL_ERROR, INVALID_FIELD, NOT_ALLOWED, NOT_IMPLEMENTED, RESOURCE_LIMIT, AmqpError, LocalError,
    RemoteError,
)

cdef enum:
    HEADER = 0
    SASL = 1
    HEADER2 = 2
    OPENING = 3
    OPEN = 4
    CLOSED = 5

STATES = ("header", "sasl", "header after sasl", "opening", "open", "closed")

cdef bytes AMQP_HEADER = b"AMQP\x00\x01\x00\x00"
cdef bytes SASL_HEADER = b"AMQP\x03\x01\x00\x00"
cdef bytes TLS_HEADER = b"AMQP\x02\x01\x00\x00"
cdef bytes EMPTY_FRAME = b"\x00\x00\x00\x08\x02\x00\x00\x00"

# Why a connection of ours failed, in the words of Dispatch (brokers-and-edge.md, C-7).
IDLE = (RESOURCE_LIMIT, "local-idle-timeout expired")
NO_HEADER = (FRAMING_ERROR, "Expected AMQP protocol header: no protocol header found (connection aborted)")
ABORTED = (FRAMING_ERROR, "connection aborted")
MALFORMED_SASL = (FRAMING_ERROR, "malformed SASL frame")

cdef enum:
    # Octets of messages that a connection may hold, and a process, where the configuration says nothing.
    CONNECTION_CONTENT = 268435456
    PROCESS_CONTENT = 1073741824
    CHANNEL_MAX_LIMIT = 32767  # of Dispatch: maxSessions is at most 32768
    LEAST_IDLE_MS = 100        # that a peer may ask for: it costs two empty frames each time
    TRACE_OCTETS = 4096        # of a frame that a trace decodes: more than a line of the log holds
    ERROR = 0x1D               # descriptor of an error
    CONDITION_MOST = 255       # octets of a condition that is left of a long error
    NS_A_MS = 1000000
    NS_A_SECOND = 1000000000


cdef class Scheduler:
    def __cinit__(self):
        self.now = 0
        self.dirty = []
        self.resumed = []
        self.starved = []
        self.withheld = set()
        self.content_limit = PROCESS_CONTENT

    cdef void set_clock(self, uint64_t now_ns) noexcept:
        self.now_ns = now_ns
        self.now = now_ns // NS_A_MS
        self.second = <uint32_t>(now_ns // NS_A_SECOND)

    def set_time(self, uint64_t now_ns):
        """`set_clock` for tests."""
        self.set_clock(now_ns)

    cdef int note_content(self, uint64_t held) except -1:
        """The process holds so many octets of messages. Between both marks nothing changes, so that it does not turn
        on and off with each message."""
        cdef Connection connection
        if held >= self.content_limit:
            self.crowded = True
        elif self.crowded and held < self.content_limit - self.content_limit // 4:
            self.crowded = False
            for connection in self.withheld:
                connection.grant_withheld()
            self.withheld = set()
        return 0


cdef class Endpoint:
    def __cinit__(self):
        self.output_high = OUTPUT_HIGH

    cdef int pump(self, size_t budget) except -1:
        raise NotImplementedError

    cdef void grant_again(self) noexcept:
        pass


cdef class Channel:
    cdef bint turn(self) except *:
        raise NotImplementedError

    cdef int frame(self, uint8_t code, const uint8_t* p, const uint8_t* end) except -1:
        raise NotImplementedError

    cdef int flush(self) except -1:
        raise NotImplementedError

    cdef int end(self) except -1:
        raise NotImplementedError

    cdef int lost(self) except -1:
        raise NotImplementedError

    cdef int answered(self, uint16_t number, list items) except -1:
        raise NotImplementedError


cdef class Connection:
    """One AMQP connection. Owner: the worker."""

    def __cinit__(self, Scheduler scheduler not None, handler, *, max_frame=16384, channel_max=CHANNEL_MAX_LIMIT,
                  idle_ms=0, initiator=False, content_limit=CONNECTION_CONTENT):
        self.scheduler = scheduler
        self.handler = handler
        self.initiator = initiator
        self.state = HEADER
        self.channels = NumberTable()
        self.local_channels = NumberTable()
        self.dirty_channels = []
        self.withheld = []
        self.content_limit = content_limit
        self.local_max_frame = max(max_frame, MIN_MAX_FRAME_SIZE)
        self.local_channel_max = min(channel_max, CHANNEL_MAX_LIMIT)
        self.remote_max_frame = MIN_MAX_FRAME_SIZE
        self.remote_channel_max = CHANNEL_MAX_LIMIT
        self.local_idle = idle_ms
        self.last_received = self.last_sent = scheduler.now

    def __dealloc__(self):
        buffer_release(&self.out)
        if self.content is not NULL:
            self.content.owner = NULL
            meter_release(self.content)

    def start(self):
        """As initiator: ask for the SASL layer."""
        self.sasl = self.handler.authenticator()
        self.write(SASL_HEADER)

    # -- input --------------------------------------------------------------------------------------------------------

    cdef Py_ssize_t receive(self, const uint8_t* data, size_t size) except -1:
        """Takes what it can of the octets that came; returns how many. The rest is to be offered again, longer.

        An error of the peer (or ours) ends this connection here: it never gets past it.
        """
        cdef Py_ssize_t taken
        self.last_received = self.scheduler.now
        if self.finished or self.answers_later:
            return size
        try:
            taken = self.consume(data, size)
        except Exception as error:
            self.end_by(error)
            return size
        return size if self.state == CLOSED else taken

    cpdef void end_by(self, object error):
        """The net below everything that is done for this connection: whatever was raised ends it, and nothing else."""
        if not isinstance(error, AmqpError):
            self.report_fault(error)
            error = LocalError("connection", INTERNAL_ERROR, f"{type(error).__name__}: {error}")
        self.fail(error)

    cpdef void drop_by(self, object error):
        """As `end_by`, where what is in the write buffer cannot be trusted: nothing more is said to the peer."""
        self.silent = True
        self.end_by(error)

    cdef int report_fault(self, object error) except -1:
        if self.handler is not None:
            self.handler.on_fault(self, error)
        return 0

    cdef Py_ssize_t consume(self, const uint8_t* data, size_t size) except -1:
        cdef size_t at = 0
        cdef uint32_t length
        while size - at >= FRAME_HEADER and not self.paused and self.state != CLOSED:
            if self.state == HEADER or self.state == HEADER2:
                if self.traced:
                    self.show_received(data + at, FRAME_HEADER)
                self.protocol_header(data + at)
                at += FRAME_HEADER
                continue
            length = read32(data + at)
            if length < FRAME_HEADER or length > self.local_max_frame:
                raise RemoteError("transport", FRAMING_ERROR, "malformed frame")
            if length > size - at:
                break
            if self.traced:
                self.show_received(data + at, length)
            if self.state == SASL:
                self.sasl_frame(data + at, length)
            else:
                if self.one_frame(data + at, length) == FRAME_WAITS:
                    self.shown = self.traced
                    break
            at += length
        return at

    cdef int one_frame(self, const uint8_t* frame, uint32_t size) except -1:
        cdef const uint8_t* p
        cdef const uint8_t* end = frame + size
        cdef uint64_t code
        cdef uint16_t number = read16(frame + 6)
        cdef uint32_t offset = 4 * <uint32_t>frame[4]
        cdef Channel channel
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
        if P_BEGIN < code < P_END and self.state == OPEN:
            channel = self.channel_of(number)
            if channel is None:
                if number > self.local_channel_max:
                    raise above_channel_max(number, self.local_channel_max)
                raise RemoteError("connection", NOT_ALLOWED, f"no such channel: {number}")
            return channel.frame(<uint8_t>code, p, end)
        return self.cold_frame(code, number, p, end)

    cdef Channel channel_of(self, uint16_t number):
        return <Channel>number_get(self.channels, number)

    cdef int cold_frame(self, uint64_t code, uint16_t number, const uint8_t* p, const uint8_t* end) except -1:
        cdef Channel channel
        if code == P_OPEN and self.state == OPENING:
            self.read_open(split_fields(p, end))  # what is wrong with it is answered by an open, and a close
            self.state = OPEN
            self.handshake_deadline = 0
            self.handler.on_open(self, self.remote_open)
            return 0
        if code == P_CLOSE and self.state == OPENING and self.initiator:
            self.peer_closed(split_fields(p, end))  # refuses us without an open of its own
            return 0
        if self.state != OPEN or code < P_OPEN or code > P_CLOSE or code == P_OPEN:
            raise RemoteError("connection", NOT_ALLOWED,
                              f"performative 0x{code:02x} is not allowed in state {STATES[self.state]}")
        if code == P_CLOSE:
            self.peer_closed(split_fields(p, end))
            return 0
        if number > self.local_channel_max:
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
        self.channels.remove(number)
        return channel.end()

    cdef int protocol_header(self, const uint8_t* p) except -1:
        cdef bytes text = PyBytes_FromStringAndSize(<const char*>p, FRAME_HEADER)
        if self.initiator:
            return self.answered_header(text)
        if self.state == HEADER2:
            if text != AMQP_HEADER:
                raise bad_header(text)
            self.write(AMQP_HEADER)
            self.state = OPENING
        elif text == SASL_HEADER:
            self.sasl = self.handler.authenticator()
            if self.sasl is None:
                return self.drop()
            self.state = SASL
            self.write(SASL_HEADER)
            self.write(self.sasl.begin())
        elif text == AMQP_HEADER:
            if not self.handler.allow_plain(self):
                return self.drop()
            self.write(AMQP_HEADER)
            self.state = OPENING
        elif text == TLS_HEADER:
            return self.drop()
        else:
            raise bad_header(text)
        return 0

    cdef int answered_header(self, bytes text) except -1:
        """The header of a peer that we connected to."""
        expected = AMQP_HEADER if self.state == HEADER2 else SASL_HEADER
        if text != expected:
            layer = "AMQP" if self.state == HEADER2 else "SASL"
            raise RemoteError("transport", FRAMING_ERROR,
                              f"Expected {layer} protocol header got: {protocol_name(text)} ['{shown_octets(text)}']")
        self.state = OPENING if self.state == HEADER2 else SASL
        return 0

    cdef int sasl_frame(self, const uint8_t* frame, uint32_t size) except -1:
        cdef uint32_t offset = 4 * <uint32_t>frame[4]
        if frame[5] != FRAME_SASL or offset < FRAME_HEADER or offset > size or size > MIN_MAX_FRAME_SIZE:
            return self.drop(MALFORMED_SASL)
        if offset == size:
            return 0
        body = PyBytes_FromStringAndSize(<const char*>(frame + offset), size - offset)
        try:
            answer = self.sasl.step(body)
        except AmqpError:
            # Nothing but an outcome may be said in this layer, and its codes do not name a malformed frame.
            return self.drop(MALFORMED_SASL)
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
        """container-id, hostname, max-frame-size, channel-max, idle-time-out, outgoing-locales, incoming-locales,
        offered-capabilities, desired-capabilities, properties (part 2, 2.7.1)"""
        cdef list values = [codec.decode_one(item) for item in items[:10]]
        values += [None] * (10 - len(values))
        if not isinstance(values[0], str):
            raise RemoteError("connection", "amqp:invalid-field", "open: container-id is missing or not a string")
        for index, name in ((2, "max-frame-size"), (3, "channel-max"), (4, "idle-time-out")):
            if values[index] is not None and (
                    not isinstance(values[index], int) or not 0 <= values[index] <= 0xFFFFFFFF):
                raise RemoteError("connection", "amqp:invalid-field", f"open: {name} is not a number")
        if values[1] is not None and not isinstance(values[1], str):
            raise RemoteError("connection", "amqp:invalid-field", "open: hostname is not a string")
        self.remote_max_frame = 0xFFFFFFFF if values[2] is None else max(values[2], MIN_MAX_FRAME_SIZE)
        if values[3] is not None:
            self.remote_channel_max = min(values[3], CHANNEL_MAX_LIMIT)
        if values[4] and values[4] < LEAST_IDLE_MS:
            # 2.4.5: who cannot support a proposed time-out closes, and says why.
            raise RemoteError("connection", NOT_IMPLEMENTED,
                              f"idle-time-out of {values[4]} ms is too short, {LEAST_IDLE_MS} ms is the least")
        self.remote_idle = values[4] or 0
        properties = values[9] if isinstance(values[9], dict) else {}
        self.remote_open = {
            "container": values[0], "hostname": values[1], "properties": properties,
            "offered": symbols(values[7]), "desired": symbols(values[8]),
            "raw_properties": items[9] if len(items) > 9 else b"",
        }
        return 0

    def send_open(self, container, *, hostname=None, properties=None, offered=(), desired=()):
        """The router's open: `properties` are encoded key and value octets in turn."""
        idle = self.local_idle // 2
        items = [
            codec.encode_string(container), b"\x40" if hostname is None else codec.encode_string(hostname),
            codec.encode_uint(self.local_max_frame), codec.encode_ushort(self.local_channel_max),
            codec.encode_uint(idle) if idle else b"\x40", b"\x40", b"\x40",
            codec.encode_symbols(offered) if offered else b"\x40",
            codec.encode_symbols(desired) if desired else b"\x40",
            codec.encode_map(properties) if properties else b"\x40",
        ]
        self.send_frame(0, codec.encode_described(P_OPEN, items))

    cdef int peer_closed(self, list items) except -1:
        self.remote_error = read_error(items[0]) if items else None
        self.lose_channels()
        if not self.close_sent and self.handler.on_closing(self, self.remote_error):
            self.answers_later = True
            return 0
        self.answer_close()
        return 0

    def answer_close(self):
        """What on_closing asked to wait for has happened: answer the peer's close."""
        self.answers_later = False
        if not self.close_sent and not self.finished:
            self.close_sent = True
            self.send_frame(0, codec.encode_described(P_CLOSE, []))
        self.finish(self.remote_error)

    cpdef void fail(self, object error):
        """This connection ends because of `error` (AmqpError): close frame where the peer can read one."""
        try:
            if not self.close_sent and not self.finished:
                self.close_sent = True
                if self.initiator and self.state in (HEADER, SASL):
                    self.silent = True
                elif self.state == HEADER:
                    self.write(AMQP_HEADER)
                if self.state in (HEADER, HEADER2, OPENING) and not self.initiator:
                    self.send_frame(0, codec.encode_described(P_OPEN, [codec.encode_string("")]))
                if self.state != SASL:
                    self.send_frame(0, codec.encode_described(
                        P_CLOSE, [codec.encode_error(error.condition, error.description)]))
        except Exception as fault:
            self.silent = True
            self.report_fault(fault)
        self.finish((error.condition, error.description))

    def close(self, condition=None, description=None):
        """Close from our side; the transport ends when the frame is out."""
        if self.close_sent or self.finished:
            return
        if self.initiator and self.state in (HEADER, SASL):
            self.drop()
            return
        self.close_sent = True
        self.send_frame(0, codec.encode_described(
            P_CLOSE, [codec.encode_error(condition, description)] if condition else []))
        self.finish((condition, description) if condition else None)

    def drop_silently(self):
        """The socket closes without any frame."""
        self.drop()

    cdef int drop(self, object error=None) except -1:
        self.silent = True
        return self.finish(error if self.initiator else None)

    def transport_lost(self):
        """The socket is gone."""
        self.drop(None if self.state == CLOSED else NO_HEADER if self.state < OPENING else ABORTED)

    @property
    def ended(self):
        """Its sessions are gone: closed by either side, or lost."""
        return self.state == CLOSED

    cdef int finish(self, object error) except -1:
        if self.finished:
            return 0
        self.finished = True
        self.mark_dirty()
        self.lose_channels()
        try:
            self.handler.on_closed(self, error)
        except Exception as fault:
            self.report_fault(fault)
        return 0

    def release(self):
        """The transport is gone: cut the reference to the handler, which knows us."""
        self.handler = None

    cdef int lose_channels(self) except -1:
        """The connection has ended for its sessions. A fault on the way does not keep the others from being lost."""
        cdef Channel channel
        cdef list channels = self.local_channels.values()
        self.state = CLOSED
        self.channels = NumberTable()
        for channel in channels:
            try:
                channel.lost()
            except Exception as fault:
                self.report_fault(fault)
        self.local_channels = NumberTable()
        self.dirty_channels = []
        self.first_turn = self.last_turn = None
        self.withheld = []
        self.scheduler.withheld.discard(self)
        return 0

    # -- sessions -----------------------------------------------------------------------------------------------------

    cdef int begin(self, uint16_t number, list items) except -1:
        cdef Channel channel = self.handler.on_begin(self, number, items)
        return self.channels.put(number, channel)

    cdef bint begun(self, uint16_t number, bytes ours, list items) except *:
        """Whether the peer's begin on channel `number` answers one of ours, on channel `ours` (encoded)."""
        cdef Channel channel = None
        value = codec.decode_one(ours)
        if isinstance(value, int) and 0 <= value <= 0xFFFF:
            channel = number_get(self.local_channels, value)
        if channel is None or not channel.unanswered:
            return False
        channel.unanswered = False
        channel.remote_channel = number
        self.channels.put(number, channel)
        channel.answered(number, items)
        return True

    def assign_channel(self, Channel channel not None, remote_channel):
        """A local channel for a session: the peer's number (None: it has none yet) when it is free."""
        cdef uint32_t number = remote_channel or 0
        cdef uint32_t most = self.remote_channel_max
        if remote_channel is None and self.local_channel_max < most:
            most = self.local_channel_max  # the peer has to answer on a channel, too
        if number > most or number_get(self.local_channels, number) is not None:
            number = self.local_channels.lowest_free()
        if number > most:
            raise RemoteError("connection", RESOURCE_LIMIT, "no channel left for a session")
        self.local_channels.put(number, channel)
        self.open_channels += 1
        channel.local_channel = number
        channel.remote_channel = remote_channel or 0

    cdef int forget_channel(self, Channel channel) except -1:
        self.open_channels -= 1
        return self.local_channels.remove(channel.local_channel)

    def channels_left(self):
        """Sessions that may still begin, of either side."""
        return min(self.local_channel_max, self.remote_channel_max) + 1 - self.open_channels

    # -- output -------------------------------------------------------------------------------------------------------

    cdef int write(self, bytes octets) except -1:
        cdef uint8_t* w = buffer_room(&self.out, len(octets))
        memcpy(w, <const uint8_t*>octets, len(octets))
        self.out.end += len(octets)
        self.mark_dirty()
        return 0

    cdef int send_frame(self, uint16_t channel, bytes body) except -1:
        write_frame(&self.out, channel, FRAME_AMQP, body)
        self.mark_dirty()
        return 0

    # -- traces of frames ---------------------------------------------------------------------------------------------

    def trace(self, bint on):
        """Show frames to the handler from now on, or no more."""
        if on != self.traced:
            self.traced = on
            self.shown = False
            self.shown_out = buffer_used(&self.out) if on else 0

    cdef int show_received(self, const uint8_t* data, size_t size) except -1:
        if self.shown:
            self.shown = False
            return 0
        self.handler.on_frame(self, True, data[:size if size < TRACE_OCTETS else TRACE_OCTETS], size)
        return 0

    cdef int show_sent(self) except -1:
        """Show what has been written since the last call; to be called before octets leave `out`."""
        cdef const uint8_t* p = self.out.data + self.out.start + self.shown_out
        cdef const uint8_t* end = self.out.data + self.out.end
        cdef size_t size
        while p < end:
            size = FRAME_HEADER if p[0] == c"A" else read32(p)
            self.handler.on_frame(self, False, p[:size if size < TRACE_OCTETS else TRACE_OCTETS], size)
            p += size
        self.shown_out = buffer_used(&self.out)
        return 0

    cdef void sent(self, size_t octets) noexcept:
        """So many octets of `out` have left."""
        self.out.start += octets
        if self.traced:
            self.shown_out -= octets

    cdef void mark_dirty(self) noexcept:
        if not self.dirty:
            self.dirty = True
            self.scheduler.dirty.append(self)

    cdef void mark_channel(self, Channel channel) noexcept:
        """The session has something to say at the end of this wake."""
        if not channel.in_dirty:
            channel.in_dirty = True
            self.dirty_channels.append(channel)
            self.mark_dirty()

    cdef void want_turn(self, Channel channel, bint urgent) noexcept:
        """Links of the session may be able to write queued deliveries."""
        if channel.has_turn or self.finished:
            return
        channel.has_turn = True
        channel.next_turn = None
        if self.last_turn is None:
            self.first_turn = self.last_turn = channel
        elif urgent:
            channel.next_turn = self.first_turn
            self.first_turn = channel
        else:
            self.last_turn.next_turn = channel
            self.last_turn = channel
        self.mark_dirty()

    cdef int prepare(self) except -1:
        """Put everything that may go out now into `out`: dispositions and flows first, then deliveries in turns."""
        cdef Channel channel
        cdef list channels
        while self.dirty_channels:
            channels = self.dirty_channels
            self.dirty_channels = []
            for channel in channels:
                channel.in_dirty = False
                channel.flush()
        while self.first_turn is not None and buffer_used(&self.out) < self.room_needed():
            channel = self.first_turn
            self.first_turn = channel.next_turn
            if self.first_turn is None:
                self.last_turn = None
            channel.next_turn = None
            channel.has_turn = False
            if channel.turn():
                self.want_turn(channel, (<Endpoint>channel.ready.first).urgent)
        return 0

    cdef size_t room_needed(self) noexcept:
        """Octets in the write buffer above which the next link waits."""
        cdef void* first = self.first_turn.ready.first
        return OUTPUT_HIGH if first is NULL else (<Endpoint>first).output_high

    def wants_turn(self):
        """True while links could write if the write buffer had room."""
        return self.first_turn is not None

    # -- memory -------------------------------------------------------------------------------------------------------

    cdef Meter* content_meter(self) except NULL:
        if self.content is NULL:
            self.content = meter_new(<void*>self, connection_freed)
        return self.content

    cdef bint full(self) noexcept:
        """It holds all that it may, or the process does."""
        return self.scheduler.crowded or (self.content is not NULL and self.content.held >= self.content_limit)

    cdef void withhold(self, Endpoint link) noexcept:
        """The link's `grant` is to be called when the connection is not full any more. Once for each link."""
        self.withheld.append(link)
        if self.scheduler.crowded:
            self.scheduler.withheld.add(self)

    cdef void grant_withheld(self) noexcept:
        cdef Endpoint link
        cdef list withheld = self.withheld
        self.withheld = []
        for link in withheld:
            link.grant_again()

    cpdef void pause(self, uint32_t reason):
        """Keep frames in the transport: something they need has no room, or is being decided."""
        self.paused |= reason

    cpdef void resume(self, uint32_t reason):
        """The reason is gone; when it was the last one the worker offers the kept octets again."""
        if self.paused & reason:
            self.paused &= ~reason
            self.last_received = self.scheduler.now
            if not self.paused and not self.finished:
                self.scheduler.resumed.append(self)

    # -- time ---------------------------------------------------------------------------------------------------------

    cdef bint overdue(self, uint64_t now) noexcept:
        """Whether `tick` would end it for its silence."""
        if self.finished:
            return False
        if self.handshake_deadline and now >= self.handshake_deadline:
            return True
        return self.state == OPEN and self.local_idle and not self.paused and \
            now >= self.last_received + self.local_idle

    cdef void excuse(self, uint64_t went_on) noexcept:
        """This process did not run until `went_on`: the peer had no answer, and has the time of a handshake anew."""
        if self.handshake_deadline and went_on + self.handshake_ms > self.handshake_deadline:
            self.handshake_deadline = went_on + self.handshake_ms

    def limit_handshake(self, uint32_t ms):
        """The peer has so much time until its open."""
        self.handshake_ms = ms
        self.handshake_deadline = self.scheduler.now + ms

    def tick(self, uint64_t now):
        """Heartbeats and time-outs that are due. Returns when to call again (ms), 0: never."""
        cdef uint64_t due = 0
        cdef uint64_t at
        if self.finished:
            return 0
        if self.handshake_deadline:
            if now >= self.handshake_deadline:
                self.drop(IDLE)
                return 0
            due = self.handshake_deadline
        if self.state == OPEN and self.local_idle:
            if self.paused:
                self.last_received = now   # whoever is not read cannot be called silent
            at = self.last_received + self.local_idle
            if now >= at:
                self.fail(RemoteError("connection", RESOURCE_LIMIT, "local-idle-timeout expired"))
                return 0
            due = at if due == 0 or at < due else due
        if self.state == OPEN and self.remote_idle:
            at = self.last_sent + max(self.remote_idle // 2, 1)
            if now >= at:
                self.write(EMPTY_FRAME)
                self.last_sent = now
                at = now + max(self.remote_idle // 2, 1)
            due = at if due == 0 or at < due else due
        return due

    # -- for tests ----------------------------------------------------------------------------------------------------

    def feed(self, bytes data not None):
        """`receive` for Python: octets taken."""
        cdef const uint8_t* p = data
        return self.receive(p, len(data))

    def take_output(self):
        """What there is to send."""
        if not self.finished:
            self.prepare()
        if self.traced:
            self.show_sent()
            self.shown_out = 0
        data = PyBytes_FromStringAndSize(<const char*>(self.out.data + self.out.start), self.out.end - self.out.start)
        buffer_release(&self.out)
        self.dirty = False
        if self in self.scheduler.dirty:
            self.scheduler.dirty.remove(self)
        return data


cdef void connection_freed(void* owner) noexcept:
    cdef Connection connection = <Connection>owner
    if connection.withheld and connection.scheduler.crowded:
        connection.scheduler.withheld.add(connection)
    elif connection.withheld \
            and connection.content.held < connection.content_limit - connection.content_limit // 4:
        connection.grant_withheld()


cdef str shown_octets(bytes text):
    return "".join(chr(c) if 32 <= c < 127 else f"\\x{c:02x}" for c in text)


cdef str protocol_name(bytes text):
    """What a peer seems to speak."""
    layers = {AMQP_HEADER: "AMQP 1.0 layer", SASL_HEADER: "AMQP SASL layer", TLS_HEADER: "AMQP TLS layer"}
    return layers.get(text) or ("Unknown AMQP connection" if text[:4] == b"AMQP" else "Unknown protocol")


cdef object bad_header(bytes text):
    shown = shown_octets(text)
    if text[:4] == b"AMQP" and text[4] in (0, 1, 2, 3):
        return RemoteError("transport", FRAMING_ERROR, f"Incompatible AMQP connection detected: '{shown}'")
    return RemoteError("transport", FRAMING_ERROR, f"Unknown protocol detected: '{shown}'")


cdef object above_channel_max(number, limit):
    return RemoteError("connection", FRAMING_ERROR, f"remote channel {number} is above negotiated channel_max {limit}.")


def symbols(value):
    """Capabilities: one symbol, an array of them, or none, as a list of str."""
    if value is None:
        return []
    if isinstance(value, str):
        return [str(value)]
    return [str(item) for item in value if isinstance(item, str)] if isinstance(value, list) else []


def read_error(bytes raw not None):
    """(condition, description) of an encoded error, or None."""
    if raw[:1] == b"\x40":
        return None
    _code, items = codec.described_list(raw)
    values = [codec.decode_one(item) for item in items[:2]]
    condition = str(values[0]) if values and values[0] is not None else INTERNAL_ERROR
    return condition, str(values[1]) if len(values) > 1 and values[1] is not None else ""


def check_error(bytes raw not None):
    """An encoded error that goes to another peer is one, or this raises RemoteError."""
    codec.decode_one(raw)
    if codec.described_list(raw)[0] != ERROR:
        raise RemoteError("link", INVALID_FIELD, "detach: error is not an error")


def short_error(bytes raw not None):
    """What is left of an encoded error where a frame has little room: its condition, cut. Raises nothing."""
    try:
        condition = read_error(raw)[0].encode("ascii", "replace")[:CONDITION_MOST].decode()
    except (AmqpError, TypeError):  # no error, or none at all
        condition = INTERNAL_ERROR
    return codec.encode_error(condition)
