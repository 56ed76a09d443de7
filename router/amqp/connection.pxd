"""An AMQP connection (part 2, 2.4): headers, open and close, channels, idle time-out, output."""
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

from router.amqp.buffer cimport WriteBuffer
from router.amqp.delivery cimport Party
from router.amqp.message cimport Meter
from router.amqp.numbers cimport NumberTable

cdef enum:
    # Octets in a connection's write buffer above which links wait in their queues (Dispatch's Q3 is 512 KiB a session;
    # half of it keeps a socket busy and latency small).
    OUTPUT_HIGH = 131072
    # What one link may write before the next one has its turn.
    LINK_QUANTUM = 32768

cpdef enum Pause:
    PAUSE_ATTACH = 1           # a frame for a link whose attach is being decided
    PAUSE_RING = 4             # a ring to another worker is full
    PAUSE_DRAIN = 8            # the worker is about to end
    PAUSE_LOCAL = 16           # too many of its messages for the router itself are waiting for the supervisor
    PAUSE_CONTROL = 32         # too many octets of what routers say to each other are

# What a link says that had its turn to write.
cdef enum:
    TURN_DONE = 0              # nothing more now: it waits for credit or for octets, or has nothing
    TURN_MORE = 1              # it could write more
    TURN_WINDOW = 2            # it waits for the session's window

cdef enum:
    FRAME_TAKEN = 0
    FRAME_WAITS = 1            # the connection is paused and this frame is to be offered again

# Owner: the worker. What is shared by the connections of one event loop.
cdef class Scheduler:
    cdef readonly uint64_t now        # ms, CLOCK_MONOTONIC: time of this wake, or of the read of a socket in it
    cdef readonly uint64_t now_ns     # the same
    cdef readonly uint32_t second     # the same
    cdef void set_clock(self, uint64_t now_ns) noexcept
    cdef list dirty                   # Connections with something to send, in the order they got it
    cdef list resumed                 # Connections whose frames may go on, see Connection.pause
    # What has a check_starved() that is to be called soon: outgoing links that hold credit back and get none
    # (OVERFLOW_THROTTLE), sessions at the bound of memory.
    cdef list starved
    cdef public uint64_t content_limit    # octets of messages that the process may hold
    cdef readonly bint crowded        # it holds them: nobody gets credit or window for what is held up
    cdef set withheld                 # Connections with links that get credit again when it does not
    cdef int note_content(self, uint64_t held) except -1

# A link, as its connection knows it. Owner: its session.
cdef class Endpoint(Party):
    cdef Endpoint next_ready
    cdef Endpoint previous_ready
    cdef ReadyList* in_ready               # the list of its session that it is in, or NULL
    cdef bint urgent                       # it has its turn before all others
    cdef size_t output_high                # octets in the write buffer above which it waits
    # Write up to `budget` octets of queued deliveries. Returns TURN_.
    cdef int pump(self, size_t budget) except -1
    cdef void grant_again(self) noexcept   # the connection was too full to grant it credit, and is not any more

# Endpoints of one session, in the order of their turns. Borrowed references: the session keeps its links.
cdef struct ReadyList:
    void* first
    void* last

# A session, as its connection knows it. Owner: its connection.
cdef class Channel:
    cdef ReadyList ready                   # links that may be able to write
    cdef Channel next_turn
    cdef bint has_turn                     # it is in the connection's list
    # Give the next link its turn. True: there are more.
    cdef bint turn(self) except *
    cdef readonly uint16_t local_channel
    cdef readonly uint16_t remote_channel
    cdef bint in_dirty
    cdef int frame(self, uint8_t code, const uint8_t* p, const uint8_t* end) except -1
    cdef int flush(self) except -1
    cdef int end(self) except -1
    cdef int lost(self) except -1
    cdef readonly bint unanswered           # we began it, and the peer has not yet
    cdef int answered(self, uint16_t number, list items) except -1

# Owner: the worker's event loop (one transport each). All methods run in that process's only thread.
cdef class Connection:
    cdef WriteBuffer out
    cdef readonly Scheduler scheduler
    cdef readonly object handler            # ConnectionHandler, see connection.pyx
    cdef public object owner                # the transport that carries it
    cdef readonly bint initiator
    cdef readonly int state
    cdef NumberTable channels               # by remote channel
    cdef NumberTable local_channels
    cdef int open_channels                  # sessions, of either side
    cdef readonly uint32_t local_max_frame  # octets
    cdef readonly uint32_t remote_max_frame
    cdef readonly uint32_t local_channel_max
    cdef readonly uint32_t remote_channel_max
    cdef readonly uint32_t remote_idle      # ms, 0: peer asked for no heartbeats
    cdef public uint32_t local_idle         # ms after which a silent peer is given up, 0: never
    cdef readonly uint64_t handshake_deadline  # ms, 0: none
    cdef uint32_t handshake_ms              # time for it, where there is a deadline
    cdef public uint64_t last_received      # ms
    cdef public uint64_t last_sent          # ms
    cdef readonly uint32_t paused           # PAUSE_ reasons why frames wait, 0: they do not
    cdef readonly bint dirty
    cdef readonly bint traced               # frames are shown to the handler
    cdef bint shown                         # … and the next one, which waited, was already
    cdef size_t shown_out                   # octets of `out` that were
    cdef bint close_sent
    cdef bint answers_later                 # the answer to the peer's close waits for answer_close
    cdef object remote_error                # (condition, description) of the peer's close
    cdef readonly bint finished             # nothing more will be said: the transport closes when `out` is empty
    cdef readonly bint silent               # … at once, without what is still in `out`
    cdef readonly object remote_open        # dict of the peer's open
    cdef object sasl                        # SaslServer or SaslClient while that layer runs
    cdef Channel first_turn                 # sessions that have links that may be able to write, in turns
    cdef Channel last_turn
    cdef list dirty_channels
    cdef Meter* content                     # octets held of messages that came by it, NULL before the first
    cdef readonly uint64_t content_limit    # … and how many may be
    cdef list withheld                      # links that get no credit while it holds too much

    cdef Py_ssize_t receive(self, const uint8_t* data, size_t size) except -1
    cdef Py_ssize_t consume(self, const uint8_t* data, size_t size) except -1
    cdef int one_frame(self, const uint8_t* frame, uint32_t size) except -1
    cdef Channel channel_of(self, uint16_t number)
    cdef int cold_frame(self, uint64_t code, uint16_t number, const uint8_t* p, const uint8_t* end) except -1
    cdef int protocol_header(self, const uint8_t* p) except -1
    cdef int sasl_frame(self, const uint8_t* frame, uint32_t size) except -1
    cdef int read_open(self, list items) except -1
    cdef int peer_closed(self, list items) except -1
    cdef int answered_header(self, bytes text) except -1
    cdef int lose_channels(self) except -1
    cdef int drop(self, object error=*) except -1
    cdef int finish(self, object error) except -1
    cdef int show_received(self, const uint8_t* data, size_t size) except -1
    cdef int show_sent(self) except -1
    cdef void sent(self, size_t octets) noexcept
    cdef int begin(self, uint16_t number, list items) except -1
    cdef bint begun(self, uint16_t number, bytes ours, list items) except *
    cdef int forget_channel(self, Channel channel) except -1
    cdef int write(self, bytes octets) except -1
    cdef int prepare(self) except -1
    cdef bint overdue(self, uint64_t now) noexcept
    cdef void excuse(self, uint64_t went_on) noexcept
    cdef void mark_dirty(self) noexcept
    cdef void mark_channel(self, Channel channel) noexcept
    cdef void want_turn(self, Channel channel, bint urgent) noexcept
    cdef Meter* content_meter(self) except NULL
    cdef size_t room_needed(self) noexcept
    cdef bint full(self) noexcept
    cdef void withhold(self, Endpoint link) noexcept
    cdef void grant_withheld(self) noexcept
    cdef int send_frame(self, uint16_t channel, bytes body) except -1
    cpdef void pause(self, uint32_t reason)
    cpdef void resume(self, uint32_t reason)
    cpdef void fail(self, object error)
    cpdef void end_by(self, object error)
    cpdef void drop_by(self, object error)
    cdef int report_fault(self, object error) except -1
