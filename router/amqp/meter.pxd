"""Flow control counts octets: those of messages that are held and that not all readers have passed."""
from libc.stdint cimport uint32_t

ctypedef void (*MeterFreed)(void* owner) noexcept

# Octets of messages that are stored and that not all readers have passed, of one link, session, connection or
# process. Shared by reference between its owner and the messages, which may outlive it (owner NULL then).
cdef struct Meter:
    uint32_t refs
    void* owner                # borrowed
    MeterFreed freed           # called when held shrinks
    size_t held                # octets
    Meter* parent              # counts the same octets among others; a reference, or NULL

# A reference to a meter, for whoever keeps objects.
cdef class MeterHold:
    cdef Meter* meter

cdef MeterHold meter_hold(Meter* meter)
cdef Meter* meter_new(void* owner, MeterFreed freed, Meter* parent=*) except NULL
cdef void meter_release(Meter* m) noexcept


cdef inline void meter_add(Meter* m, size_t octets) noexcept nogil:
    while m is not NULL:
        m.held += octets
        m = m.parent


cdef inline void meter_changed(Meter* m) noexcept:
    while m is not NULL:
        if m.owner is not NULL:
            m.freed(m.owner)
        m = m.parent


cdef inline void meter_subtract(Meter* m, size_t octets) noexcept:
    """The caller holds a reference to m, and m to its parents."""
    cdef Meter* at = m
    while at is not NULL:
        at.held -= octets
        at = at.parent
    meter_changed(m)
