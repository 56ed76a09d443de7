"""Settlements that are collected as runs of delivery-ids, to be written as few dispositions."""
from libc.stdint cimport uint8_t, uint32_t

cdef enum:
    RUNS_MOST = 128            # that are collected before they are written, where they are no neighbours

# Deliveries first … first + count - 1, settled with an outcome that needs no words.
cdef struct Run:
    uint32_t first
    uint32_t count
    uint32_t behind            # deliveries from `first` to the next one to come: what runs are ordered by
    uint8_t kind

# Runs in the order they came. Plain struct: embedded by value in its user.
cdef struct Runs:
    Run* items                 # NULL before the first
    uint32_t count


cdef inline bint runs_extend(Runs* runs, uint32_t id, uint8_t kind) noexcept nogil:
    """Whether the last run goes on with this delivery; then it does."""
    cdef Run* last
    if not runs.count:
        return False
    last = &runs.items[runs.count - 1]
    if kind != last.kind or id != last.first + last.count:
        return False
    last.count += 1
    return True


# Begin another run; there are fewer than RUNS_MOST. False: there is no memory for them.
cdef bint runs_begin(Runs* runs, uint32_t id, uint8_t kind) noexcept nogil
# Put them into the order of their ids, the next of which is to be `next_id`, and make neighbours one.
cdef void runs_join(Runs* runs, uint32_t next_id) noexcept nogil
cdef void runs_release(Runs* runs) noexcept nogil
