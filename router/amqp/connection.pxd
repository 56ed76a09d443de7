"""AMQP connection (AMQP 1.0 part 2, 2.4): headers, open and close, channels, idle time-out, output."""
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

from sluice.router.amqp.connection_channels cimport ConnectionChannels
from sluice.router.amqp.scheduler cimport Scheduler

cdef enum:
    PAUSE_ATTACH = 1           # a frame for a link whose attach is being decided
    PAUSE_TURN = 2             # a frame with interpreter work waits for a turn
    PAUSE_SASL = 4             # the answer to a SASL frame is not known yet
    PAUSE_OPEN = 8             # the answer to an open is not known yet
    PAUSE_SLICE = 16           # the frames have used up a slice
    PAUSE_MEMORY = 32          # a transfer beyond a shortened window waits until memory has room
    # Further bits belong to the code that uses the connection.

# AMQP connection. Owner: the worker's event loop, by one transport. All methods run in the only thread of the process.
cdef class Connection(ConnectionChannels):
    cdef public object owner                # the transport that carries the connection
    cdef readonly bint initiator
    cdef readonly int state
    cdef readonly uint32_t local_max_frame  # octets
    cdef readonly uint32_t remote_max_frame
    cdef readonly uint32_t remote_idle      # idle-time-out of the peer in ms; 0: no heartbeats requested
    cdef public uint32_t local_idle         # ms after which a silent peer is disconnected; 0: never
    cdef readonly uint64_t handshake_deadline  # deadline in ms for the peer's open; 0: none
    cdef uint32_t handshake_ms              # time for the handshake, if there is a deadline
    cdef uint64_t opened_at                 # ms; 0: the peer's open has not arrived
    cdef public uint64_t last_received      # ms
    cdef public uint64_t last_sent          # ms
    cdef uint32_t turn_left                 # frames that the connection may still take in this turn
    cdef bint granted                       # the turn was given from the scheduler's list
    cdef int then                           # action after the last link has ended, THEN_
    cdef bint release_due
    cdef object end_error                   # (condition, description) for on_closed
    cdef readonly uint32_t paused           # PAUSE_ reasons for frames to wait; 0: none
    cdef bint open_sent
    cdef bint close_sent
    cdef readonly bint close_received
    cdef bint answers_later                 # the answer to the peer's close waits for answer_close
    cdef object remote_error                # (condition, description) of the peer's close
    cdef readonly bint silent               # the transport closes at once, without sending the rest of `out`
    cdef readonly object remote_open        # dict of the peer's open
    cdef object sasl                        # SaslServer or SaslClient during the SASL layer

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
    cdef bint may_take_frame(self) except *
    cdef int pause_for_slice(self) except -1
    cdef int end_sessions(self) except -1
    cdef int drop(self, object error=*) except -1
    cdef int finish(self, object error) except -1
    cdef int begin(self, uint16_t number, list items) except -1
    cdef bint overdue(self, uint64_t now) noexcept
    cdef void extend_deadline(self, uint64_t went_on) noexcept
    cpdef void pause(self, uint32_t reason)
    cpdef void resume(self, uint32_t reason)
    cpdef void fail(self, object error)
    cpdef void drop_by(self, object error)
