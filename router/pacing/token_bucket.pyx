"""Token bucket of working time: limits work to a share of the elapsed time.

All times are in ns. The time of work is taken from the bucket after the work, so the bucket may have a deficit. To
limit the rate of events, take the interval between two events for each event.
"""


cdef class TokenBucket:
    def __init__(self, int64_t capacity, int64_t most_deficit):
        """Create a full bucket. capacity: most working time saved for later, in ns. most_deficit: ns, not negative."""
        self.tokens = self.capacity = capacity
        self.most_deficit = most_deficit

    cpdef void fill(self, uint64_t now) noexcept:
        """Fill the bucket at the time `now`."""
        self.tokens = self.capacity
        self.refilled_at = now

    cpdef void refill(self, uint64_t now, int divisor, int64_t spent) noexcept:
        """Add 1/`divisor` of the time since the last refill, and take the time `spent` on work since then."""
        cdef uint64_t passed = now - self.refilled_at if now > self.refilled_at else 0
        self.refilled_at += passed
        self.spend(spent - <int64_t>(passed // divisor))

    cpdef void spend(self, int64_t spent) noexcept:
        """Take the time `spent` on work from the bucket."""
        self.tokens = max(-self.most_deficit, min(self.capacity, self.tokens - spent))

    cpdef int64_t delay(self, int divisor) noexcept:
        """Return the time until refills with `divisor` have ended the deficit; 0: there is none."""
        return -self.tokens * divisor if self.tokens < 0 else 0
