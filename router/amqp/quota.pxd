"""Limits that several connections share, checked before credit or a window is granted."""
from libc.stdint cimport uint32_t, uint64_t

from sluice.router.amqp.meter cimport Meter

# Interface of a shared limit; this base class limits nothing. Owner: the worker; connections hold references.
cdef class Quota:
    cdef Meter* queued         # octets from other workers that wait for consumers of these connections, or NULL
    cdef Meter* queued_meter(self) except NULL
    # Charge the octets of a received transfer. first: the transfer begins a delivery.
    cdef void charge(self, uint64_t octets, bint first) noexcept
    # Return the deliveries that may be granted to one link now; 0: none. mean: octets of a delivery of the link so
    # far.
    cdef uint32_t deliveries(self, uint64_t mean) noexcept
    # Return the frames of `size` octets that the window of one session may promise now; 0: none.
    cdef uint32_t frames(self, uint32_t size) noexcept
    # True if the octets held reach the limit while the rates are not used up: only messages that have begun may be
    # completed.
    cdef bint full(self) noexcept
    # Call `grant_again` of a link, or `reopen_window` of a session, when more is available. Each of them waits once.
    cdef int wait_link(self, object link) except -1
    cdef int wait_session(self, object session) except -1
