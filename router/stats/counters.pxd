"""Counters of this process. They live in its shared-memory slot after `use_worker_slot`, in a private block before."""
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from sluice.router.amqp.spec cimport D_ACCEPTED
from sluice.router.ring.layout cimport LATENCY_BUCKETS, LinkSlot, WorkerSlot

cdef extern from *:
    int leading_zeros "__builtin_clzll"(unsigned long long word) noexcept nogil

cdef enum:
    DELAYED_NS = 1000000000    # age from which a delivery counts in deliveriesDelayed1Sec
    NS_A_US = 1000

cdef WorkerSlot* totals

cdef void use_worker_slot(WorkerSlot* slot) noexcept
# Rare cases of the inline functions below.
cdef void count_other_outcome(LinkSlot* slot, uint8_t kind, uint64_t n) noexcept nogil
cdef void count_other_total(uint8_t kind, uint64_t n, bint client) noexcept nogil
cdef void count_delay(LinkSlot* slot, uint64_t age, uint64_t n, bint total) noexcept nogil
cdef void begin_second(LinkSlot* slot, uint32_t second) noexcept nogil
cdef void unblock(LinkSlot* slot) noexcept nogil
cdef void count_drop(LinkSlot* slot, int reason) noexcept nogil

# Count n deliveries as ended on this link in this second of the clock.
cdef inline void count_finished(LinkSlot* slot, uint32_t second, uint64_t n=1) noexcept nogil:
    if slot.rate_second != second:
        begin_second(slot, second)
    slot.finished += n

# Count n ended deliveries of this link by outcome (`kind`).
cdef inline void count_outcome(LinkSlot* slot, uint8_t kind, uint64_t n=1) noexcept nogil:
    if kind == D_ACCEPTED:
        slot.accepted += n
    else:
        count_other_outcome(slot, kind, n)

# Count n ended deliveries in the totals, by the outcome that their producer sees. `client`: their producer is a client,
# so each of them was counted when it arrived.
cdef inline void count_total(uint8_t kind, bint client, uint64_t n=1) noexcept nogil:
    if kind == D_ACCEPTED:
        totals.accepted += n
        totals.ended_accepted += n if client else 0
    else:
        count_other_total(kind, n, client)

# Count n deliveries by age, in ns from the first octet to settlement. `total`: `slot` is that of their producer's link,
# and the latency histograms of the link and of the worker count them.
cdef inline void count_age(LinkSlot* slot, uint64_t age, bint total, uint64_t n=1) noexcept nogil:
    cdef int bucket
    if age > DELAYED_NS:
        count_delay(slot, age, n, total)
    if total:
        age //= NS_A_US
        bucket = 64 - leading_zeros(age) if age else 0
        bucket = bucket if bucket < LATENCY_BUCKETS else LATENCY_BUCKETS - 1
        totals.latency[bucket] += n
        totals.latency_sum += age * n
        slot.latency[bucket] += <uint32_t>n

# Count one delivery that arrived presettled, or is sent presettled.
cdef inline void count_presettled_delivery(LinkSlot* slot, uint32_t second) noexcept nogil:
    count_finished(slot, second)
    slot.presettled += 1

# Reference-counted handle on a counter of unsettled deliveries. The counter may be assigned to another owner before the
# deliveries end, so the deliveries hold the handle instead of the counter's address.
cdef struct Tally:
    uint64_t* count            # the counter; NULL after it was assigned to another owner
    uint64_t holders           # references: the owner, and each delivery counted

cdef Tally* tally_new(uint64_t* count) except NULL
# Drop one reference; the last one frees the handle.
cdef void tally_release(Tally* tally) noexcept

# Counters of a link without a slot in shared memory. Owner: the link.
cdef class PrivateSlot:
    cdef LinkSlot* slot
