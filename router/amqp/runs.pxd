"""Collection of settlements, to be written as few dispositions for ranges of delivery-ids."""
from libc.stdint cimport uint8_t, uint32_t
from libc.string cimport memset

cdef enum:
    RUNS_SPAN = 2048           # range of ids that can be collected together
    RUNS_BEHIND = 512          # part of the range below the id that is collected first
    RUN_KEPT = 0x80            # bit in an octet of `kinds`: the delivery is settled

# Collected plain outcomes by delivery-id. Embedded in its user.
cdef struct SettlementRuns:
    uint8_t* kinds             # outcome by id; NULL before the first
    uint32_t base              # id of kinds[0]
    uint32_t low               # offset of the first collected outcome
    uint32_t high              # offset after the last one


cdef inline bint runs_add(SettlementRuns* runs, uint32_t id, uint32_t count, uint8_t kind) noexcept nogil:
    """Collect `count` deliveries from `id`. False: they are outside of the range, or no range has begun."""
    cdef uint32_t at = id - runs.base
    if runs.kinds is NULL or at >= RUNS_SPAN or count > RUNS_SPAN - at:
        return False
    if count == 1:
        runs.kinds[at] = kind | RUN_KEPT
    else:
        memset(runs.kinds + at, kind | RUN_KEPT, count)
    if at < runs.low:
        runs.low = at
    if at + count > runs.high:
        runs.high = at + count
    return True


# Begin a range with this delivery, and collect nothing yet. False: no memory.
cdef bint runs_begin(SettlementRuns* runs, uint32_t id) noexcept nogil
# Take the first run of consecutive deliveries with one outcome, in the order of ids. Return their number; 0: none.
cdef uint32_t runs_take(SettlementRuns* runs, uint32_t* first, uint8_t* kind) noexcept nogil
cdef void runs_release(SettlementRuns* runs) noexcept nogil
