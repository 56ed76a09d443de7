"""Where this process counts: its worker slot in shared memory, or a private one until `use_worker_slot`."""
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from router.interworker.layout cimport LinkSlot, WorkerSlot

cdef WorkerSlot* totals

cdef void use_worker_slot(WorkerSlot* slot) noexcept
cdef void count_outcome(LinkSlot* slot, uint8_t kind) noexcept nogil
cdef void count_total(uint8_t kind, bint client) noexcept nogil
cdef void count_age(LinkSlot* slot, uint64_t age, bint total) noexcept nogil
cdef void begin_second(LinkSlot* slot, uint32_t second) noexcept nogil
cdef void unblock(LinkSlot* slot) noexcept nogil
cdef void count_drop(LinkSlot* slot, int reason) noexcept nogil

# A delivery has ended on this link, in this second of the clock.
cdef inline void count_finished(LinkSlot* slot, uint32_t second) noexcept nogil:
    if slot.rate_second != second:
        begin_second(slot, second)
    slot.finished += 1

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
