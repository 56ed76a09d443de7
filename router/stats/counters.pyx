"""Counters of outcomes, ages and drops. Totals of the router are the sums over the slots of all workers.

routing-semantics.md 16.3; management.md 7.2, 7.3.
"""
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memset

from sluice.router.ring.layout cimport RATE_SECONDS
from sluice.router.amqp.spec cimport D_MODIFIED, D_REJECTED, D_RELEASED

cdef uint64_t LONG_DELAYED_NS = 10000000000  # deliveriesDelayed10Sec

cdef WorkerSlot private_slot
memset(&private_slot, 0, sizeof(WorkerSlot))
cdef WorkerSlot* totals = &private_slot


cdef void use_worker_slot(WorkerSlot* slot) noexcept:
    """Count totals in `slot` from now on; NULL selects the private slot again."""
    global totals
    totals = slot if slot is not NULL else &private_slot


cdef void count_other_outcome(LinkSlot* slot, uint8_t kind, uint64_t n) noexcept nogil:
    if kind == D_RELEASED:
        slot.released += n
    elif kind == D_MODIFIED:
        slot.modified += n
    elif kind == D_REJECTED:
        slot.rejected += n


cdef void count_other_total(uint8_t kind, uint64_t n, bint client) noexcept nogil:
    cdef uint64_t clients = n if client else 0
    if kind == D_RELEASED:
        totals.released += n
        totals.ended_released += clients
    elif kind == D_MODIFIED:
        totals.modified += n
        totals.ended_modified += clients
    elif kind == D_REJECTED:
        totals.rejected += n
        totals.ended_rejected += clients
    else:
        totals.settled_no_state += clients


cdef void count_delay(LinkSlot* slot, uint64_t age, uint64_t n, bint total) noexcept nogil:
    # routing-semantics.md O-1; management.md 7.3.
    cdef uint64_t all_ends = n if total else 0
    if age > LONG_DELAYED_NS:
        slot.delayed_10s += n
        totals.delayed_10s += all_ends
    else:
        slot.delayed_1s += n
        totals.delayed_1s += all_ends


cdef void begin_second(LinkSlot* slot, uint32_t second) noexcept nogil:
    """Fill the rate history before the first delivery of a second is counted; no delivery ended since `rate_second`."""
    cdef uint32_t at = slot.rate_second + 1
    if second - slot.rate_second > RATE_SECONDS:
        at = second - (RATE_SECONDS - 1)
    while at != second + 1:
        slot.started[at % RATE_SECONDS] = <uint32_t>slot.finished
        at += 1
    slot.rate_second = second


cdef void unblock(LinkSlot* slot) noexcept nogil:
    """Mark a link as not blocked, because it has credit again or is detached."""
    slot.blocked_since = 0
    if slot.blocked:
        slot.blocked = 0
        totals.blocked -= 1


cdef void count_drop(LinkSlot* slot, int reason) noexcept nogil:
    slot.dropped_presettled += 1
    totals.dropped_presettled += 1
    totals.dropped[reason] += 1


cdef Tally* tally_new(uint64_t* count) except NULL:
    cdef Tally* tally = <Tally*>malloc(sizeof(Tally))
    if tally is NULL:
        raise MemoryError("counter")
    tally.count = count
    tally.holders = 1
    return tally


cdef void tally_release(Tally* tally) noexcept:
    tally.holders -= 1
    if not tally.holders:
        free(tally)


cdef class PrivateSlot:
    """Counters of a link without a slot in shared memory: in tests, and before a link gets its slot."""
    def __cinit__(self):
        self.slot = <LinkSlot*>calloc(1, sizeof(LinkSlot))
        if self.slot is NULL:
            raise MemoryError("link counters")

    def __dealloc__(self):
        free(self.slot)
