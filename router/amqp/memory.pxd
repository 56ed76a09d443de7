"""The bound of memory: octets of messages that a connection, and the process, may hold."""
from libc.stdint cimport uint32_t, uint64_t

from router.amqp.channel cimport Channel
from router.amqp.clock cimport Clock
from router.amqp.endpoint cimport Endpoint
from router.amqp.meter cimport Meter
from router.amqp.object_table cimport ObjectTable
from router.amqp.quota cimport Quota
from router.amqp.survey cimport Survey

cdef enum:
    # Octets of messages that a connection may hold, and a process, where the configuration says nothing.
    CONNECTION_CONTENT = 268435456
    PROCESS_CONTENT = 1073741824

    FREE_PROMISED = 2          # windows promise 1/FREE_PROMISED of what is free
    FREE_LEAST = 16            # less than 1/FREE_LEAST of the bound is free: too little to shorten windows again
    CONNECTIONS_A_WAKE = 256   # whose windows one wake shortens
    LEAST_SHARE = 8            # whatever others hold, connections may hold 1/LEAST_SHARE of the process's bound …
    LEAST_MOST = 1048576       # … each of them so many octets at the most

cdef extern from "stdint.h":
    uint64_t NO_BOUND "UINT64_MAX"

# What a look at the bound has ended.
cdef enum LastResort:
    ENDED_NOTHING = 0
    ENDED_STUCK = 1            # of which nothing was taken
    ENDED_UNROUTED = 2         # with an unfinished message that was not routed
    ENDED_AWAITED = 3          # a connection, with all deliveries that its peer had not settled

# Owner: the scheduler.
cdef class ProcessMemory:
    cdef Clock clock
    cdef public uint64_t content_limit    # octets of messages that the process may hold
    cdef uint64_t content                 # … and holds, with what deliveries count
    cdef uint64_t deliveries              # octets that these count
    cdef readonly bint crowded        # it holds them: nobody gets credit or window for what is held up
    cdef bint watched                 # … and `starved` looks whether somebody waits for that
    cdef set withheld                 # Connections of which something goes on when it is not crowded any more
    cdef set connections              # … that are open
    cdef uint64_t walked              # ms: when a connection had the links of all looked at
    cdef uint64_t look_at             # ms: when it looks at all links next, while it is crowded
    cdef public uint64_t windows_shut  # sessions whose window stays shut until something is taken
    # Windows are promises of memory: see `window_octets`.
    cdef uint64_t withdraw_at         # octets of messages held at which windows are shortened
    cdef readonly list untold         # Connections whose windows are still to be shortened
    # Links whose messages were given up at the bound of memory; whoever counts them takes them from here.
    cdef public uint64_t given_up
    cdef int note_content(self, uint64_t stored, uint64_t deliveries) except -1
    cdef uint64_t least_octets(self) noexcept
    cdef uint64_t window_octets(self) noexcept
    cdef void withdraw_some(self) noexcept
    cdef void survey(self, Survey* found) noexcept
    # copies: how many messages in queues are looked at.
    cdef void survey_consumers(self, Survey* found, const Meter* connection, uint32_t copies) noexcept
    cdef LastResort end_most(self, Survey* found, size_t total) except *
    cdef LastResort end_awaited(self, Survey* consumers) except *

# Base of a connection. Owner: the transport.
cdef class ConnectionMemory:
    cdef ProcessMemory process
    cdef ObjectTable local_channels         # its sessions
    cdef Meter* content                     # octets held of messages and deliveries that came by it, or NULL
    cdef readonly uint64_t content_limit    # … and how many may be
    cdef readonly bint relays               # its peer is a router: what comes and leaves by it is of many
    cdef list withheld                      # links that get no credit while it holds too much; None: none
    cdef set shut                           # sessions whose window is shut because it, or the process, does; None: none
    cdef bint watched                       # … and `Scheduler.starved` looks whether that lasts
    cdef uint64_t withdraw_at               # octets held at which the windows of its sessions are shortened
    cdef Quota quota                        # limits that it shares with others; None: none
    cdef Meter* content_meter(self) except NULL
    cdef bint content_full(self) noexcept
    cdef bint full(self) noexcept
    cdef bint must_wait(self, bint promised) noexcept
    cdef uint64_t window_octets(self) noexcept
    cdef void withdraw_windows(self) noexcept
    cdef void shorten_windows(self) noexcept
    cdef void wait_for_room(self, Channel channel) noexcept
    cdef void note_waiting(self) noexcept   # its meter tells it when less is held
    cdef void room_again(self) noexcept
    cdef bint stands_still(self) noexcept
    cdef void survey(self, Survey* found) noexcept
    cdef void withhold(self, Endpoint link) noexcept
    cdef void grant_withheld(self) noexcept
    cdef void let_go(self) noexcept
    # The last resort for deliveries of so many octets that its peer has not settled: it is closed.
    cdef int close_for_awaited(self, size_t octets) except -1


cdef inline bint is_short(uint64_t held, uint64_t limit) noexcept:
    """Half of what may be held is."""
    return held >= limit // 2


cdef inline bint is_exceeded(uint64_t held, uint64_t limit) noexcept:
    """A quarter more is held than may be."""
    return held >= limit + limit // 4


cdef inline uint64_t free_of(uint64_t held, uint64_t limit) noexcept:
    """Octets that may still be held."""
    return limit - held if held < limit else 0


cdef inline uint64_t next_withdrawal(uint64_t held, uint64_t limit) noexcept:
    """Octets held at which windows are shortened again: half of what is free now is used, and for the last time where
    nothing more is taken."""
    cdef uint64_t free = free_of(held, limit)
    if free >= limit // FREE_LEAST:
        return held + free // 2
    return NO_BOUND if is_exceeded(held, limit) else limit + limit // 4
