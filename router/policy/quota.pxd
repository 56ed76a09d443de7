"""Quotas of a vhost and of one of its groups, shared by their connections on all workers."""
from libc.stdint cimport uint32_t, uint64_t

from sluice.router.amqp.clock cimport Clock
from sluice.router.amqp.quota cimport Quota
from sluice.router.ring.layout cimport QuotaSlot
from sluice.router.ring.region cimport Region

cdef enum:
    SCOPES_MOST = 2            # vhost and group

# Limits of one quota slot; 0: no limit.
cdef struct Scope:
    QuotaSlot* slot
    uint64_t message_ns        # ns that the message rate allows for one message
    double octet_ns            # ns that the octet rate allows for one octet
    uint64_t buffered_most     # octets that all workers may hold
    uint64_t buffered          # octets that all workers held when this worker read them last

# Owner: the worker, which keeps quotas by the number of their rules.
cdef class TenantQuota(Quota):
    cdef Region region
    cdef int worker
    cdef Clock clock
    cdef object call_at        # timer: call_at(ms, function) schedules a call
    cdef Scope scopes[SCOPES_MOST]
    cdef int count             # scopes in use
    cdef bint bounds_octets    # a scope limits the octets held
    cdef set connections
    cdef dict links            # links that wait for credit, the longest-waiting first
    cdef dict sessions         # sessions that wait for a window, the longest-waiting first
    cdef uint64_t reported     # octets held by this worker's connections, as stored in the slots
    cdef uint64_t looked_at    # time of the last `note_buffered`, ns of the clock
    cdef uint64_t due          # time of the scheduled call of `look`, ms; 0: none is scheduled
    cdef uint64_t wanted       # time at which the last refused request can be granted, ns
    cdef uint64_t tokens(self, uint64_t until, uint64_t cost_ns, uint64_t now) noexcept
    cdef uint64_t messages_left(self) noexcept
    cdef uint32_t units(self, uint64_t size) noexcept
    cdef uint64_t octets_left(self) noexcept
    cdef void note_buffered(self, uint64_t now) noexcept
    cdef int wait(self, dict waiting, object waiter) except -1
    cdef void look_later(self) noexcept
    cdef int wake_at(self, uint64_t ns) except -1
