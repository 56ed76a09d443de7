"""Quotas of a vhost and of one of its groups, shared by their connections at all workers."""
from libc.stdint cimport uint32_t, uint64_t

from router.amqp.clock cimport Clock
from router.amqp.quota cimport Quota
from router.interworker.layout cimport QuotaSlot
from router.interworker.region cimport Region

cdef enum:
    SCOPES_MOST = 2            # vhost and group

# The limits of one slot. 0: no limit.
cdef struct Scope:
    QuotaSlot* slot
    uint64_t message_ns        # of the rate that one message uses up
    double octet_ns
    uint64_t buffered_most     # octets that all workers may hold
    uint64_t buffered          # … and held when this worker last looked

# Owner: the worker, by number of its rules.
cdef class TenantQuota(Quota):
    cdef Region region
    cdef int worker
    cdef Clock clock
    cdef object call_at        # (ms, function)
    cdef Scope scopes[SCOPES_MOST]
    cdef int count
    cdef bint bounds_octets    # of those that are held
    cdef set connections
    cdef dict links            # that wait for credit, in order
    cdef dict sessions         # that wait for a window
    cdef uint64_t reported     # octets that this worker's connections hold, as the slots know it
    cdef uint64_t looked_at    # ns of the clock
    cdef uint64_t due          # ms: when `look` is called, 0: it is not
    cdef uint64_t wanted       # ns: when what was last asked for can be had
    cdef uint64_t tokens(self, uint64_t until, uint64_t cost_ns, uint64_t now) noexcept
    cdef uint64_t messages_left(self) noexcept
    cdef uint32_t units(self, uint64_t size) noexcept
    cdef uint64_t octets_left(self) noexcept
    cdef void note_buffered(self, uint64_t now) noexcept
    cdef int wait(self, dict waiting, object waiter) except -1
    cdef void look_later(self) noexcept
    cdef int wake_at(self, uint64_t ns) except -1
