"""Token bucket of working time."""
from libc.stdint cimport int64_t, uint64_t

# Token bucket of working time, in ns. Owner: the object whose work it limits.
cdef class TokenBucket:
    cdef readonly int64_t tokens           # working time that is available now; below 0: deficit
    cdef readonly int64_t capacity         # most unused working time that is kept
    cdef readonly int64_t most_deficit     # largest deficit, which bounds the pause; more is not counted
    cdef uint64_t refilled_at              # time of the last refill
    cpdef void fill(self, uint64_t now) noexcept
    cpdef void refill(self, uint64_t now, int divisor, int64_t spent) noexcept
    cpdef void spend(self, int64_t spent) noexcept
    cpdef int64_t delay(self, int divisor) noexcept
