"""A delivery on its way in, its copies on their way out, and the lists that they are in (AMQP 1.0 part 2, 2.6.12).

routing-semantics.md 9.

An InDelivery lives until its producer needs no more news and its last octet is here; an OutDelivery until its
consumer has settled and its last octet is written. `source` and `copies` tie them together and are cut from either
side.
"""
from libc.stdlib cimport free, malloc
from libc.string cimport memset

from router.stats.counters cimport tally_release
from router.message.content cimport cursor_close, message_release

cdef enum:
    POOL_KEEP = 4096           # freed structs kept for the next delivery

cdef InDelivery* in_pool = NULL
cdef uint32_t in_pooled = 0
cdef uint64_t in_alive = 0
cdef OutDelivery* out_pool = NULL
cdef uint32_t out_pooled = 0
cdef uint64_t out_alive = 0

cdef uint64_t live_in() noexcept:
    return in_alive


cdef uint64_t live_out() noexcept:
    return out_alive


cdef class NodeOwner:
    def __cinit__(self):
        self.node.owner = <void*>self
        self.node.calls = &NODE_CALLS

    cdef int outcome(self, InDelivery* d, uint8_t kind, const Slice* state, bint settled) except -1:
        raise NotImplementedError

    cdef int returned(self, InDelivery* d) except -1:
        raise NotImplementedError

    cdef int more(self, OutDelivery* o) except -1:
        raise NotImplementedError

    cdef int producer_update(self, OutDelivery* o, uint8_t kind, const Slice* state, bint settled) except -1:
        raise NotImplementedError

    cdef int abandon(self, OutDelivery* o) except -1:
        raise NotImplementedError

    cdef void unstuck(self) noexcept:
        pass


ctypedef NodeOwner NodeObject
include "node_calls.pxi"


# ---------------------------------------------------------------------------------------------------------------------
# Incoming

cdef InDelivery* in_new(DeliveryNode* upstream, uint64_t key, uint64_t now, uint16_t flags) except NULL:
    global in_pool, in_pooled, in_alive
    cdef InDelivery* d = in_pool
    if d is not NULL:
        in_pool = d.next
        in_pooled -= 1
    else:
        d = <InDelivery*>malloc(sizeof(InDelivery))
        if d is NULL:
            raise MemoryError("delivery")
    memset(d, 0, sizeof(InDelivery))
    in_alive += 1
    d.upstream = upstream
    d.key = key
    d.since = now
    d.flags = flags
    d.previous = upstream.in_last
    if upstream.in_last is not NULL:
        upstream.in_last.next = d
    else:
        upstream.in_first = d
    upstream.in_last = d
    upstream.in_count += 1
    return d


cdef void in_free(InDelivery* d) noexcept:
    """The upstream is done with it: out of its list, copies cut off, memory back."""
    global in_pool, in_pooled, in_alive
    cdef DeliveryNode* upstream
    in_detach_copies(d)
    if d.upstream is not NULL:
        upstream = d.upstream
        if d.previous is not NULL:
            d.previous.next = d.next
        else:
            upstream.in_first = d.next
        if d.next is not NULL:
            d.next.previous = d.previous
        else:
            upstream.in_last = d.previous
        upstream.in_count -= 1
        if d.flags & IN_STUCK:
            upstream.calls.unstuck(upstream.owner)
    if d.message is not NULL:
        message_release(d.message)
    if d.state is not NULL:
        free(d.state)
    in_alive -= 1
    if in_pooled < POOL_KEEP:
        d.next = in_pool
        in_pool = d
        in_pooled += 1
    else:
        free(d)


cdef void in_detach_copies(InDelivery* d) noexcept:
    cdef OutDelivery* o = d.copies
    while o is not NULL:
        o.source = NULL
        o = o.sibling
    d.copies = NULL
    d.live = d.pending = 0


cdef bint in_waits(const InDelivery* d) noexcept nogil:
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
    """More of the message came, it is complete, or it was aborted: notify every copy."""
    cdef OutDelivery* o = d.copies
    cdef OutDelivery* following
    while o is not NULL:
        following = o.sibling
        o.downstream.calls.more(o.downstream.owner, o)
        o = following
    return 0


# ---------------------------------------------------------------------------------------------------------------------
# Outgoing

cdef inline OutDelivery* out_make(DeliveryNode* downstream, InDelivery* d, bint settled, bint linked) except NULL:
    global out_pool, out_pooled, out_alive
    cdef OutDelivery* o = out_pool
    if o is not NULL:
        out_pool = o.next
        out_pooled -= 1
    else:
        o = <OutDelivery*>malloc(sizeof(OutDelivery))
        if o is NULL:
            raise MemoryError("delivery")
    memset(o, 0, sizeof(OutDelivery))
    out_alive += 1
    o.downstream = downstream
    o.since = d.since
    if settled:
        o.flags = OUT_SETTLED
    if linked:
        o.source = d
        o.sibling = d.copies
        if d.copies is not NULL:
            d.copies.sibling_before = o
        d.copies = o
        d.live += 1
        d.pending += 1
    return o


cdef OutDelivery* out_new(DeliveryNode* downstream, InDelivery* d, Content* c, bint linked) except NULL:
    """A copy for `downstream`; linked: it reports to its delivery."""
    cdef OutDelivery* o = out_make(downstream, d, c.settled, linked)
    if c.outstanding is not NULL and not c.settled:
        o.outstanding = c.outstanding
        o.outstanding.holders += 1
        if o.outstanding.count is not NULL:
            o.outstanding.count[0] += 1
    if c.checking:
        o.flags |= OUT_CHECK
    return o


cdef OutDelivery* out_routed(DeliveryNode* downstream, InDelivery* d, bint settled) except NULL:
    return out_make(downstream, d, settled, True)


cdef void out_free(OutDelivery* o) noexcept:
    """The downstream is done with it and has taken it out of its lists."""
    global out_pool, out_pooled, out_alive
    if o.source is not NULL:
        out_detach(o)
    if o.flags & OUT_STUCK:
        o.downstream.calls.unstuck(o.downstream.owner)
    if o.outstanding is not NULL:
        if o.outstanding.count is not NULL:
            o.outstanding.count[0] -= 1
        tally_release(o.outstanding)
    if o.prefix is not NULL:
        free(o.prefix)
    cursor_close(&o.cursor)
    if o.message is not NULL:
        message_release(o.message)
    out_alive -= 1
    if out_pooled < POOL_KEEP:
        o.next = out_pool
        out_pool = o
        out_pooled += 1
    else:
        free(o)


cdef uint32_t own_charge(DeliveryNode* s, const Content* c, uint64_t most) noexcept:
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


cdef void sent_append(DeliveryNode* s, OutDelivery* o) noexcept:
    o.next = NULL
    o.previous = s.sent_last
    if s.sent_last is not NULL:
        s.sent_last.next = o
    else:
        s.sent_first = o
    s.sent_last = o


cdef void sent_remove(DeliveryNode* s, OutDelivery* o) noexcept:
    if o.previous is not NULL:
        o.previous.next = o.next
    else:
        s.sent_first = o.next
    if o.next is not NULL:
        o.next.previous = o.previous
    else:
        s.sent_last = o.previous
    o.previous = o.next = NULL


cdef void pools_drop() noexcept:
    """Free the deliveries that nobody uses."""
    global in_pool, in_pooled, out_pool, out_pooled
    cdef InDelivery* d
    cdef OutDelivery* o
    while in_pool is not NULL:
        d = in_pool
        in_pool = d.next
        free(d)
    while out_pool is not NULL:
        o = out_pool
        out_pool = o.next
        free(o)
    in_pooled = out_pooled = 0
