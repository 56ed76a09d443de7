"""Bounds of memory: octets of messages and deliveries that a connection, and the process, may hold."""
from libc.stdint cimport uint32_t, uint64_t

from sluice.router.amqp.channel cimport Channel
from sluice.router.amqp.clock cimport Clock
from sluice.router.amqp.endpoint cimport Endpoint
from sluice.router.amqp.meter cimport Meter
from sluice.router.amqp.object_table cimport ObjectTable
from sluice.router.amqp.quota cimport Quota
from sluice.router.amqp.survey cimport Survey

cdef enum:
    # Default bounds in octets of a connection and of the process.
    CONNECTION_CONTENT = 268435456
    PROCESS_CONTENT = 1073741824

    FREE_PROMISED = 2          # windows promise 1/FREE_PROMISED of the free octets
    FREE_LEAST = 16            # windows are not shortened again while less than 1/FREE_LEAST of the bound is free
    SHORTENED_CONNECTIONS_PER_WAKE = 256   # connections whose windows are shortened in one wake
    # Least part of each connection, whatever others hold: all connections together may hold 1/LEAST_SHARE of the
    # process's bound, each of them at most LEAST_MOST octets.
    LEAST_SHARE = 8
    LEAST_MOST = 1048576

cdef extern from "stdint.h":
    uint64_t NO_BOUND "UINT64_MAX"

# Result of a check at a bound.
cdef enum LastResort:
    ENDED_NOTHING = 0
    ENDED_STUCK = 1            # a link whose messages no consumer took
    ENDED_UNROUTED = 2         # a link with an unfinished message that was not routed
    ENDED_AWAITED = 3          # a connection, with all deliveries that its peer had not settled

# Memory bound of the process. Owner: the scheduler.
cdef class ProcessMemory:
    cdef Clock clock
    cdef public uint64_t content_limit    # octets that the process may hold
    cdef uint64_t content                 # octets held, those of `deliveries` included
    cdef uint64_t deliveries              # octets held by the structs of deliveries and copies
    # The bound is reached: links and sessions that hold messages get no credit and no window.
    cdef readonly bint crowded
    cdef bint watched                 # in `Clock.starved`, which checks whether a link or session waits for room
    cdef set withheld                 # Connections that continue when the process is no longer crowded
    cdef set connections              # open Connections
    cdef uint64_t surveyed_at              # time in ms of the last survey of all links on behalf of one connection
    cdef uint64_t look_at             # time in ms of the next survey of all links while the process is crowded
    cdef public uint64_t windows_shut  # sessions whose window is shut until held octets are freed
    # Windows are promises of memory: see `window_octets`.
    cdef uint64_t withdraw_at         # octets held at which windows are shortened next
    cdef readonly list windows_to_shorten         # Connections whose windows are still to be shortened
    # Links evicted at a bound of memory. The event loop adds the number to its counters and resets it.
    cdef public uint64_t given_up
    cdef int note_content(self, uint64_t stored, uint64_t deliveries) except -1
    cdef uint64_t guaranteed_octets(self) noexcept
    cdef uint64_t window_octets(self) noexcept
    cdef void shorten_some_windows(self) noexcept
    cdef void survey(self, Survey* found) noexcept
    # Survey the consumers' links. connection: see Survey. copies: most messages in queues to examine.
    cdef void survey_consumers(self, Survey* found, const Meter* connection, uint32_t copies) noexcept
    cdef LastResort end_most(self, Survey* found, size_t total) except *
    cdef LastResort end_awaited(self, Survey* consumers) except *

# Base class of a connection: its memory bound. Owner: the transport.
cdef class ConnectionMemory:
    cdef ProcessMemory process
    cdef ObjectTable local_channels         # sessions
    cdef Meter* content                     # octets held of messages and deliveries that arrived here, or NULL
    # The part of `content` that other workers have: messages that crossed, until their copies end; or NULL.
    cdef Meter* crossed
    cdef readonly uint64_t content_limit    # octets that the connection may hold
    cdef readonly bint relays               # the peer is a router, so messages come from and go to many clients
    cdef list withheld                      # links that get no credit while too much is held; None: none
    cdef set shut                           # sessions shut because the connection or the process is full; None: none
    cdef bint watched                       # in `Clock.starved`, which checks whether the shortage lasts
    cdef uint64_t withdraw_at               # octets held at which the windows of its sessions are shortened next
    cdef Quota quota                        # limits shared with other connections; None: none
    cdef Meter* content_meter(self) except NULL
    cdef Meter* crossed_meter(self) except NULL
    cdef bint content_full(self) noexcept
    cdef bint full(self) noexcept
    cdef bint must_defer_transfer(self, bint promised) noexcept
    cdef uint64_t window_octets(self) noexcept
    cdef void withdraw_windows(self) noexcept
    cdef void shorten_windows(self) noexcept
    cdef void wait_for_room(self, Channel channel) noexcept
    cdef void watch_meter(self) noexcept   # have the meter report when octets are freed
    cdef void reopen_window(self) noexcept
    cdef bint has_waited_too_long(self) noexcept
    cdef void survey(self, Survey* found) noexcept
    cdef void withhold(self, Endpoint link) noexcept
    cdef void grant_withheld(self) noexcept
    cdef void let_go(self) noexcept
    # Close the connection, as the last resort for deliveries of `octets` octets that its peer has not settled.
    cdef int close_for_awaited(self, size_t octets) except -1


cdef inline bint is_short(uint64_t held, uint64_t limit) noexcept:
    """True if half of the limit is held."""
    return held >= limit // 2


cdef inline bint is_exceeded(uint64_t held, uint64_t limit) noexcept:
    """True if the limit is exceeded by a quarter."""
    return held >= limit + limit // 4


cdef inline uint64_t free_of(uint64_t held, uint64_t limit) noexcept:
    """Return the octets that may still be held."""
    return limit - held if held < limit else 0


cdef inline uint64_t next_withdrawal(uint64_t held, uint64_t limit) noexcept:
    """Return the octets held at which windows are shortened next: when half of what is free now is used. The last time
    is at a quarter above the limit, where nothing more is taken."""
    cdef uint64_t free = free_of(held, limit)
    if free >= limit // FREE_LEAST:
        return held + free // 2
    return NO_BOUND if is_exceeded(held, limit) else limit + limit // 4
