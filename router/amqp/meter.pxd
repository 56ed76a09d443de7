"""Flow control counts octets: those of messages that are held and that not all readers have passed."""
from libc.stdint cimport uint32_t

ctypedef void (*MeterFreed)(void* owner) noexcept

cdef enum:
    # What an incoming delivery counts until it is settled, and each copy of it: the struct, its place in the map of a
    # session, and what the heap adds.
    IN_OCTETS = 256
    OUT_OCTETS = 256
    DELIVERY_OCTETS = 512      # of a delivery with one copy

# Octets of messages that are stored and that not all readers have passed, of one link, session, connection or
# process. Shared by reference between its owner and the messages, which may outlive it (owner NULL then).
cdef struct Meter:
    uint32_t refs
    void* owner                # borrowed
    MeterFreed freed           # called when held shrinks
    bint awaited               # the owner waits for `held` to shrink, or did when it was told last
    size_t held                # octets
    Meter* parent              # counts the same octets among others; a reference, or NULL

# A reference to a meter, for whoever keeps objects.
cdef class MeterHold:
    cdef Meter* meter

cdef MeterHold meter_hold(Meter* meter)
cdef Meter* meter_new(void* owner, MeterFreed freed, Meter* parent=*) except NULL
cdef void meter_release(Meter* m) noexcept


cdef inline void meter_drop(Meter* m) noexcept:
    """`meter_release` where others mostly hold it, too."""
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
    """The caller holds a reference to m, and m to its parents."""
    cdef Meter* at = m
    while at is not NULL:
        at.held -= octets
        at = at.parent
    meter_changed(m)


cdef inline void meter_subtract_quietly(Meter* m, size_t octets) noexcept:
    """The same of what shuts no window but at a bound of the connection, whose meter is the last parent: nobody is told
    unless that waits."""
    cdef Meter* at = m
    at.held -= octets
    while at.parent is not NULL:
        at = at.parent
        at.held -= octets
    if at.awaited:
        meter_changed(m)


cdef inline void meter_give_back(Meter* m, size_t octets) noexcept:
    """Subtract from a meter without parent, for each delivery: the owner is told only if it waits."""
    m.held -= octets
    if m.awaited and m.owner is not NULL:
        m.freed(m.owner)
