"""A delivery on its way in, its copies on their way out, and the lists that they are in (AMQP 1.0 part 2, 2.6.12)."""
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free

from router.amqp.codec cimport Slice
from router.amqp.meter cimport DELIVERY_OCTETS, Meter, meter_give_back
from router.amqp.prefetch cimport prefetch
from router.amqp.zero cimport zero
from router.message.content cimport Content, Cursor, Message, cursor_close, message_release
from router.stats.counters cimport Tally, tally_release

cdef enum:
    # InDelivery.flags
    IN_PRESETTLED = 1          # the producer sent it settled (or settled it since)
    IN_COMPLETE = 2            # last octet is here
    IN_ROUTED = 4              # forwarders have seen it
    IN_MULTI = 8               # outcomes of several copies are combined (routing-semantics.md 9.4)
    IN_DISCARD = 16            # rest of its octets goes nowhere
    IN_TOLD = 32               # a combined outcome was reported
    IN_FINAL = 64              # consumers have settled; the producer is told when it is routed and complete
    IN_KEEP_CREDIT = 128       # its credit is not given back (unreachable address)
    IN_ACCEPT = 256            # the router itself accepts it when it is complete, whatever becomes of the copies
    IN_COLLECT = 512           # for the router itself: all of it is stored before it is routed
    IN_OWN = 1024              # the router itself sent it: no credit of a producer bounds what is queued
    IN_STUCK = 2048            # counted as stuck
    IN_CREDITED = 4096         # its credit was given back when it was forwarded
    IN_ENDED = 8192            # of a routed link: how it ended was counted
    IN_TRACKED = 16384         # from another router: its producer sent it settled (Content.checkpoint)
    # OutDelivery.flags
    OUT_QUEUED = 1             # in its link's queue, last octet not written
    OUT_STARTED = 2            # first frame written: it has a delivery-id
    OUT_SETTLED = 4            # goes out settled
    OUT_REPORT = 8             # unsettled at the producer, settled at the consumer: accepted when written
    OUT_PARTIAL = 16           # of a routed link: written so far as it came, and in no list of its link
    OUT_ABORT = 32             # what is not written stays unwritten: end it with an aborted transfer
    OUT_LATE_SETTLED = 64      # settled before it was complete: only the last frame has it
    OUT_STUCK = 128            # counted as stuck
    OUT_CHECK = 256            # sent unsettled for a settled delivery: its settlement means that it has left
    OUT_DROPPABLE = 512        # presettled and not started: in its link's list of those that may be dropped
    OUT_RESTS = 1024           # in a port's queue of those that wait for octets or for their window
    OUT_SAMPLED = 2048         # `sent` is set: its settlement is a sample
    OUT_COUNTED = 8192         # while queued: its message counts it (Message.copies)
    OUT_ROUTED = 4096          # settled, and came from another router: bounded in octets in its consumer's queue

# One delivery from a producer. Owner: its upstream, in whose list it is until finished.
cdef struct InDelivery:
    DeliveryNode* upstream     # first, see Entry in amqp/endpoint.pxd; NULL when the producer is gone
    InDelivery* previous
    InDelivery* next
    OutDelivery* copies          # copies whose fate matters
    uint64_t key               # what the upstream finds it by (session: delivery-id)
    uint64_t since             # ns: when its first octet came; 0: not counted
    Message* message           # reference while it may grow, or NULL
    uint16_t flags
    uint8_t kind               # best state of the copies so far, 0: none
    uint32_t live              # copies in copies
    uint32_t pending           # copies without a terminal state
    uint32_t state_size
    uint8_t* state             # its octets (owned, or `short_state`), or NULL
    uint8_t[8] short_state     # … of an outcome without words
    Meter* meter               # counts copies that were sent (held), see `in_charge`; NULL: `uncharged` does, or nobody
    uint32_t queued            # copies of a multicast delivery that were queued when it was routed
    uint32_t charged           # copies that count until it ends

# One copy on its way to a consumer. Owner: its downstream, in whose queue or unsettled list it is. What each copy needs
# stands in front, so that it is in few lines of a cache.
cdef struct OutDelivery:
    DeliveryNode* downstream   # first, see Entry in amqp/endpoint.pxd
    OutDelivery* previous
    OutDelivery* next
    InDelivery* source         # NULL when the producer needs no more news
    uint32_t id                # delivery-id, once started
    uint32_t octets            # written so far by a link, or all of it if OUT_SAMPLED (mod 2**32)
    uint64_t since             # ns: of its InDelivery
    Tally* outstanding         # counts it while it lives (held), or NULL
    uint8_t* prefix            # octets to write before the cursor's (owned): sections up to and with annotations
    uint16_t flags
    uint8_t kind               # terminal state reported by this copy
    uint32_t charge            # of the router's own: what it counts in `own_octets` of its queue; 0: of a client
    OutDelivery* sibling       # next copy of its delivery …
    OutDelivery* sibling_before  # … and the one before
    Message* message           # reference while octets are to be written
    Cursor cursor
    OutDelivery* newer         # while OUT_DROPPABLE: neighbours in its link's list
    OutDelivery* older
    uint32_t prefix_size
    uint32_t prefix_at
    uint64_t taken             # octets of the message behind the cursor (what the prefix replaces included)
    uint64_t tag_octets        # delivery tag, once started
    uint64_t acknowledged      # to another worker: octets that it has passed on
    uint64_t sent              # ns: when its last octet was written, if OUT_SAMPLED

cdef enum:
    # Octets of the router's own messages that may wait for a link without credit; for one that has some, or to go to
    # another worker. A single larger one is taken when none waits.
    OWN_QUEUED = 8388608
    OWN_FLOWING = 33554432
    OWN_OVERHEAD = 512         # … what each counts besides its content
    OWN_STREAM = 262144        # … what one counts that comes in parts: as much as may be here of it

# Calls from a delivery and its copies to both sides: functions of the object that a node is part of.
cdef struct NodeCalls:
    # To the upstream of d. The consumer side has news: a state (kind 0: none; `state` its encoding, may be empty),
    # settled or not. When settled the upstream finishes the delivery (at once, or when it is complete).
    int (*outcome)(void* owner, InDelivery* d, uint8_t kind, const Slice* state, bint settled) except -1
    # To the upstream of the source of each of `run`, the only copies of n usual deliveries (settlement.pxd), which were
    # settled with this outcome: finish all of them. False, and nothing is done: tell it of each by `outcome`.
    bint (*settled)(void* owner, OutDelivery** run, uint32_t n, uint8_t kind, const Slice* state) except -1
    # To the upstream of d: all that held the credit of a presettled delivery back is gone.
    int (*returned)(void* owner, InDelivery* d) except -1
    # To the downstream of o: the message of a queued copy grew, is complete, or was aborted.
    int (*more)(void* owner, OutDelivery* o) except -1
    # To the downstream of o: the producer set a state or settled. When settled, o.source is already NULL.
    int (*producer_update)(void* owner, OutDelivery* o, uint8_t kind, const Slice* state, bint settled) except -1
    # To the downstream of o, a complete copy of a multicast delivery: the producer is gone (routing-semantics.md 9.5).
    # o.source is already NULL.
    int (*producer_lost)(void* owner, OutDelivery* o) except -1
    # To the downstream of o, of which octets wait: the rest will not be written. May free o.
    int (*abandon)(void* owner, OutDelivery* o) except -1
    # To either: a delivery that was counted as stuck has ended.
    void (*unstuck)(void* owner) noexcept

# One side of deliveries: part of a link (DeliveryLink) or of what stands for another worker, or for the router itself
# (NodeOwner). Decision 0020 says why it is no base class.
cdef struct DeliveryNode:
    void* owner                # the object that it is part of (borrowed); first: see EntryOwner in amqp/endpoint.pxd
    const NodeCalls* calls
    InDelivery* in_first       # deliveries that came from here
    InDelivery* in_last
    OutDelivery* queue_first   # copies waiting to be written to here
    OutDelivery* queue_last
    OutDelivery* sent_first    # copies written, not settled
    OutDelivery* sent_last
    uint64_t own_octets        # in the queue, of the router's own messages
    uint32_t in_count
    Meter* meter               # counts DELIVERY_OCTETS for each delivery that came from here (held); NULL: nobody does

# Base of what is a delivery node and no link.
cdef class NodeOwner:
    cdef DeliveryNode node
    # See NodeCalls.
    cdef int outcome(self, InDelivery* d, uint8_t kind, const Slice* state, bint settled) except -1
    cdef bint settled(self, OutDelivery** run, uint32_t n, uint8_t kind, const Slice* state) except -1
    cdef int returned(self, InDelivery* d) except -1
    cdef int more(self, OutDelivery* o) except -1
    cdef int producer_update(self, OutDelivery* o, uint8_t kind, const Slice* state, bint settled) except -1
    cdef int producer_lost(self, OutDelivery* o) except -1
    cdef int abandon(self, OutDelivery* o) except -1
    cdef void unstuck(self) noexcept

# Structs that nobody uses, kept for the next deliveries, and how many are in use. A worker has one thread: each process
# has one of these.
cdef struct Pools:
    InDelivery* ins            # linked by `next`
    OutDelivery* outs
    uint32_t ins_kept
    uint32_t outs_kept
    uint64_t ins_alive
    uint64_t outs_alive
    uint32_t seen              # of ins_kept and outs_kept together, for pools_grew

cdef enum:
    # Structs of each kind that a pool keeps: as many as wait for their outcome on some busy links.
    POOL_KEEP = 131072
    POOL_GROWTH = 4096         # so many more than a moment before: much memory was used
    POOL_DROPS = 8192          # structs of each kind that one call of pools_drop frees, at most: a fraction of a ms

cdef Pools pools
# Of the heap: the pool is empty.
cdef InDelivery* in_allocate() except NULL
cdef OutDelivery* out_allocate() except NULL
# Of the heap, into the pools: one of each that has none.
cdef int pools_fill() except -1
# Free some of the structs that nobody uses. False: there are more.
cdef bint pools_drop() noexcept

# Whether the pools have grown much since the call that said so before, or since they were smallest.
cdef inline bint pools_grew() noexcept:
    cdef uint32_t kept = pools.ins_kept + pools.outs_kept
    if kept > pools.seen + POOL_GROWTH:
        pools.seen = kept
        return True
    if kept < pools.seen:
        pools.seen = kept
    return False

cdef inline int deliveries_reserve() except -1:
    """From now on there is one of each: the next in_new and out_make do not fail."""
    return pools_fill() if pools.ins is NULL or pools.outs is NULL else 0


cdef int in_more(InDelivery* d) except -1
cdef void in_detach_copies(InDelivery* d) noexcept
# So many copies of an unsettled multicast delivery have been sent, and live until consumers settle: they count
# COPY_OCTETS each until the delivery ends, for `meter` or, where that is of no connection here, as `uncharged`.
cdef void in_charge(InDelivery* d, uint32_t copies, Meter* meter) noexcept
cdef void in_uncharge(InDelivery* d) noexcept
# Octets of some copy of d wait to be written.
cdef bint in_waits(const InDelivery* d) noexcept nogil
# Abandon all copies with waiting octets. True: some consumer has got a part. The caller settles d.
cdef bint in_abandon(InDelivery* d) except *

# The only copy of a delivery of a routed link.
cdef OutDelivery* out_routed(DeliveryNode* downstream, InDelivery* d, bint settled) except NULL
# What a copy of a message of the router's own counts in the queue of s; 0: there is no room, it is to be dropped.
cdef uint32_t own_charge(DeliveryNode* s, const Content* c, uint64_t most) noexcept
cdef void queue_append(DeliveryNode* s, OutDelivery* o) noexcept
cdef void queue_remove(DeliveryNode* s, OutDelivery* o) noexcept

cdef uint64_t live_in() noexcept
cdef uint64_t live_out() noexcept
# What all of them count in the bound of memory of the process.
cdef uint64_t delivery_octets() noexcept

# ---------------------------------------------------------------------------------------------------------------------
# Begin and end of each delivery and copy: inline in every module that has one.

cdef inline InDelivery* in_new(DeliveryNode* upstream, uint64_t key, uint64_t now, uint16_t flags) except NULL:
    """The last one of its upstream's list."""
    cdef InDelivery* d = pools.ins
    if d is NULL:
        d = in_allocate()
    else:
        pools.ins = d.next
        pools.ins_kept -= 1
        prefetch(d.next, sizeof(InDelivery))
    zero(d, sizeof(InDelivery))
    pools.ins_alive += 1
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
    """The same for those copies that did not have to wait, when all are made."""
    if d.live > d.queued:
        in_charge(d, d.live - d.queued, meter)


cdef inline void in_unlink(InDelivery* d) noexcept:
    """Out of its upstream's list."""
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
    if d.flags & IN_STUCK:
        upstream.calls.unstuck(upstream.owner)
    if upstream.meter is not NULL:
        meter_give_back(upstream.meter, DELIVERY_OCTETS)


cdef inline void in_free(InDelivery* d) noexcept:
    """The upstream is done with it: out of its list, copies cut off, memory back."""
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
    pools.ins_alive -= 1
    if pools.ins_kept < POOL_KEEP:
        pools.ins_kept += 1
        d.next = pools.ins
        pools.ins = d
    else:
        free(d)


cdef inline OutDelivery* out_make(DeliveryNode* downstream, InDelivery* d, bint settled, bint linked) except NULL:
    cdef OutDelivery* o = pools.outs
    if o is NULL:
        o = out_allocate()
    else:
        pools.outs = o.next
        pools.outs_kept -= 1
        prefetch(o.next, sizeof(OutDelivery))
    zero(o, sizeof(OutDelivery))
    pools.outs_alive += 1
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
    """It counts there while it lives."""
    o.outstanding = tally
    tally.holders += 1
    if tally.count is not NULL:
        tally.count[0] += 1


cdef inline OutDelivery* out_new(DeliveryNode* downstream, InDelivery* d, Content* c, bint linked) except NULL:
    """A copy for `downstream`; linked: it reports to its delivery."""
    cdef OutDelivery* o = out_make(downstream, d, c.settled, linked)
    if c.outstanding is not NULL and not c.settled:
        out_count(o, c.outstanding)
    if c.checking:
        o.flags |= OUT_CHECK
    return o


cdef inline void out_detach(OutDelivery* o) noexcept:
    """Out of its delivery's list of copies."""
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
    """So many copies have ended that it has counted."""
    if tally.count is not NULL:
        tally.count[0] -= n
    tally.holders -= n - 1
    tally_release(tally)


cdef inline void out_free(OutDelivery* o) noexcept:
    """The downstream is done with it and has taken it out of its lists."""
    if o.source is not NULL:
        out_detach(o)
    if o.flags & OUT_STUCK:
        o.downstream.calls.unstuck(o.downstream.owner)
    if o.outstanding is not NULL:
        uncount(o.outstanding, 1)
    if o.prefix is not NULL:
        free(o.prefix)
    if o.cursor.chunk is not NULL:
        cursor_close(&o.cursor)
    if o.message is not NULL:
        message_release(o.message)
    pools.outs_alive -= 1
    if pools.outs_kept < POOL_KEEP:
        pools.outs_kept += 1
        o.next = pools.outs
        pools.outs = o
    else:
        free(o)


cdef inline void sent_append(DeliveryNode* s, OutDelivery* o) noexcept:
    o.next = NULL
    o.previous = s.sent_last
    if o.previous is not NULL:
        o.previous.next = o
    else:
        s.sent_first = o
    s.sent_last = o


cdef inline void sent_remove(DeliveryNode* s, OutDelivery* o) noexcept:
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


# The same for deliveries and copies that are neighbours in their list, `first` to `last`, n of them. Nothing of theirs
# is to be given back, but for the one tally that all these copies count in, if any; what they refer to does not
# refer to them.

cdef inline void ins_recycle(InDelivery* first, InDelivery* last, uint32_t n) noexcept:
    """The upstream is done with them; what they count in its meter is for the caller to give back."""
    cdef DeliveryNode* upstream = first.upstream
    cdef InDelivery* d
    if first.previous is not NULL:
        first.previous.next = last.next
    else:
        upstream.in_first = last.next
    if last.next is not NULL:
        last.next.previous = first.previous
    else:
        upstream.in_last = first.previous
    upstream.in_count -= n
    pools.ins_alive -= n
    last.next = NULL
    if pools.ins_kept < POOL_KEEP:
        pools.ins_kept += n
        last.next = pools.ins
        pools.ins = first
        return
    while first is not NULL:
        d = first
        first = d.next
        free(d)


cdef inline void outs_recycle(OutDelivery* first, OutDelivery* last, uint32_t n) noexcept:
    """The downstream has sent them and is done with them."""
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
    outs_free(first, last, n)


cdef inline void outs_free(OutDelivery* first, OutDelivery* last, uint32_t n) noexcept:
    """The same for a chain of copies that are in no list."""
    cdef OutDelivery* o
    pools.outs_alive -= n
    if pools.outs_kept < POOL_KEEP:
        pools.outs_kept += n
        last.next = pools.outs
        pools.outs = first
        return
    while first is not NULL:
        o = first
        first = o.next
        free(o)
