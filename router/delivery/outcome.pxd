"""Outcomes of deliveries: from the copies back to the producer, and from the producer to the copies."""
from libc.stdint cimport uint8_t, uint32_t

from sluice.router.amqp.codec cimport Slice
from sluice.router.amqp.spec cimport D_REJECTED
from sluice.router.delivery.delivery cimport (
    IN_ACCEPT, IN_FINAL, IN_MULTI, IN_PRESETTLED, IN_ROUTED, InDelivery, OutDelivery, out_detach,
)

cdef int in_update(InDelivery* d, uint8_t kind, const Slice* state, bint settled) except -1
cdef int in_settled_late(InDelivery* d) except -1
cdef int in_lost(InDelivery* d) except -1
cdef int in_lost_multicast(InDelivery* d) except -1
cdef int in_keep_state(InDelivery* d, uint8_t kind, const Slice* state) except -1
cdef int out_left(OutDelivery* o) except -1

# Slow paths of the inline functions below.
cdef int in_report_known(InDelivery* d) except -1
cdef int out_update_any(OutDelivery* o, uint8_t kind, const Slice* state, bint settled) except -1


cdef inline int in_routed(InDelivery* d) except -1:
    """Mark that all copies are made, and report the outcome if it is known already. May free the delivery."""
    d.flags |= IN_ROUTED
    return in_report_known(d) if d.flags & (IN_FINAL | IN_MULTI) else 0


cdef inline int out_update(OutDelivery* o, uint8_t kind, const Slice* state, bint settled) except -1:
    """Process a state or settlement by the consumer of a copy. After a settlement the copy has no `source`."""
    cdef InDelivery* d = o.source
    if settled and kind and d is not NULL:
        if d.flags & (IN_ROUTED | IN_PRESETTLED | IN_ACCEPT | IN_MULTI) == IN_ROUTED:
            # Nearly all deliveries: the only copy is settled with an outcome, which is that of the delivery.
            out_detach(o)
            return d.upstream.calls.outcome(d.upstream.owner, d, kind, state, True)
        if d.kind == kind and kind != D_REJECTED and d.pending > 1 and not o.kind \
                and d.flags & (IN_ROUTED | IN_PRESETTLED | IN_ACCEPT | IN_MULTI) == IN_ROUTED | IN_MULTI:
            # A copy among several, with the outcome that others reported before and that is no error; more are to
            # come.
            out_detach(o)
            o.kind = kind
            return 0
    return out_update_any(o, kind, state, settled)
