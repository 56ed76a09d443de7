"""Meters for flow control in octets: messages that are stored and that not all readers have passed."""
from libc.stdlib cimport free, malloc


cdef Meter* meter_new(void* owner, MeterFreed freed, Meter* parent=NULL) except NULL:
    cdef Meter* m = <Meter*>malloc(sizeof(Meter))
    if m is NULL:
        raise MemoryError("meter")
    m.refs = 1
    m.owner = owner
    m.freed = freed
    m.held = 0
    m.awaited = False
    m.parent = parent
    if parent is not NULL:
        parent.refs += 1
    return m


cdef void meter_release(Meter* m) noexcept:
    cdef Meter* parent
    while m is not NULL:
        m.refs -= 1
        if m.refs:
            return
        parent = m.parent
        free(m)
        m = parent


cdef class MeterHold:
    def __dealloc__(self):
        if self.meter is not NULL:
            meter_release(self.meter)


cdef MeterHold meter_hold(Meter* meter):
    """Return a new reference to the meter."""
    cdef MeterHold hold = MeterHold.__new__(MeterHold)
    hold.meter = meter
    meter.refs += 1
    return hold
