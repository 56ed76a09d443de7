"""The turns of the connections of one event loop."""
from libc.stdint cimport uint32_t, uint64_t

from router.amqp.channel cimport Channel
from router.amqp.clock cimport Clock
from router.amqp.memory cimport ConnectionMemory, ProcessMemory

# What costs interpreter work is done in turns: frames but transfers, flows and dispositions, and ends of links that are
# lost with their session. A connection, and a wake, does so many, first of those that have just come, then as many of
# those that wait.
cdef enum:
    FRAMES_A_TURN = 32
    FRAMES_A_WAKE = 64
    LOSSES_A_TURN = 32
    LOSSES_A_WAKE = 64

# Frames of the data path are cheap, but for those that touch many deliveries or copies. These are charged in units of
# about 0.1 microseconds, and a connection that has used up its slice goes on in a later wake.
cpdef enum Work:
    WORK_A_SLICE = 8192        # units that one connection may use before all others have their turn

# Owner: the worker. What is shared by the connections of one event loop.
cdef class Scheduler(Clock):
    cdef readonly ProcessMemory memory
    cdef list dirty                   # Connections with something to send, in the order they got it
    cdef list resumed                 # Connections whose frames may go on, see Connection.pause
    cdef list turns                   # Connections with a frame that waits for its turn
    cdef list sliced                  # Connections that have used up their slice, see `charge`
    cdef readonly uint32_t work       # units that were charged to the slice at hand
    cdef readonly uint64_t charged    # … and to all before it
    cdef list losing                  # Connections with links that are lost, and not ended yet
    cdef public bint behind           # the supervisor is, with what it has to decide: no frame has its turn
    cdef uint32_t frames_left         # of this wake
    cdef uint32_t losses_left
    cdef readonly uint64_t frames     # that cost interpreter work and were taken, and links that were ended, ever
    cdef readonly uint64_t losses
    cpdef void begin_wake(self) noexcept
    cpdef bint has_time(self) noexcept
    cpdef bint unfinished(self) noexcept
    cpdef int give_turns(self) except -1
    cpdef int resume_sliced(self) except -1
    cpdef int lose_links(self) except -1

# A connection, as its scheduler knows it: it has something to send, a frame waits for its turn, or links are lost with
# their sessions. Owner: the transport.
cdef class Scheduled(ConnectionMemory):
    cdef readonly Scheduler scheduler
    cdef readonly object handler            # ConnectionHandler, see connection.pyx
    cdef readonly bint finished             # nothing more will be said: the transport closes when `out` is empty
    cdef readonly bint dirty
    cdef object losing                      # deque of sessions with links that are lost and not ended yet; None: none
    cdef bint loses                         # … one of them, just now
    cdef bint waits_to_lose                 # it is in the scheduler's list
    cdef int take_turn(self) except -1      # a frame that waited for its turn may go on
    cdef int take_slice(self) except -1     # its next slice begins
    cdef int lose_more(self) except -1
    cdef int lose_channel(self, Channel channel) except -1
    cdef int all_lost(self) except -1       # no link is left of what was lost
    cdef int report_fault(self, object error) except -1
    cdef void mark_dirty(self) noexcept
    cpdef void end_by(self, object error)


cdef inline void charge(Scheduler scheduler, uint32_t units) noexcept:
    """Charge work to the connection whose frame is being taken."""
    scheduler.work += units


cdef inline uint32_t slice_left(Scheduler scheduler) noexcept:
    """Units that the frame at hand may still use, one at least."""
    return WORK_A_SLICE - scheduler.work if scheduler.work < WORK_A_SLICE else 1


cdef inline bint slice_used(Scheduler scheduler) noexcept:
    """True if the connection whose frames are being taken has to make way for the others."""
    return scheduler.work >= WORK_A_SLICE
