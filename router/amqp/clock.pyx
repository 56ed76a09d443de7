"""Time of a wake, and the list of objects to check soon."""

cdef enum:
    NS_A_MS = 1000000
    NS_A_SECOND = 1000000000


cdef class Clock:
    def __cinit__(self):
        self.starved = []

    cdef void set_clock(self, uint64_t now_ns) noexcept:
        self.now_ns = now_ns
        self.now = now_ns // NS_A_MS
        self.second = <uint32_t>(now_ns // NS_A_SECOND)

    def set_time(self, uint64_t now_ns):
        """Set the clock, for the client and for tests."""
        self.set_clock(now_ns)
