"""Pending flow of a routed link: flows of the other end, merged into the latest state until they can be written.

A connection that does not read takes no flows, while the other ends of its routed links may send any number of them. A
flow describes the state of a link: the latest value of each field replaces the one before. So one flow for each link
is kept, and no more. Properties of flows have no standard meaning; the latest ones replace those before as well.
Dispatch 1.19 passes all flows on, one by one.
"""
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from sluice.router.amqp.credit cimport credit_left

cdef size_t kept = 0           # octets of properties of all pending flows of this process


cdef void drop_properties(PendingFlow* p) noexcept:
    global kept
    if p.octets is not NULL:
        kept -= p.flow.properties.size
        free(p.octets)
        p.octets = NULL
    p.flow.properties.data = NULL
    p.flow.properties.size = 0


cdef int keep_properties(PendingFlow* p, const uint8_t* data, size_t size) except -1:
    """Replace the properties of the pending flow by a copy of these; without room for a copy, drop them."""
    global kept
    cdef uint8_t* octets
    drop_properties(p)
    if kept + size > PROPERTIES_MOST:
        return 0
    octets = <uint8_t*>malloc(size)
    if octets is NULL:
        raise MemoryError("properties of a flow")
    memcpy(octets, data, size)
    kept += size
    p.octets = octets
    p.flow.properties.data = octets
    p.flow.properties.size = size
    return 0


cdef int pending_merge(PendingFlow* p, const Flow* f) except -1:
    cdef Flow merged = f[0]
    if p.due:
        merged.echo = f.echo or p.flow.echo
        merged.given_back += p.flow.given_back
        if not f.has_available:
            merged.has_available = p.flow.has_available
            merged.available = p.flow.available
        if not f.has_link_credit and p.flow.has_link_credit:
            merged.has_link_credit = True
            merged.link_credit = p.flow.link_credit
            if f.has_delivery_count and p.flow.has_delivery_count:
                merged.link_credit = credit_left(p.flow.delivery_count, p.flow.link_credit, f.delivery_count)
        if not f.has_delivery_count and not f.has_link_credit:
            merged.has_delivery_count = p.flow.has_delivery_count
            merged.delivery_count = p.flow.delivery_count
    merged.properties = p.flow.properties
    p.flow = merged
    p.due = True
    if f.properties.size:
        keep_properties(p, f.properties.data, f.properties.size)
    return 0


cdef void pending_passed(PendingFlow* p) noexcept:
    p.due = False
    p.flow.echo = False
    p.flow.given_back = 0
    drop_properties(p)
