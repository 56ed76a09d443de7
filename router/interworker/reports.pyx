"""What became of another worker's deliveries, for that worker: equal outcomes of consecutive ones are one record."""
from router.amqp.states cimport plain_state


cdef class ReportingNode(NodeOwner):
    cdef int report(self, bint returned, uint64_t key, uint8_t kind, const Slice* state, bint settled) except -1:
        # As its kind alone only what the other side would encode the same way.
        if not returned and (not settled or state.size > 4 or state.size != plain_state(kind).size):
            self.flush_pending()
            return self.post_outcome(False, key, 1, kind, state, settled)
        if self.pending_count and self.pending_returned == returned and self.pending_kind == kind \
                and key == self.pending_first + self.pending_count:
            self.pending_count += 1
            return 0
        self.flush_pending()
        self.pending_returned = returned
        self.pending_kind = kind
        self.pending_size = 0 if returned else plain_state(kind).size
        self.pending_first = key
        self.pending_count = 1
        self.report_due()
        return 0

    cdef int flush_pending(self) except -1:
        cdef Slice none
        cdef uint32_t count = self.pending_count
        if not count:
            return 0
        none.data = NULL
        none.size = 0
        self.pending_count = 0
        return self.post_outcome(self.pending_returned, self.pending_first, count, self.pending_kind, &none, True)

    cdef int post_outcome(self, bint returned, uint64_t first, uint32_t count, uint8_t kind, const Slice* state,
                          bint settled) except -1:
        raise NotImplementedError

    cdef void report_due(self) noexcept:
        pass
