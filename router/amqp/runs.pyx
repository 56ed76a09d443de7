"""Settlements that are collected as runs of delivery-ids, to be written as few dispositions."""
from libc.stdlib cimport free, malloc, qsort


cdef bint runs_begin(Runs* runs, uint32_t id, uint8_t kind) noexcept nogil:
    cdef Run* run
    if runs.items is NULL:
        runs.items = <Run*>malloc(RUNS_MOST * sizeof(Run))
        if runs.items is NULL:
            return False
    run = &runs.items[runs.count]
    run.first = id
    run.count = 1
    run.kind = kind
    runs.count += 1
    return True


cdef void runs_join(Runs* runs, uint32_t next_id) noexcept nogil:
    cdef uint32_t i, joined
    cdef Run* last
    cdef Run* run
    if runs.count < 2:
        return
    for i in range(runs.count):
        runs.items[i].behind = next_id - runs.items[i].first
    qsort(runs.items, runs.count, sizeof(Run), compare_runs)
    joined = 1
    for i in range(1, runs.count):
        last = &runs.items[joined - 1]
        run = &runs.items[i]
        if run.first == last.first + last.count and run.kind == last.kind:
            last.count += run.count
        else:
            runs.items[joined] = run[0]
            joined += 1
    runs.count = joined


cdef void runs_release(Runs* runs) noexcept nogil:
    free(runs.items)
    runs.items = NULL


cdef int compare_runs(const void* a, const void* b) noexcept nogil:
    cdef uint32_t x = (<Run*>a).behind
    cdef uint32_t y = (<Run*>b).behind
    return -1 if x > y else x < y
