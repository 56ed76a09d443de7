"""An AMQP connection (AMQP 1.0 part 2, 2.4): headers, open and close, channels, idle time-out, output."""
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

from router.amqp.connection_channels cimport ConnectionChannels
from router.amqp.scheduler cimport Scheduler

cpdef enum Pause:
    PAUSE_ATTACH = 1           # a frame for a link whose attach is being decided
    PAUSE_TURN = 2             # a frame that costs interpreter work: others have their turn first
    PAUSE_SASL = 4             # the answer to a SASL frame is not known yet
    PAUSE_OPEN = 8             # … to an open
    PAUSE_BEGIN = 16           # … to a begin
    PAUSE_SLICE = 32           # its frames have cost as much as one slice may: others have their turn first
    PAUSE_MEMORY = 64          # a transfer beyond a window that was shortened: it waits until memory has room
    # … further bits: of whoever runs it

# Owner: the worker's event loop (one transport each). All methods run in that process's only thread.
cdef class Connection(ConnectionChannels):
    cdef public object owner                # the transport that carries it
    cdef readonly bint initiator
    cdef readonly int state
    cdef readonly uint32_t local_max_frame  # octets
    cdef readonly uint32_t remote_max_frame
    cdef readonly uint32_t remote_idle      # ms, 0: peer asked for no heartbeats
    cdef public uint32_t local_idle         # ms after which a silent peer is given up, 0: never
    cdef readonly uint64_t handshake_deadline  # ms, 0: none
    cdef uint32_t handshake_ms              # time for it, where there is a deadline
    cdef public uint64_t last_received      # ms
    cdef public uint64_t last_sent          # ms
    cdef uint32_t turn_left                 # frames that it may send in this turn
    cdef bint granted                       # … which was given to it
    cdef int then                           # what follows when no link is left
    cdef bint release_due
    cdef object end_error                   # (condition, description) for on_closed
    cdef readonly uint32_t paused           # PAUSE_ reasons why frames wait, 0: they do not
    cdef bint open_sent
    cdef bint close_sent
    cdef readonly bint close_received
    cdef bint answers_later                 # the answer to the peer's close waits for answer_close
    cdef object remote_error                # (condition, description) of the peer's close
    cdef readonly bint silent               # … at once, without what is still in `out`
    cdef readonly object remote_open        # dict of the peer's open
    cdef bytes open_frame                   # … as octets, of a peer that waits for ours
    cdef object sasl                        # SaslServer or SaslClient while that layer runs

    cdef Py_ssize_t receive(self, const uint8_t* data, size_t size) except -1
    cdef Py_ssize_t consume(self, const uint8_t* data, size_t size) except -1
    cdef int one_frame(self, const uint8_t* frame, uint32_t size) except -1
    cdef int cold_frame(self, uint64_t code, uint16_t number, const uint8_t* p, const uint8_t* end) except -1
    cdef int protocol_header(self, const uint8_t* p) except -1
    cdef int sasl_frame(self, const uint8_t* frame, uint32_t size) except -1
    cdef int sasl_answered(self, bytes answer) except -1
    cdef int send_close(self, bytes error) except -1
    cdef int read_open(self, list items) except -1
    cdef int peer_closed(self, list items) except -1
    cdef int begin_amqp(self) except -1
    cdef bint refused(self, bint sasl) except -1
    cdef int answered_header(self, bytes text) except -1
    cdef bint takes_turn(self) except *
    cdef int end_slice(self) except -1
    cdef int lose_channels(self) except -1
    cdef int drop(self, object error=*) except -1
    cdef int finish(self, object error) except -1
    cdef int begin(self, uint16_t number, list items) except -1
    cdef bint overdue(self, uint64_t now) noexcept
    cdef void excuse(self, uint64_t went_on) noexcept
    cpdef void pause(self, uint32_t reason)
    cpdef void resume(self, uint32_t reason)
    cpdef void fail(self, object error)
    cpdef void drop_by(self, object error)
