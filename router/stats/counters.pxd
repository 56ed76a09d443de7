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
cdef void count_other_outcome(LinkSlot* slot, uint8_t kind, uint64_t n) noexcept nogil
cdef void count_other_total(uint8_t kind, uint64_t n, bint client) noexcept nogil
cdef void count_delay(LinkSlot* slot, uint64_t age, uint64_t n, bint total) noexcept nogil
cdef void begin_second(LinkSlot* slot, uint32_t second) noexcept nogil
cdef void unblock(LinkSlot* slot) noexcept nogil
cdef void count_drop(LinkSlot* slot, int reason) noexcept nogil

# n deliveries have ended on this link, in this second of the clock.
cdef inline void count_finished(LinkSlot* slot, uint32_t second, uint64_t n=1) noexcept nogil:
    if slot.rate_second != second:
        begin_second(slot, second)
    slot.finished += n

# They have, with this outcome, at the link that settled them.
cdef inline void count_outcome(LinkSlot* slot, uint8_t kind, uint64_t n=1) noexcept nogil:
    if kind == D_ACCEPTED:
        slot.accepted += n
    else:
        count_other_outcome(slot, kind, n)

# They have for their producer, who sees this outcome. client: they were counted when they came in.
cdef inline void count_total(uint8_t kind, bint client, uint64_t n=1) noexcept nogil:
    if kind == D_ACCEPTED:
        totals.accepted += n
        totals.ended_accepted += n if client else 0
    else:
        count_other_total(kind, n, client)

# age: ns from the first octet to settlement. total: their producer's link counts them, and the router.
cdef inline void count_age(LinkSlot* slot, uint64_t age, bint total, uint64_t n=1) noexcept nogil:
    cdef int bucket
    if age > DELAYED_NS:
        count_delay(slot, age, n, total)
    if total:
        age //= NS_A_US
        bucket = 64 - leading_zeros(age) if age else 0
        bucket = bucket if bucket < LATENCY_BUCKETS else LATENCY_BUCKETS - 1
        totals.latency[bucket] += n
        slot.latency[bucket] += <uint32_t>n

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
