"""Limits that several connections share: asked before credit or a window is granted."""
from libc.stdint cimport uint32_t, uint64_t

from router.amqp.meter cimport Meter

# Owner: the worker; connections hold references. The base has no limits.
cdef class Quota:
    cdef Meter* queued         # messages of other workers that wait for consumers of these connections, or NULL
    cdef Meter* queued_meter(self) except NULL
    # Count octets of a transfer that has come. first: the transfer begins a delivery.
    cdef void charge(self, uint64_t octets, bint first) noexcept
    # Deliveries that one link may be granted now, 0: none. mean: octets of a delivery of this link so far.
    cdef uint32_t deliveries(self, uint64_t mean) noexcept
    # Frames of so many octets that the window of one session may promise now, 0: none.
    cdef uint32_t frames(self, uint32_t size) noexcept
    # No more octets may be held, and the rates are not used up: messages that have begun may be finished.
    cdef bint full(self) noexcept
    # Ask again later: calls `grant_again` of a link, or `room_again` of a session. Each waits once.
    cdef int wait_link(self, object link) except -1
    cdef int wait_session(self, object session) except -1
