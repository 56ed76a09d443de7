"""Outcomes of deliveries: from the copies back to the producer, and from the producer to the copies
(AMQP 1.0 part 2, 2.6.12; part 3, 3.4).

routing-semantics.md 9.1, 9.2, 9.6; multicast outcomes: routing-semantics.md 9.4.
"""
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy

from sluice.router.amqp.spec cimport D_ACCEPTED, D_DECLARED, D_MODIFIED, D_REJECTED, D_RELEASED
from sluice.router.amqp.states cimport has_field, is_outcome, plain_state, terminal
from sluice.router.delivery.delivery cimport (
    IN_ACCEPT, IN_COMPLETE, IN_FINAL, IN_MULTI, IN_PRESETTLED, IN_ROUTED, IN_REPORTED, OUT_CHECK, in_free,
    in_more, out_detach,
)
from sluice.router.delivery.settled_state cimport settled_state


cdef inline int rank(uint8_t kind) noexcept nogil:
    """Return the rank of an outcome among several: rejected > accepted > modified > released."""
    if kind == D_REJECTED or kind == D_DECLARED:
        return 4
    if kind == D_ACCEPTED:
        return 3
    if kind == D_MODIFIED:
        return 2
    return 1 if kind == D_RELEASED else 0


# ---------------------------------------------------------------------------------------------------------------------
# States from the producer, and reports to it when all copies are made

cdef int in_report_known(InDelivery* d) except -1:
    """Report to the producer what the copies had reported before all of them were made."""
    cdef Slice state
    if d.flags & (IN_PRESETTLED | IN_ACCEPT):
        return 0
    state.data = d.state
    state.size = d.state_size
    if d.flags & IN_FINAL or (d.flags & IN_MULTI and d.live == 0):
        d.upstream.calls.outcome(d.upstream.owner, d, d.kind, &state, True)
    elif d.flags & IN_MULTI and d.pending == 0 and d.kind:
        d.flags |= IN_REPORTED
        d.upstream.calls.outcome(d.upstream.owner, d, d.kind, &state, False)
    return 0


cdef int in_update(InDelivery* d, uint8_t kind, const Slice* state, bint settled) except -1:
    """Pass a state or settlement of the producer to every copy.

    After a settlement the caller finishes the delivery.
    """
    cdef OutDelivery* o = d.copies
    cdef OutDelivery* following
    while o is not NULL:
        following = o.sibling
        if settled:
            out_detach(o)
        o.downstream.calls.producer_update(o.downstream.owner, o, kind, state, settled)
        o = d.copies if settled else following
    return 0


cdef int in_settled_late(InDelivery* d) except -1:
    """Treat a delivery as presettled from now on: its producer settled it before its last octet. Copies continue."""
    cdef OutDelivery* o = d.copies
    cdef OutDelivery* following
    cdef Slice none = plain_state(0)
    d.flags |= IN_PRESETTLED
    while o is not NULL:
        following = o.sibling
        o.downstream.calls.producer_update(o.downstream.owner, o, 0, &none, True)
        o = following
    return 0


cdef int in_lost(InDelivery* d) except -1:
    """End a delivery whose producer is gone, and free it; complete copies continue without it.

    A consumer that has set an outcome and waits for its settlement gets the settlement here (routing-semantics.md
    9.5).
    """
    cdef Slice modified
    if not d.flags & IN_COMPLETE and d.message is not NULL:
        d.message.aborted = True
        in_more(d)
    elif d.flags & IN_MULTI and not d.flags & IN_PRESETTLED:
        in_lost_multicast(d)
    elif d.copies is not NULL and is_outcome(d.kind) and not d.flags & IN_PRESETTLED:
        modified = plain_state(D_MODIFIED)
        in_update(d, D_MODIFIED, &modified, True)
    in_free(d)
    return 0


cdef int in_lost_multicast(InDelivery* d) except -1:
    """Notify every copy of a complete multicast delivery that the producer is gone (routing-semantics.md 9.5)."""
    cdef OutDelivery* o
    while d.copies is not NULL:
        o = d.copies
        out_detach(o)
        o.downstream.calls.producer_lost(o.downstream.owner, o)
    return 0


cdef int in_keep_state(InDelivery* d, uint8_t kind, const Slice* state) except -1:
    """Store an outcome that will be reported later."""
    if d.state is not NULL:
        if d.state is not &d.short_state[0]:
            free(d.state)
        d.state = NULL
        d.state_size = 0
    d.kind = kind
    if state.size:
        d.state = &d.short_state[0] if state.size <= sizeof(d.short_state) else <uint8_t*>malloc(state.size)
        if d.state is NULL:
            raise MemoryError("delivery state")
        memcpy(d.state, state.data, state.size)
        d.state_size = <uint32_t>state.size
    return 0


# ---------------------------------------------------------------------------------------------------------------------
# States from consumers

cdef inline void note_outcome(OutDelivery* o, InDelivery* d, uint8_t kind) noexcept nogil:
    """Record the first outcome that a copy gets without settlement."""
    if terminal(kind) and not o.kind:
        o.kind = kind
        d.pending -= 1


cdef int combine(InDelivery* d, OutDelivery* o, uint8_t kind, const Slice* state, bint settled) except -1:
    """Combine the state of a copy with those of the others; report the best outcome when each copy has one."""
    cdef Slice combined
    combined.data = d.state
    combined.size = d.state_size
    if terminal(kind) and rank(kind) > rank(d.kind) or (
            kind == d.kind == D_REJECTED and has_field(state) and not has_field(&combined)):
        if kind == D_DECLARED:
            combined = plain_state(D_REJECTED)
            in_keep_state(d, D_REJECTED, &combined)
        else:
            in_keep_state(d, kind, state)
    if settled:
        out_detach(o)
        o.kind = kind
    else:
        note_outcome(o, d, kind)
    if not d.flags & IN_ROUTED or (d.live and (d.pending or d.flags & IN_REPORTED)):
        return 0
    combined.data = d.state
    combined.size = d.state_size
    if d.live == 0:
        d.upstream.calls.outcome(d.upstream.owner, d, d.kind, &combined, True)
    elif d.kind:
        d.flags |= IN_REPORTED
        d.upstream.calls.outcome(d.upstream.owner, d, d.kind, &combined, False)
    return 0


cdef int out_update_any(OutDelivery* o, uint8_t kind, const Slice* state, bint settled) except -1:
    cdef InDelivery* d = o.source
    cdef Slice kept
    if d is NULL:
        return 0
    if o.flags & OUT_CHECK and d.flags & IN_PRESETTLED:
        return out_left(o) if settled else 0
    if d.flags & IN_ACCEPT:
        if settled:
            out_detach(o)
        elif is_outcome(kind):
            out_detach(o)                  # the producer has the router's outcome: settle this copy here
            o.kind = kind
            kept = settled_state(kind, state)
            return o.downstream.calls.producer_update(o.downstream.owner, o, kind, &kept, True)
        return 0
    if d.flags & IN_MULTI:
        return combine(d, o, kind, state, settled)
    if not settled:
        if not kind or (kind == d.kind and state.size == d.state_size
                        and memcmp(state.data, d.state, state.size) == 0):
            return 0                       # the producer knows this state
        in_keep_state(d, kind, state)
        note_outcome(o, d, kind)
        return d.upstream.calls.outcome(d.upstream.owner, d, kind, state, False)
    out_detach(o)
    if not kind:
        # Settlement without a state keeps the state that was reported before.
        kind = d.kind
        kept.data = d.state
        kept.size = d.state_size
        state = &kept
    if d.flags & IN_ROUTED:
        return d.upstream.calls.outcome(d.upstream.owner, d, kind, state, True)
    d.flags |= IN_FINAL
    if state.data is not d.state:
        in_keep_state(d, kind, state)
    return 0


cdef int out_left(OutDelivery* o) except -1:
    """Handle a presettled copy that left its queue, written or dropped: it holds its delivery's place no more."""
    cdef InDelivery* d = o.source
    if d is NULL:
        return 0
    out_detach(o)
    if d.flags & IN_PRESETTLED and d.flags & IN_COMPLETE and d.live == 0 and d.flags & IN_ROUTED:
        d.upstream.calls.returned(d.upstream.owner, d)
    return 0
