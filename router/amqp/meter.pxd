"""Meters for flow control in octets: messages that are stored and that not all readers have passed."""
from libc.stdint cimport uint32_t

ctypedef void (*MeterFreed)(void* owner) noexcept

cdef enum:
    # Octets counted for an incoming delivery until it is settled, and for each copy of it: the struct, its entry in
    # the map of a session, and the overhead of the heap.
    IN_OCTETS = 256
    OUT_OCTETS = 256
    DELIVERY_OCTETS = 512      # of a delivery with one copy

# Counter of stored octets that not all readers have passed, for one link, session, connection or process. Shared by
# reference between its owner and the messages, which may outlive the owner (`owner` is NULL then).
cdef struct Meter:
    uint32_t refs
    void* owner                # borrowed
    MeterFreed freed           # callback for a decrease of `held`
    bint awaited               # the owner waits for a decrease of `held`, or waited at the last callback
    size_t held                # octets counted now
    Meter* parent              # meter that includes the same octets; a reference, or NULL

# Reference to a meter, for Python objects.
cdef class MeterHold:
    cdef Meter* meter

cdef MeterHold meter_hold(Meter* meter)
cdef Meter* meter_new(void* owner, MeterFreed freed, Meter* parent=*) except NULL
cdef void meter_release(Meter* m) noexcept


cdef inline void meter_drop(Meter* m) noexcept:
    """Release a reference, inlined for the usual case that others hold the meter, too."""
    if m.refs > 1:
        m.refs -= 1
    else:
        meter_release(m)


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
    """Subtract octets from a meter and its parents, and notify the owners. The caller holds a reference to `m`."""
    cdef Meter* at = m
    while at is not NULL:
        at.held -= octets
        at = at.parent
    meter_changed(m)


cdef inline void meter_subtract_quietly(Meter* m, size_t octets) noexcept:
    """Subtract octets that shut no window except at a bound of the connection. The connection's meter is the last
    parent; owners are notified only if it waits."""
    cdef Meter* at = m
    at.held -= octets
    while at.parent is not NULL:
        at = at.parent
        at.held -= octets
    if at.awaited:
        meter_changed(m)


cdef inline void meter_give_back(Meter* m, size_t octets) noexcept:
    """Subtract octets from a meter without parent. Called for each delivery; the owner is notified only if it waits."""
    m.held -= octets
    if m.awaited and m.owner is not NULL:
        m.freed(m.owner)
