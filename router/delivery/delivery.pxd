"""Incoming deliveries, their copies, and the lists of unsettled deliveries (AMQP 1.0 part 2, 2.6.12)."""
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free

from sluice.router.amqp.codec cimport Slice
from sluice.router.amqp.meter cimport (
    DELIVERY_OCTETS, Meter, meter_add, meter_drop, meter_give_back, meter_subtract_quietly,
)
from sluice.router.amqp.zero cimport zero
from sluice.router.delivery.slab cimport Pool, pool_give, pool_kept, pool_take
from sluice.router.message.content cimport Content, Cursor, Message, cursor_close, message_release
from sluice.router.stats.counters cimport Tally, tally_release

cdef enum:
    # InDelivery.flags
    IN_PRESETTLED = 1          # sent settled by the producer, or settled by it since
    IN_COMPLETE = 2            # the last octet has arrived
    IN_ROUTED = 4              # forwarders have made all copies
    IN_MULTI = 8               # outcomes of several copies are combined (routing-semantics.md 9.4)
    IN_DISCARD = 16            # its remaining octets are dropped
    IN_REPORTED = 32               # a combined outcome was reported
    IN_FINAL = 64              # consumers have settled; reported to the producer once routed and complete
    IN_KEEP_CREDIT = 128       # its credit is withheld: the address is unreachable
    IN_ACCEPT = 256            # the router accepts it once complete, whatever the outcomes of its copies
    IN_COLLECT = 512           # stored whole before it is routed: for the router itself
    IN_OWN = 1024              # sent by the router itself: no producer's credit bounds what is queued
    IN_STUCK = 2048            # counted as stuck
    IN_CREDITED = 4096         # its credit was given back when it was forwarded
    IN_ENDED = 8192            # of a routed link: its outcome was counted
    IN_TRACKED = 16384         # from another router, sent settled by its producer (Content.checkpoint)
    IN_TRACED = 32768          # sampled: a span records it (router/tracing)
    # OutDelivery.flags
    OUT_QUEUED = 1             # in its link's queue: the last octet is not written
    OUT_STARTED = 2            # the first frame is written, so the copy has a delivery-id
    OUT_SETTLED = 4            # sent settled
    OUT_REPORT = 8             # sent settled for an unsettled delivery, which is accepted once the copy is written
    OUT_PARTIAL = 16           # of a routed link: all octets so far are written, so the copy is in no list of its link
    OUT_ABORT = 32             # no more octets are written; an aborted transfer ends the copy
    OUT_LATE_SETTLED = 64      # settled before it was complete: only the last frame has settled=true
    OUT_STUCK = 128            # counted as stuck
    OUT_CHECK = 256            # sent unsettled for a settled delivery: the peer settles once its copy left the queue
    OUT_DROPPABLE = 512        # presettled and not started: in its link's list of copies that may be dropped
    OUT_RESTING = 1024         # in a port's list of copies that wait for octets or for their window
    OUT_SAMPLED = 2048         # `sent` is set: a sample is recorded when the copy is settled
    OUT_COUNTED = 8192         # while queued, Message.copies counts it
    OUT_TRACED = 16384         # of a sampled delivery: a span records it, so it is in no run
    OUT_ROUTED = 4096          # settled, from another router: bounded in octets in its consumer's queue

# Incoming delivery. Owner: its upstream node, which lists it until it is finished.
cdef struct InDelivery:
    DeliveryNode* upstream     # must be first, see DeliveryEntry in amqp/endpoint.pxd; NULL when the producer is gone
    InDelivery* previous
    InDelivery* next
    OutDelivery* copies          # copies whose outcome is awaited
    uint64_t key               # number by which the upstream finds the delivery; in a session the delivery-id
    uint64_t since             # ns: arrival of the first octet; 0: not counted
    Message* message           # counted reference while the message may grow, or NULL
    uint16_t flags
    uint8_t kind               # state (D_…) of the only copy, or the best outcome of several so far; 0: none
    uint32_t live              # copies in `copies`
    uint32_t pending           # copies without a terminal state
    uint32_t state_size
    uint8_t* state             # encoding of the state `kind` (owned, or `short_state`), or NULL
    uint8_t[8] short_state     # room for a state without fields
    # Meter to which the `charged` copies are charged (counted reference), see `in_charge`. NULL: they are charged to
    # the global `uncharged`, or there are none.
    Meter* meter
    uint32_t queued            # copies of a multicast delivery that were queued when it was routed
    uint32_t charged           # copies that are charged until the delivery ends

# Outgoing delivery: one copy, for one consumer. Owner: its downstream node, which has it in its queue or its list of
# sent copies. The fields that every copy needs come first, so that they are in few cache lines.
cdef struct OutDelivery:
    DeliveryNode* downstream   # must be first, see DeliveryEntry in amqp/endpoint.pxd
    OutDelivery* previous
    OutDelivery* next
    InDelivery* source         # its incoming delivery; NULL when outcomes are reported to nobody
    uint32_t id                # delivery-id, once started
    # Octets written so far by a link, or all octets if OUT_SAMPLED (mod 2**32). For a copy to another worker: octets
    # charged to `meter`.
    uint32_t octets
    uint64_t since             # ns: `since` of its incoming delivery
    Tally* outstanding         # counts the copy while it lives (counted reference), or NULL
    uint8_t* prefix            # octets to write before those of the cursor (owned): sections up to the annotations
    uint16_t flags
    uint8_t kind               # terminal state reported for this copy
    uint32_t charge            # octets it counts in `own_octets` of its queue; 0: not a message of the router itself
    OutDelivery* sibling       # next copy of the same delivery
    OutDelivery* sibling_before  # previous copy of the same delivery
    Message* message           # counted reference while octets are to be written
    Cursor cursor
    OutDelivery* newer         # neighbours in its link's list while OUT_DROPPABLE
    OutDelivery* older
    uint32_t prefix_size
    uint32_t prefix_at         # octets of the prefix that are written
    uint64_t taken             # octets of the message behind the cursor, including those that the prefix replaces
    uint64_t tag_octets        # delivery tag, once started
    uint64_t acknowledged      # of a copy to another worker: octets that this worker has passed on
    uint64_t sent              # ns: when the last octet was written, if OUT_SAMPLED
    Meter* meter               # of a copy to another worker: Session.crossed of the producer (a reference), or NULL

cdef enum:
    # Bounds on octets of the router's own messages that wait for one consumer: for a link without credit, and for a
    # link with credit or another worker. A single message above the bound is taken when none waits.
    OWN_QUEUED = 8388608
    OWN_FLOWING = 33554432
    OWN_OVERHEAD = 512         # counted for each such message beside its content
    OWN_STREAM = 262144        # counted for an incomplete message: the most of its content that may be stored here

# Calls from a delivery and its copies to the nodes on both sides: functions of the object that a node is part of.
cdef struct NodeCalls:
    # To the upstream of d: the consumers' side reports a state (kind 0: none; `state`: its encoding, may be empty),
    # with or without settlement. If settled, the upstream finishes the delivery, at once or when it is complete.
    int (*outcome)(void* owner, InDelivery* d, uint8_t kind, const Slice* state, bint settled) except -1
    # To the upstream of a run of n copies, the only ones of n usual deliveries (settlement.pxd), all settled with this
    # outcome: finish these deliveries. False, without any effect: report each by `outcome` instead.
    bint (*settled)(void* owner, OutDelivery** run, uint32_t n, uint8_t kind, const Slice* state) except -1
    # To the upstream of d, presettled: the last copy that held its place has left its queue.
    int (*returned)(void* owner, InDelivery* d) except -1
    # To the downstream of o, queued: its message grew, is complete, or was aborted.
    int (*more)(void* owner, OutDelivery* o) except -1
    # To the downstream of o: the producer set a state or settled. If settled, o.source is already NULL.
    int (*producer_update)(void* owner, OutDelivery* o, uint8_t kind, const Slice* state, bint settled) except -1
    # To the downstream of o, a complete copy of a multicast delivery: the producer is gone (routing-semantics.md 9.5).
    # o.source is already NULL.
    int (*producer_lost)(void* owner, OutDelivery* o) except -1
    # To the downstream of o, whose octets wait: do not write the rest. May free o.
    int (*abandon)(void* owner, OutDelivery* o) except -1
    # To the node that counted a delivery or a copy as stuck: the delivery or the copy has ended.
    void (*unstuck)(void* owner) noexcept

# Delivery node: one side of deliveries. Part of a link (DeliveryLink), of a port, or of the router itself as producer
# (NodeOwner). Decision 0020 says why it is no base class.
cdef struct DeliveryNode:
    void* owner                # object that it is part of, borrowed; first, see DeliveryEntryOwner in amqp/endpoint.pxd
    const NodeCalls* calls
    InDelivery* in_first       # deliveries that arrived here
    InDelivery* in_last
    OutDelivery* queue_first   # copies waiting to be written
    OutDelivery* queue_last
    OutDelivery* sent_first    # copies written and unsettled
    OutDelivery* sent_last
    uint64_t own_octets        # octets of the router's own messages in the queue
    uint32_t in_count          # length of the list of `in_first`
    Meter* meter               # counts DELIVERY_OCTETS for each incoming delivery (counted reference); NULL: no meter

# Base class of delivery nodes other than links.
cdef class NodeOwner:
    cdef DeliveryNode node
    # Methods called through NodeCalls.
    cdef int outcome(self, InDelivery* d, uint8_t kind, const Slice* state, bint settled) except -1
    cdef bint settled(self, OutDelivery** run, uint32_t n, uint8_t kind, const Slice* state) except -1
    cdef int returned(self, InDelivery* d) except -1
    cdef int more(self, OutDelivery* o) except -1
    cdef int producer_update(self, OutDelivery* o, uint8_t kind, const Slice* state, bint settled) except -1
    cdef int producer_lost(self, OutDelivery* o) except -1
    cdef int abandon(self, OutDelivery* o) except -1
    cdef void unstuck(self) noexcept

# Memory of deliveries and copies. A worker has one thread, so each process has one of these.
cdef struct Pools:
    Pool ins
    Pool outs
    uint32_t seen              # free structs as `pools_grew` last compared them

cdef enum:
    # Addresses of slabs are multiples of these: powers of two, not less than the octets of a slab.
    IN_SPAN = 8192
    OUT_SPAN = 16384
    POOL_GROWTH = 4096         # free structs more than before that count as growth: much memory was used
    SLAB_DROPS = 128           # slabs of each kind that one call of pools_drop frees, at most: a fraction of a ms

cdef Pools pools
# Add a slab to each pool without free structs.
cdef int pools_fill() except -1
# Free some of the slabs without structs in use. False: there are more.
cdef bint pools_drop() noexcept

# Return True if the pools have grown much since the last call that returned True, or since they were smallest.
cdef inline bint pools_grew() noexcept:
    cdef uint32_t kept = pool_kept(&pools.ins) + pool_kept(&pools.outs)
    if kept > pools.seen + POOL_GROWTH:
        pools.seen = kept
        return True
    if kept < pools.seen:
        pools.seen = kept
    return False

cdef inline int deliveries_reserve() except -1:
    """Reserve a struct of each kind: the next `in_new` and `out_make` cannot fail."""
    return pools_fill() if pools.ins.next is NULL or pools.outs.next is NULL else 0


cdef int in_more(InDelivery* d) except -1
# Uncount a delivery or copy that is stuck, and end its span, if it has one: it ends.
cdef void in_observed_end(InDelivery* d) noexcept
cdef void out_observed_end(OutDelivery* o) noexcept
cdef void in_detach_copies(InDelivery* d) noexcept
# Charge `copies` sent copies of an unsettled multicast delivery, which live until consumers settle: COPY_OCTETS each
# until the delivery ends, to `meter` or, if that belongs to no connection here, to `uncharged`.
cdef void in_charge(InDelivery* d, uint32_t copies, Meter* meter) noexcept
cdef void in_uncharge(InDelivery* d) noexcept
# Return True if some copy of d has octets to write.
cdef bint in_has_unwritten(const InDelivery* d) noexcept nogil
# Abandon all copies of d that have octets to write. True: some consumer has got a part. The caller settles d.
cdef bint in_abandon(InDelivery* d) except *

# Make the only copy of a delivery of a routed link.
cdef OutDelivery* out_routed(DeliveryNode* downstream, InDelivery* d, bint settled) except NULL
# Return the octets that a copy of the router's own message counts in the queue of s; 0: no room, the copy must be
# dropped.
cdef uint32_t own_message_charge(DeliveryNode* s, const Content* c, uint64_t most) noexcept
cdef void queue_append(DeliveryNode* s, OutDelivery* o) noexcept
cdef void queue_remove(DeliveryNode* s, OutDelivery* o) noexcept

cdef uint64_t live_in() noexcept
cdef uint64_t live_out() noexcept
# Return the octets that all live deliveries and copies count towards the memory bound of the process.
cdef uint64_t delivery_octets() noexcept

# ---------------------------------------------------------------------------------------------------------------------
# Life of deliveries and copies: inline in every module that has them.

cdef inline InDelivery* in_new(DeliveryNode* upstream, uint64_t key, uint64_t now, uint16_t flags) except NULL:
    """Make an incoming delivery, the last in its upstream's list."""
    cdef InDelivery* d
    if pools.ins.next is NULL:
        pools_fill()
    d = <InDelivery*>pool_take(&pools.ins, sizeof(InDelivery))
    zero(d, sizeof(InDelivery))
    d.upstream = upstream
    d.key = key
    d.since = now
    d.flags = flags
    d.previous = upstream.in_last
    if d.previous is not NULL:
        d.previous.next = d
    else:
        upstream.in_first = d
    upstream.in_last = d
    upstream.in_count += 1
    if upstream.meter is not NULL:
        upstream.meter.held += DELIVERY_OCTETS
    return d


cdef inline void in_charge_sent(InDelivery* d, Meter* meter) noexcept:
    """Charge the copies that did not have to wait, when all are made."""
    if d.live > d.queued:
        in_charge(d, d.live - d.queued, meter)


cdef inline void in_unlink(InDelivery* d) noexcept:
    """Remove a delivery from its upstream's list."""
    cdef DeliveryNode* upstream = d.upstream
    cdef InDelivery* previous = d.previous
    cdef InDelivery* following = d.next
    if previous is not NULL:
        previous.next = following
    else:
        upstream.in_first = following
    if following is not NULL:
        following.previous = previous
    else:
        upstream.in_last = previous
    upstream.in_count -= 1
    if d.flags & (IN_STUCK | IN_TRACED):
        in_observed_end(d)
    if upstream.meter is not NULL:
        meter_give_back(upstream.meter, DELIVERY_OCTETS)


cdef inline void in_free(InDelivery* d) noexcept:
    """Finish a delivery: remove it from its upstream's list, cut its copies off, release its memory."""
    if d.copies is not NULL:
        in_detach_copies(d)
    if d.upstream is not NULL:
        in_unlink(d)
    if d.message is not NULL:
        message_release(d.message)
    if d.state is not NULL and d.state is not &d.short_state[0]:
        free(d.state)
    if d.charged:
        in_uncharge(d)
    pool_give(&pools.ins, d, 1, sizeof(InDelivery), IN_SPAN)


cdef inline OutDelivery* out_make(DeliveryNode* downstream, InDelivery* d, bint settled, bint linked) except NULL:
    """Make a copy. linked: it reports its outcome to its delivery."""
    cdef OutDelivery* o
    if pools.outs.next is NULL:
        pools_fill()
    o = <OutDelivery*>pool_take(&pools.outs, sizeof(OutDelivery))
    zero(o, sizeof(OutDelivery))
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


cdef inline void out_count(OutDelivery* o, Tally* tally) noexcept:
    """Count a copy in `tally` while it lives."""
    o.outstanding = tally
    tally.holders += 1
    if tally.count is not NULL:
        tally.count[0] += 1


cdef inline OutDelivery* out_new(DeliveryNode* downstream, InDelivery* d, Content* c, bint linked) except NULL:
    """Make a copy of a message for `downstream`. linked: it reports its outcome to its delivery."""
    cdef OutDelivery* o = out_make(downstream, d, c.settled, linked)
    if c.outstanding is not NULL and not c.settled:
        out_count(o, c.outstanding)
    if c.checking:
        o.flags |= OUT_CHECK
    return o


cdef inline void out_detach(OutDelivery* o) noexcept:
    """Remove a copy from its delivery's list of copies."""
    cdef InDelivery* d = o.source
    if o.sibling_before is not NULL:
        o.sibling_before.sibling = o.sibling
    else:
        d.copies = o.sibling
    if o.sibling is not NULL:
        o.sibling.sibling_before = o.sibling_before
    d.live -= 1
    if not o.kind and d.pending:
        d.pending -= 1
    o.sibling = o.sibling_before = NULL
    o.source = NULL


cdef inline void uncount(Tally* tally, uint32_t n) noexcept:
    """Uncount n copies that have ended."""
    if tally.count is not NULL:
        tally.count[0] -= n
    tally.holders -= n - 1
    tally_release(tally)


cdef inline void out_charge(OutDelivery* o, Meter* meter, uint32_t octets) noexcept:
    """Charge octets of a copy to the producer's connection until the copy ends, or a `WINDOW` record reports them."""
    if o.meter is NULL:
        o.meter = meter
        meter.refs += 1
    o.octets += octets
    meter_add(meter, octets)


cdef inline void out_uncharge(OutDelivery* o, uint32_t octets) noexcept:
    o.octets -= octets
    meter_subtract_quietly(o.meter, octets)


cdef inline void out_free(OutDelivery* o) noexcept:
    """Release a copy that its downstream has removed from its lists."""
    if o.source is not NULL:
        out_detach(o)
    if o.flags & (OUT_STUCK | OUT_TRACED):
        out_observed_end(o)
    if o.outstanding is not NULL:
        uncount(o.outstanding, 1)
    if o.prefix is not NULL:
        free(o.prefix)
    if o.cursor.chunk is not NULL:
        cursor_close(&o.cursor)
    if o.message is not NULL:
        message_release(o.message)
    if o.meter is not NULL:
        out_uncharge(o, o.octets)
        meter_drop(o.meter)
    pool_give(&pools.outs, o, 1, sizeof(OutDelivery), OUT_SPAN)


cdef inline void sent_append(DeliveryNode* s, OutDelivery* o) noexcept:
    """Add a copy to the list of sent copies."""
    o.next = NULL
    o.previous = s.sent_last
    if o.previous is not NULL:
        o.previous.next = o
    else:
        s.sent_first = o
    s.sent_last = o


cdef inline void sent_remove(DeliveryNode* s, OutDelivery* o) noexcept:
    """Remove a copy from the list of sent copies."""
    cdef OutDelivery* previous = o.previous
    cdef OutDelivery* following = o.next
    if previous is not NULL:
        previous.next = following
    else:
        s.sent_first = following
    if following is not NULL:
        following.previous = previous
    else:
        s.sent_last = previous
    o.previous = o.next = NULL


# The functions below release n neighbours of a list, `first` to `last`, at once. These must hold nothing to be given
# back, except the one tally that all of the copies share, if any. Deliveries and copies must already be cut from each
# other.

cdef inline void ins_recycle(InDelivery* first, InDelivery* last, uint32_t n) noexcept:
    """Release deliveries of one upstream; the caller gives back what its meter counts for them."""
    cdef DeliveryNode* upstream = first.upstream
    cdef InDelivery* d
    cdef InDelivery* following
    if first.previous is not NULL:
        first.previous.next = last.next
    else:
        upstream.in_first = last.next
    if last.next is not NULL:
        last.next.previous = first.previous
    else:
        upstream.in_last = first.previous
    upstream.in_count -= n
    last.next = NULL
    while first is not NULL:
        d = first
        n = 1
        while d.next is d + 1:
            d = d.next
            n += 1
        following = d.next
        pool_give(&pools.ins, first, n, sizeof(InDelivery), IN_SPAN)
        first = following


cdef inline void outs_recycle(OutDelivery* first, OutDelivery* last, uint32_t n) noexcept:
    """Release copies in their downstream's list of sent copies."""
    cdef DeliveryNode* downstream = first.downstream
    if first.previous is not NULL:
        first.previous.next = last.next
    else:
        downstream.sent_first = last.next
    if last.next is not NULL:
        last.next.previous = first.previous
    else:
        downstream.sent_last = first.previous
    if first.outstanding is not NULL:
        uncount(first.outstanding, n)
    last.next = NULL
    outs_free(first)


cdef inline void outs_free(OutDelivery* first) noexcept:
    """Release a chain of copies that are in no list."""
    cdef OutDelivery* o
    cdef OutDelivery* following
    cdef uint32_t n
    while first is not NULL:
        o = first
        n = 1
        while o.next is o + 1:
            o = o.next
            n += 1
        following = o.next
        pool_give(&pools.outs, first, n, sizeof(OutDelivery), OUT_SPAN)
        first = following
