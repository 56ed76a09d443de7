"""Share of the deliveries in flight that the links of one event loop may have, see docs/internals/credit.md."""


cdef class CapacityShare:
    def __cinit__(self, Clock clock):
        self.clock = clock
        self.window = 1

    cdef void end_window(self) noexcept:
        cdef uint64_t elapsed = self.clock.now_ns - self.ends_ns + WINDOW_NS
        self.idle = self.ends_ns != 0 and IDLE_PARTS * self.waited_ns > elapsed
        self.connections_before = self.connections if elapsed < 2 * WINDOW_NS else 0
        self.connections = 0
        self.window += 1 if elapsed < 2 * WINDOW_NS else 2     # no window precedes one that begins after a pause
        self.waited_ns = 0
        self.ends_ns = self.clock.now_ns + WINDOW_NS

    cdef uint32_t of_link(self, uint32_t* counted_in, LimitedLinks* of_connection, uint64_t age_ns) noexcept:
        """Count a link that has run out of credit; return the largest capacity it may have.

        Connections have equal shares, each divided among its links: a peer takes nothing from others by more links.

        counted_in: number of the last window in which this link was counted. of_connection: the links of its
        connection. age_ns: age of a delivery that was settled lately. While the loop is idle, deliveries of that age
        wait for their peers and not for each other.
        """
        if self.clock.now_ns >= self.ends_ns:
            self.end_window()
        if of_connection.window != self.window:
            of_connection.links_before = of_connection.links if of_connection.window == self.window - 1 else 0
            of_connection.links = 0
            of_connection.window = self.window
            self.connections += 1
        if counted_in[0] != self.window:
            counted_in[0] = self.window
            of_connection.links += 1
        if self.idle and age_ns > SOON_NS:
            return LARGEST_CAPACITY
        return (SHARED_CAPACITY // max(self.connections, self.connections_before)
                // max(of_connection.links, of_connection.links_before))
