"""Settlements that are collected, to be written as few dispositions for ranges of delivery-ids."""
from libc.stdint cimport uint8_t, uint32_t
from libc.string cimport memset

cdef enum:
    RUNS_SPAN = 2048           # ids from the first one that may be collected to the last one
    RUNS_BEHIND = 512          # … of them before the one that is collected first
    RUN_KEPT = 0x80            # in an octet of `kinds`: the delivery is settled

# The outcome of each delivery that is collected, which needs no words. Plain struct: embedded by value in its user.
cdef struct Runs:
    uint8_t* kinds             # by id; NULL before the first
    uint32_t base              # the id of kinds[0]
    uint32_t low               # offsets of the first one that is collected …
    uint32_t high              # … and behind the last one


cdef inline bint runs_add(Runs* runs, uint32_t id, uint32_t count, uint8_t kind) noexcept nogil:
    """Collect deliveries id … id + count - 1. False: they are too far from the others, or nothing has begun."""
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


# Begin with this delivery; nothing is collected. False: there is no memory.
cdef bint runs_begin(Runs* runs, uint32_t id) noexcept nogil
# Take the first run of neighbours with one outcome, in the order of ids; how many. 0: there is none.
cdef uint32_t runs_take(Runs* runs, uint32_t* first, uint8_t* kind) noexcept nogil
cdef void runs_release(Runs* runs) noexcept nogil
