"""Turns of the connections of one event loop."""
from libc.stdint cimport uint32_t, uint64_t

from sluice.router.amqp.capacity_share cimport CapacityShare, LimitedLinks
from sluice.router.amqp.channel cimport Channel
from sluice.router.amqp.clock cimport Clock
from sluice.router.amqp.memory cimport ConnectionMemory, ProcessMemory

# Interpreter work is done in turns: frames other than transfers, flows and dispositions, and the end of links that are
# lost with their session. The number of both is bounded for each turn of a connection and for each wake. Frames that
# have just arrived come first, then an equal number of frames that wait.
cdef enum:
    FRAMES_PER_TURN = 32
    FRAMES_PER_WAKE = 64
    LOST_LINKS_PER_TURN = 32
    LOST_LINKS_PER_WAKE = 64

# Frames of the data path are cheap, except for those that touch many deliveries or copies. Their work is charged in
# cost units of about 0.1 microseconds. A connection that has used up its slice continues in a later wake.
cpdef enum:
    UNITS_PER_SLICE = 8192        # cost units of one slice, after which all other connections have their turn

# State shared by the connections of one event loop. Owner: the worker.
cdef class Scheduler(Clock):
    cdef readonly ProcessMemory memory
    cdef CapacityShare capacity_share
    cdef list dirty                   # Connections with output, in the order in which they became dirty
    cdef list resumed                 # Connections whose pause has ended, see Connection.pause
    cdef list turns                   # Connections with a frame that waits for a turn
    cdef list sliced                  # Connections that have used up their slice, see `charge`
    cdef readonly uint32_t work       # cost units charged to the current slice
    cdef readonly uint64_t charged    # cost units charged to all earlier slices
    cdef list losing                  # Connections with links that are lost and not ended yet
    cdef public bint behind           # the supervisor is behind with its decisions: no frame gets a turn
    cdef uint32_t frames_left         # frames that this wake may still take when they arrive
    cdef uint32_t turns_at_once       # connections of `turns` that get a turn in this wake
    cdef uint32_t turn_frames_left    # frames that these may still take in this wake, beside the first of each
    cdef uint32_t losses_left
    cdef readonly uint64_t frames     # frames with interpreter work that were taken since the start
    cdef readonly uint64_t losses     # lost links that were ended since the start
    cpdef void begin_wake(self) noexcept
    cpdef bint has_time(self) noexcept
    cpdef bint unfinished(self) noexcept
    cpdef int grant_turns(self) except -1
    cpdef int resume_sliced(self) except -1
    cpdef int end_lost_links(self) except -1

# Connection as its scheduler knows it: with output to send, a frame that waits for a turn, or links lost with their
# sessions. Owner: the transport.
cdef class ScheduledConnection(ConnectionMemory):
    cdef readonly Scheduler scheduler
    cdef readonly object handler            # ConnectionHandler, see connection.pyx
    cdef readonly bint finished             # nothing more will be written: the transport closes when `out` is empty
    cdef readonly bint dirty
    cdef LimitedLinks limited               # links of the connection that ran out of credit
    cdef object losing                      # deque of sessions with lost links that have not ended yet; None: none
    cdef bint loses                         # a connection of the list is ending links just now
    cdef bint in_losing                 # in the scheduler's list `losing`
    cdef int resume_turn(self) except -1      # let a frame that waited for a turn continue
    cdef int take_slice(self) except -1     # begin the next slice
    cdef int end_some_lost_links(self) except -1
    cdef int add_lost_session(self, Channel channel) except -1
    cdef int on_all_links_ended(self) except -1       # continue after the last lost link has ended
    cdef int report_fault(self, object error) except -1
    cdef void mark_dirty(self) noexcept
    cpdef void end_by(self, object error)


cdef inline void charge(Scheduler scheduler, uint32_t units) noexcept:
    """Charge work to the connection whose frame is being handled."""
    scheduler.work += units


cdef inline uint32_t slice_left(Scheduler scheduler) noexcept:
    """Return the cost units that the current frame may still use, at least one."""
    return UNITS_PER_SLICE - scheduler.work if scheduler.work < UNITS_PER_SLICE else 1


cdef inline bint slice_used(Scheduler scheduler) noexcept:
    """True if the connection whose frame was handled has used up its slice."""
    return scheduler.work >= UNITS_PER_SLICE
