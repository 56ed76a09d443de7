"""Incoming deliveries, their copies, and the lists of unsettled deliveries (AMQP 1.0 part 2, 2.6.12).

routing-semantics.md 9.

An InDelivery lives until its producer needs no more reports and its last octet has arrived. An OutDelivery lives until
its consumer has settled it and its last octet is written. `source` and `copies` link the two; either side cuts the
link.
"""

from sluice.router.amqp.meter cimport IN_OCTETS, OUT_OCTETS, meter_add, meter_drop, meter_subtract_quietly
from sluice.router.delivery.slab cimport SLAB_HEAD, SLAB_STRUCTS, pool_add, pool_drop
from sluice.router.message.content cimport COPY_OCTETS, counts_copies, uncharged
from sluice.router.tracing.tracer cimport SPAN_DROPPED, end_span


assert SLAB_HEAD + SLAB_STRUCTS * sizeof(InDelivery) <= IN_SPAN
assert SLAB_HEAD + SLAB_STRUCTS * sizeof(OutDelivery) <= OUT_SPAN


cdef uint64_t live_in() noexcept:
    return pools.ins.alive


cdef uint64_t live_out() noexcept:
    return pools.outs.alive


cdef uint64_t delivery_octets() noexcept:
    return pools.ins.alive * <uint64_t>IN_OCTETS + pools.outs.alive * <uint64_t>OUT_OCTETS


cdef int pools_fill() except -1:
    if pools.ins.next is NULL and not pool_add(&pools.ins, sizeof(InDelivery), IN_SPAN):
        raise MemoryError("delivery")
    if pools.outs.next is NULL and not pool_add(&pools.outs, sizeof(OutDelivery), OUT_SPAN):
        raise MemoryError("delivery")
    return 0


cdef bint pools_drop() noexcept:
    return (pool_drop(&pools.ins, SLAB_DROPS, sizeof(InDelivery), IN_SPAN)
            & pool_drop(&pools.outs, SLAB_DROPS, sizeof(OutDelivery), OUT_SPAN))


cdef class NodeOwner:
    def __cinit__(self):
        self.node.owner = <void*>self
        self.node.calls = &NODE_CALLS

    cdef int outcome(self, InDelivery* d, uint8_t kind, const Slice* state, bint settled) except -1:
        raise NotImplementedError

    cdef bint settled(self, OutDelivery** run, uint32_t n, uint8_t kind, const Slice* state) except -1:
        return False

    cdef int returned(self, InDelivery* d) except -1:
        raise NotImplementedError

    cdef int more(self, OutDelivery* o) except -1:
        raise NotImplementedError

    cdef int producer_update(self, OutDelivery* o, uint8_t kind, const Slice* state, bint settled) except -1:
        raise NotImplementedError

    cdef int producer_lost(self, OutDelivery* o) except -1:
        raise NotImplementedError

    cdef int abandon(self, OutDelivery* o) except -1:
        raise NotImplementedError

    cdef void unstuck(self) noexcept:
        pass


ctypedef NodeOwner NodeObject
include "node_calls.pxi"


# ---------------------------------------------------------------------------------------------------------------------
# Incoming deliveries

cdef void in_detach_copies(InDelivery* d) noexcept:
    cdef OutDelivery* o = d.copies
    while o is not NULL:
        o.source = NULL
        o = o.sibling
    d.copies = NULL
    d.live = d.pending = 0


cdef void in_charge(InDelivery* d, uint32_t copies, Meter* meter) noexcept:
    global uncharged
    if not d.charged and counts_copies(meter):
        d.meter = meter
        meter.refs += 1
    d.charged += copies
    if d.meter is not NULL:
        meter_add(d.meter, <size_t>COPY_OCTETS * copies)
    else:
        uncharged += <uint64_t>COPY_OCTETS * copies


cdef void in_uncharge(InDelivery* d) noexcept:
    global uncharged
    cdef uint64_t octets = <uint64_t>COPY_OCTETS * d.charged
    cdef Meter* meter = d.meter
    d.charged = 0
    d.meter = NULL
    if meter is NULL:
        uncharged -= octets
    else:
        meter_subtract_quietly(meter, octets)
        meter_drop(meter)


cdef void in_observed_end(InDelivery* d) noexcept:
    if d.flags & IN_STUCK:
        d.upstream.calls.unstuck(d.upstream.owner)
    if d.flags & IN_TRACED:
        end_span(d, d.kind, SPAN_DROPPED if d.flags & IN_DISCARD and not d.kind else 0)


cdef void out_observed_end(OutDelivery* o) noexcept:
    if o.flags & OUT_STUCK:
        o.downstream.calls.unstuck(o.downstream.owner)
    if o.flags & OUT_TRACED:
        end_span(o, o.kind, 0)


cdef bint in_has_unwritten(const InDelivery* d) noexcept nogil:
    cdef const OutDelivery* o = d.copies
    while o is not NULL:
        if o.message is not NULL:
            return True
        o = o.sibling
    return False


cdef bint in_abandon(InDelivery* d) except *:
    cdef OutDelivery* o = d.copies
    cdef OutDelivery* following
    cdef bint seen = False
    while o is not NULL:
        following = o.sibling
        if o.flags & OUT_STARTED:
            seen = True
        if o.message is not NULL:
            o.downstream.calls.abandon(o.downstream.owner, o)
        o = following
    return seen


cdef int in_more(InDelivery* d) except -1:
    """Notify every copy: the message grew, is complete, or was aborted."""
    cdef OutDelivery* o = d.copies
    cdef OutDelivery* following
    while o is not NULL:
        following = o.sibling
        o.downstream.calls.more(o.downstream.owner, o)
        o = following
    return 0


# ---------------------------------------------------------------------------------------------------------------------
# Outgoing deliveries

cdef OutDelivery* out_routed(DeliveryNode* downstream, InDelivery* d, bint settled) except NULL:
    return out_make(downstream, d, settled, True)


cdef uint32_t own_message_charge(DeliveryNode* s, const Content* c, uint64_t most) noexcept:
    cdef uint64_t charge = OWN_STREAM
    if c.complete:
        charge = OWN_OVERHEAD + (c.stored.size if c.stored is not NULL else c.size)
        if charge > 0xFFFFFFFF:
            charge = 0xFFFFFFFF
    return <uint32_t>charge if s.own_octets == 0 or s.own_octets + charge <= most else 0


cdef void queue_append(DeliveryNode* s, OutDelivery* o) noexcept:
    o.flags |= OUT_QUEUED
    s.own_octets += o.charge
    o.next = NULL
    o.previous = s.queue_last
    if s.queue_last is not NULL:
        s.queue_last.next = o
    else:
        s.queue_first = o
    s.queue_last = o


cdef void queue_remove(DeliveryNode* s, OutDelivery* o) noexcept:
    o.flags &= ~OUT_QUEUED
    s.own_octets -= o.charge
    if o.previous is not NULL:
        o.previous.next = o.next
    else:
        s.queue_first = o.next
    if o.next is not NULL:
        o.next.previous = o.previous
    else:
        s.queue_last = o.previous
    o.previous = o.next = NULL
