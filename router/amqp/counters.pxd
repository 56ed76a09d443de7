"""Where this process counts: its worker slot in shared memory, or a private one until `use_worker_slot`."""
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from router.ipc.layout cimport LinkSlot, WorkerSlot

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

# Counters of a link that is not in shared memory (yet). Owner: the link.
cdef class PrivateSlot:
    cdef LinkSlot* slot
