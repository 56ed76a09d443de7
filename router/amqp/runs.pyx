"""Collection of settlements, to be written as few dispositions for ranges of delivery-ids.

Consumers settle in any order, and each consumer of one producer has only some of its deliveries. An octet for each id
restores the order without sorting.
"""
from libc.stdint cimport uint64_t
from libc.stdlib cimport calloc, free

cdef enum:
    WORD = 8
    SPARES = 8

# Released arrays, all zero, for reuse. Most wakes need one or two, and clearing new ones would cost more than the
# collecting.
cdef (uint8_t*)[SPARES] spare_kinds
cdef int spares = 0


cdef bint runs_begin(SettlementRuns* runs, uint32_t id) noexcept nogil:
    global spares
    if runs.kinds is NULL:
        if spares:
            spares -= 1
            runs.kinds = spare_kinds[spares]
        else:
            runs.kinds = <uint8_t*>calloc(RUNS_SPAN, 1)
            if runs.kinds is NULL:
                return False
    runs.base = id - RUNS_BEHIND
    runs.low = RUNS_SPAN
    runs.high = 0
    return True


cdef uint32_t runs_take(SettlementRuns* runs, uint32_t* first, uint8_t* kind) noexcept nogil:
    cdef uint32_t at = runs.low
    cdef uint32_t begin
    cdef uint8_t kept
    while at < runs.high and runs.kinds[at] == 0:
        # Skip eight octets at a time where no outcome is collected.
        if at % WORD == 0 and at + WORD <= runs.high and (<uint64_t*>(runs.kinds + at))[0] == 0:
            at += WORD
        else:
            at += 1
    if at >= runs.high:
        runs.low = RUNS_SPAN
        runs.high = 0
        return 0
    begin = at
    kept = runs.kinds[at]
    while at < runs.high and runs.kinds[at] == kept:
        at += 1
    memset(runs.kinds + begin, 0, at - begin)
    runs.low = at
    first[0] = runs.base + begin
    kind[0] = kept & ~RUN_KEPT
    return at - begin


cdef void runs_release(SettlementRuns* runs) noexcept nogil:
    global spares
    if runs.kinds is NULL:
        return
    if spares < SPARES and runs.low >= runs.high:
        spare_kinds[spares] = runs.kinds
        spares += 1
    else:
        free(runs.kinds)
    runs.kinds = NULL
