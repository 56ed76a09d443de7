"""Where this process counts: its worker slot in shared memory, or a private one until `use_worker_slot`."""
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from router.amqp.spec cimport D_ACCEPTED
from router.interworker.layout cimport LATENCY_BUCKETS, LinkSlot, WorkerSlot

cdef extern from *:
    int leading_zeros "__builtin_clzll"(unsigned long long word) noexcept nogil

cdef enum:
    DELAYED_NS = 1000000000    # deliveriesDelayed1Sec
    NS_A_US = 1000

cdef WorkerSlot* totals

cdef void use_worker_slot(WorkerSlot* slot) noexcept
# What the inline functions below leave out because it is rare.
cdef void count_other_outcome(LinkSlot* slot, uint8_t kind) noexcept nogil
cdef void count_other_total(uint8_t kind, bint client) noexcept nogil
cdef void count_delay(LinkSlot* slot, uint64_t age, bint total) noexcept nogil
cdef void begin_second(LinkSlot* slot, uint32_t second) noexcept nogil
cdef void unblock(LinkSlot* slot) noexcept nogil
cdef void count_drop(LinkSlot* slot, int reason) noexcept nogil

# A delivery has ended on this link, in this second of the clock.
cdef inline void count_finished(LinkSlot* slot, uint32_t second) noexcept nogil:
    if slot.rate_second != second:
        begin_second(slot, second)
    slot.finished += 1

# It has, with this outcome, at the link that settled it.
cdef inline void count_outcome(LinkSlot* slot, uint8_t kind) noexcept nogil:
    if kind == D_ACCEPTED:
        slot.accepted += 1
    else:
        count_other_outcome(slot, kind)

# It has for its producer, who sees this outcome. client: it was counted when it came in.
cdef inline void count_total(uint8_t kind, bint client) noexcept nogil:
    if kind == D_ACCEPTED:
        totals.accepted += 1
        totals.ended_accepted += client
    else:
        count_other_total(kind, client)

# age: ns from the first octet to settlement. total: its producer's link counts it, and the router.
cdef inline void count_age(LinkSlot* slot, uint64_t age, bint total) noexcept nogil:
    cdef int bucket
    if age > DELAYED_NS:
        count_delay(slot, age, total)
    if total:
        age //= NS_A_US
        bucket = 64 - leading_zeros(age) if age else 0
        bucket = bucket if bucket < LATENCY_BUCKETS else LATENCY_BUCKETS - 1
        totals.latency[bucket] += 1
        slot.latency[bucket] += 1

# So has one that was settled when it came, or is when it leaves.
cdef inline void note_presettled(LinkSlot* slot, uint32_t second) noexcept nogil:
    count_finished(slot, second)
    slot.presettled += 1

# A counter of deliveries that live. It may become another's before they end: they hold this instead.
cdef struct Tally:
    uint64_t* count            # NULL: it is another's now
    uint64_t holders           # its owner, and each delivery that it counts

cdef Tally* tally_new(uint64_t* count) except NULL
# A holder is done with it.
cdef void tally_release(Tally* tally) noexcept

# Counters of a link that is not in shared memory (yet). Owner: the link.
cdef class PrivateSlot:
    cdef LinkSlot* slot
