"""Counting outcomes, ages and drops; the router totals are the sums over the workers' slots."""
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from router.ipc.layout cimport LATENCY_BUCKETS
from router.amqp.spec cimport D_ACCEPTED, D_MODIFIED, D_REJECTED, D_RELEASED

cdef enum:
    DELAYED_MS = 1000          # deliveriesDelayed1Sec
    LONG_DELAYED_MS = 10000    # deliveriesDelayed10Sec

cdef WorkerSlot private_slot
memset(&private_slot, 0, sizeof(WorkerSlot))
cdef WorkerSlot* totals = &private_slot


cdef void use_worker_slot(WorkerSlot* slot) noexcept:
    """From now on totals are counted there."""
    global totals
    totals = slot


cdef void count_outcome(LinkSlot* slot, uint8_t kind) noexcept nogil:
    if kind == D_ACCEPTED:
        slot.accepted += 1
    elif kind == D_RELEASED:
        slot.released += 1
    elif kind == D_MODIFIED:
        slot.modified += 1
    elif kind == D_REJECTED:
        slot.rejected += 1


cdef void count_total(uint8_t kind) noexcept nogil:
    """The final outcome of a delivery as its producer sees it."""
    if kind == D_ACCEPTED:
        totals.accepted += 1
    elif kind == D_RELEASED:
        totals.released += 1
    elif kind == D_MODIFIED:
        totals.modified += 1
    elif kind == D_REJECTED:
        totals.rejected += 1
    else:
        totals.settled_no_state += 1


cdef void count_age(LinkSlot* slot, uint64_t age, bint total) noexcept nogil:
    """age: ms from the first octet to settlement."""
    cdef int bucket = 0
    if age > LONG_DELAYED_MS:
        slot.delayed_10s += 1
        totals.delayed_10s += total
    elif age > DELAYED_MS:
        slot.delayed_1s += 1
        totals.delayed_1s += total
    if total:
        while age and bucket < LATENCY_BUCKETS - 11:
            age >>= 1
            bucket += 1
        # Ages are known to a millisecond: buckets are powers of two of a microsecond, the first ten stay for finer
        # clocks.
        totals.latency[bucket + 10 if bucket else 0] += 1


cdef void count_drop(LinkSlot* slot, int reason) noexcept nogil:
    slot.dropped_presettled += 1
    totals.dropped_presettled += 1
    totals.dropped[reason] += 1


cdef class PrivateSlot:
    """Counters of a link that is not in shared memory (tests, and links before they have a slot)."""
    def __cinit__(self):
        self.slot = <LinkSlot*>calloc(1, sizeof(LinkSlot))
        if self.slot is NULL:
            raise MemoryError("link counters")

    def __dealloc__(self):
        free(self.slot)
