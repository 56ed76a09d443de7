"""What becomes of a delivery: outcomes of its copies on their way back to the producer, and what the producer says."""
from libc.stdint cimport uint8_t, uint32_t

from router.amqp.codec cimport Slice
from router.amqp.spec cimport D_REJECTED
from router.delivery.delivery cimport (
    IN_ACCEPT, IN_FINAL, IN_MULTI, IN_PRESETTLED, IN_ROUTED, InDelivery, OutDelivery, out_detach,
)

cdef int in_update(InDelivery* d, uint8_t kind, const Slice* state, bint settled) except -1
cdef int in_settled_late(InDelivery* d) except -1
cdef int in_lost(InDelivery* d) except -1
cdef int in_lost_multicast(InDelivery* d) except -1
cdef int in_keep_state(InDelivery* d, uint8_t kind, const Slice* state) except -1
cdef int out_left(OutDelivery* o) except -1

# What the inline functions below leave to others.
cdef int in_report_known(InDelivery* d) except -1
cdef int out_update_any(OutDelivery* o, uint8_t kind, const Slice* state, bint settled) except -1


cdef inline int in_routed(InDelivery* d) except -1:
    """Forwarders have made all copies there will be: report what they already know. May free the delivery."""
    d.flags |= IN_ROUTED
    return in_report_known(d) if d.flags & (IN_FINAL | IN_MULTI) else 0


cdef inline int out_update(OutDelivery* o, uint8_t kind, const Slice* state, bint settled) except -1:
    """The consumer of this copy set a state or settled. After `settled` the copy has no peer."""
    cdef InDelivery* d = o.source
    if settled and kind and d is not NULL:
        if d.flags & (IN_ROUTED | IN_PRESETTLED | IN_ACCEPT | IN_MULTI) == IN_ROUTED:
            # Nearly all: the only copy is settled with an outcome, which is the delivery's.
            out_detach(o)
            return d.upstream.calls.outcome(d.upstream.owner, d, kind, state, True)
        if d.kind == kind and kind != D_REJECTED and d.pending > 1 and not o.kind \
                and d.flags & (IN_ROUTED | IN_PRESETTLED | IN_ACCEPT | IN_MULTI) == IN_ROUTED | IN_MULTI:
            # One of several copies, with the outcome that others had before it, and no error; the last one is to come.
            out_detach(o)
            o.kind = kind
            return 0
    return out_update_any(o, kind, state, settled)
