"""Limits that several connections share: the base class, which limits nothing."""
from libc.stdint cimport UINT32_MAX, uint32_t, uint64_t

from sluice.router.amqp.meter cimport meter_new, meter_release


cdef class Quota:
    def __dealloc__(self):
        if self.queued is not NULL:
            meter_release(self.queued)

    cdef Meter* queued_meter(self) except NULL:
        # The meter has no owner: such messages belong to no incoming link of this worker.
        if self.queued is NULL:
            self.queued = meter_new(NULL, NULL)
        return self.queued

    cdef void charge(self, uint64_t octets, bint first) noexcept:
        pass

    cdef uint32_t deliveries(self, uint64_t mean) noexcept:
        return UINT32_MAX

    cdef uint32_t frames(self, uint32_t size) noexcept:
        return UINT32_MAX

    cdef bint full(self) noexcept:
        return False

    cdef int wait_link(self, object link) except -1:
        return 0

    cdef int wait_session(self, object session) except -1:
        return 0
