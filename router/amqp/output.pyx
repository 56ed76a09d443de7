"""Output of a connection: its write buffer, the turns of its sessions to write, traces of frames.

docs/internals/life-of-a-message.md, "The turn to write".
"""
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.string cimport memcpy

from sluice.router.amqp.buffer cimport buffer_release, buffer_room, buffer_used, read32
from sluice.router.amqp.endpoint cimport Endpoint, output_bound
from sluice.router.amqp.frames cimport write_frame
from sluice.router.amqp.node_list cimport ListNode
from sluice.router.amqp.spec cimport FRAME_AMQP, FRAME_HEADER

cdef enum:
    TRACE_OCTETS = 4096        # octets of a frame that are traced; more than a log line holds


cdef class ConnectionOutput(ScheduledConnection):
    def __cinit__(self):
        self.dirty_channels = []

    def __dealloc__(self):
        buffer_release(&self.out)

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

    cdef void forget_output(self) noexcept:
        self.dirty_channels = []
        self.first_turn = self.last_turn = None

    # -- turns to write -----------------------------------------------------------------------------------------------

    cdef void mark_channel(self, Channel channel) noexcept:
        """List a session whose reports or flows are to be written at the end of this wake."""
        if not channel.in_dirty:
            channel.in_dirty = True
            self.dirty_channels.append(channel)
            self.mark_dirty()

    cdef void want_turn(self, Channel channel, bint urgent) noexcept:
        """List a session whose links may be able to write queued deliveries. urgent: first in the list."""
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
        """Write everything that may be sent now into `out`: dispositions and flows first, then deliveries, turn by
        turn."""
        cdef Channel channel
        cdef ListNode* first
        cdef list channels
        while self.dirty_channels:
            channels = self.dirty_channels
            self.dirty_channels = []
            for channel in channels:
                channel.in_dirty = False
                channel.flush()
        while self.first_turn is not None and buffer_used(&self.out) < output_bound(&self.first_turn.ready):
            channel = self.first_turn
            self.first_turn = channel.next_turn
            if self.first_turn is None:
                self.last_turn = None
            channel.next_turn = None
            channel.has_turn = False
            if channel.turn():
                first = channel.ready.first
                self.want_turn(channel, first is not NULL and (<Endpoint>first.object).urgent)
        return 0

    def wants_turn(self):
        """True while links could write if the write buffer had room."""
        return self.first_turn is not None

    # -- traces of frames ---------------------------------------------------------------------------------------------

    def trace(self, bint on):
        """Start or stop tracing frames."""
        if on != self.traced:
            self.traced = on
            self.shown = False
            self.traced_out = buffer_used(&self.out) if on else 0

    cdef int trace_received(self, const uint8_t* data, size_t size) except -1:
        if self.shown:
            self.shown = False
            return 0
        self.handler.on_frame(self, True, data[:size if size < TRACE_OCTETS else TRACE_OCTETS], size)
        return 0

    cdef int trace_sent(self) except -1:
        """Trace the frames written since the last call. To be called before octets leave `out`."""
        cdef const uint8_t* p = self.out.data + self.out.start + self.traced_out
        cdef const uint8_t* end = self.out.data + self.out.end
        cdef size_t size
        while p < end:
            size = FRAME_HEADER if p[0] == c"A" else read32(p)
            self.handler.on_frame(self, False, p[:size if size < TRACE_OCTETS else TRACE_OCTETS], size)
            p += size
        self.traced_out = buffer_used(&self.out)
        return 0

    cdef void sent(self, size_t octets) noexcept:
        """Remove octets of `out` that were sent."""
        self.out.start += octets
        if self.traced:
            self.traced_out -= octets

    # -- for the client and for tests ---------------------------------------------------------------------------------

    def take_output(self):
        """Return all octets to send, and drop them here."""
        if not self.finished:
            self.prepare()
        if self.traced:
            self.trace_sent()
            self.traced_out = 0
        data = PyBytes_FromStringAndSize(<const char*>(self.out.data + self.out.start), self.out.end - self.out.start)
        buffer_release(&self.out)
        self.dirty = False
        if self in self.scheduler.dirty:
            self.scheduler.dirty.remove(self)
        return data
