"""A delivery on its way in, its copies on their way out, and how outcomes travel back (part 2, 2.6.12; part 3, 3.4)."""
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

from router.amqp.codec cimport Slice
from router.amqp.message cimport Content, Cursor, Message

cdef enum:
    # InDelivery.flags
    IN_PRESETTLED = 1          # the producer sent it settled (or settled it since)
    IN_COMPLETE = 2            # last octet is here
    IN_ROUTED = 4              # forwarders have seen it
    IN_MULTI = 8               # outcomes of several copies are combined (9.4 of the routing semantics)
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
    # OutDelivery.flags
    OUT_QUEUED = 1             # in its link's queue, last octet not written
    OUT_STARTED = 2            # first frame written: it has a delivery-id
    OUT_SETTLED = 4            # goes out settled
    OUT_REPORT = 8             # unsettled at the producer, settled at the consumer: accepted when written
    OUT_ABORT = 32             # what is not written stays unwritten: end it with an aborted transfer
    OUT_LATE_SETTLED = 64      # settled while on its way: only the last frame says so
    OUT_STUCK = 128            # counted as stuck
    OUT_CHECK = 256            # sent unsettled for a settled delivery: its settlement says that it has left
    OUT_DROPPABLE = 512        # presettled and not started: in its link's list of those that may be dropped

# One delivery from a producer. Owner: its upstream, in whose list it is until finished.
cdef struct InDelivery:
    void* upstream             # borrowed Party; NULL when the producer is gone
    InDelivery* previous
    InDelivery* next
    OutDelivery* outs          # copies whose fate matters
    Message* message           # reference while it may grow, or NULL
    uint64_t key               # what the upstream finds it by (session: delivery-id)
    uint64_t since             # ns: when its first octet came; 0: not counted
    uint32_t live              # copies in outs
    uint32_t pending           # copies without a terminal state
    uint16_t flags
    uint8_t kind               # best state of the copies so far, 0: none
    uint32_t state_size
    uint8_t* state             # its octets when they say more than the kind (owned)

# One copy on its way to a consumer. Owner: its downstream, in whose queue or unsettled list it is.
cdef struct OutDelivery:
    void* downstream           # borrowed Party
    OutDelivery* previous
    OutDelivery* next
    OutDelivery* sibling       # next copy of its delivery …
    OutDelivery* sibling_before  # … and the one before
    OutDelivery* newer         # while OUT_DROPPABLE: neighbours in its link's list
    OutDelivery* older
    InDelivery* peer           # NULL when the producer needs no more news
    Message* message           # reference while octets are to be written
    Cursor cursor
    uint8_t* prefix            # octets to write before the cursor's (owned): sections up to and with annotations
    uint32_t prefix_size
    uint32_t prefix_at
    uint64_t taken             # octets of the message behind the cursor (what the prefix replaces included)
    uint32_t id                # delivery-id, once started
    uint64_t tag_octets        # delivery tag, once started
    uint64_t acknowledged      # to another worker: octets that it has passed on
    uint64_t since             # ns: of its InDelivery
    uint16_t flags
    uint8_t kind               # terminal state reported by this copy
    uint32_t charge            # of the router's own: what it counts in `own_octets` of its queue; 0: of a client
    uint64_t* outstanding      # counts it while it lives, or NULL

cdef enum:
    # Octets of the router's own messages that may wait for a link without credit; for one that has some, or to go to
    # another worker. A single larger one is taken when none waits.
    OWN_QUEUED = 8388608
    OWN_FLOWING = 33554432
    OWN_OVERHEAD = 512         # … what each counts besides its content
    OWN_STREAM = 262144        # … what one counts that comes in parts: as much as may be here of it

cdef class Party:
    """One side of deliveries: a link, another worker, an exchange, the router itself."""
    cdef InDelivery* in_first      # deliveries that came from here
    cdef InDelivery* in_last
    cdef uint32_t in_count
    cdef OutDelivery* queue_first  # copies waiting to be written to here
    cdef OutDelivery* queue_last
    cdef uint64_t own_octets       # in the queue, of the router's own messages
    cdef OutDelivery* sent_first   # copies written, not settled
    cdef OutDelivery* sent_last
    # As the upstream of d. The consumer side has news: a state (kind 0: none; `state` its encoding, may be empty),
    # settled or not. When settled the upstream finishes the delivery (at once, or when it is complete).
    cdef int outcome(self, InDelivery* d, uint8_t kind, const Slice* state, bint settled) except -1
    # As the upstream of d: all that held the credit of a presettled delivery back is gone.
    cdef int returned(self, InDelivery* d) except -1
    # As the downstream of o: the message of a queued copy grew, is complete, or was aborted.
    cdef int more(self, OutDelivery* o) except -1
    # As the downstream of o: the producer set a state or settled. When settled, o.peer is already NULL.
    cdef int producer_update(self, OutDelivery* o, uint8_t kind, const Slice* state, bint settled) except -1
    # As the downstream of o, of which octets wait: the rest will not be written. May free o.
    cdef int abandon(self, OutDelivery* o) except -1
    # As either: a delivery that was counted as stuck has ended.
    cdef void unstuck(self) noexcept

cdef InDelivery* in_new(Party upstream, uint64_t key, uint64_t now, uint16_t flags) except NULL
cdef void in_free(InDelivery* d) noexcept
cdef int in_more(InDelivery* d) except -1
cdef int in_routed(InDelivery* d) except -1
cdef int in_update(InDelivery* d, uint8_t kind, const Slice* state, bint settled) except -1
cdef int in_lost(InDelivery* d) except -1
cdef int in_settled_late(InDelivery* d) except -1
cdef int in_keep_state(InDelivery* d, uint8_t kind, const Slice* state) except -1
cdef void in_detach_outs(InDelivery* d) noexcept
# Octets of some copy of d wait to be written.
cdef bint in_waits(const InDelivery* d) noexcept nogil
# Give up all copies of which octets wait. True: somebody has seen some of it. The caller settles d.
cdef bint in_abandon(InDelivery* d) except *

cdef OutDelivery* out_new(Party downstream, InDelivery* d, Content* c, bint linked) except NULL
cdef void out_free(OutDelivery* o) noexcept
cdef void pools_drop() noexcept
cdef int out_update(OutDelivery* o, uint8_t kind, const Slice* state, bint settled) except -1
cdef int out_left(OutDelivery* o) except -1
cdef void out_detach(OutDelivery* o) noexcept
# What a copy of a message of the router's own counts in the queue of s; 0: there is no room, it is to be dropped.
cdef uint32_t own_charge(Party s, const Content* c, uint64_t most) noexcept
cdef void queue_append(Party s, OutDelivery* o) noexcept
cdef void queue_remove(Party s, OutDelivery* o) noexcept
cdef void sent_append(Party s, OutDelivery* o) noexcept
cdef void sent_remove(Party s, OutDelivery* o) noexcept

cdef uint8_t state_kind(const Slice* state) noexcept nogil
cdef bint terminal(uint8_t kind) noexcept nogil
cdef Slice plain_state(uint8_t kind) noexcept nogil

# From a delivery-id (or any 64-bit key) to a delivery: a power-of-two table that consecutive ids fill in order, so that
# a look-up is one comparison; its size follows the live entries, not the span of the ids.
cdef struct IdMap:
    uint64_t* keys
    void** values
    uint32_t size              # slots, a power of two, or 0
    uint32_t used

cdef int map_put(IdMap* m, uint64_t key, void* value) except -1
cdef void* map_get(const IdMap* m, uint64_t key) noexcept nogil
cdef void* map_take(IdMap* m, uint64_t key) noexcept nogil
cdef void map_free(IdMap* m) noexcept nogil

cdef uint64_t live_in() noexcept
cdef uint64_t live_out() noexcept
