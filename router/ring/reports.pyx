"""Reports of outcomes to another worker: equal outcomes of consecutive deliveries become one record."""
from sluice.router.amqp.id_map cimport map_free
from sluice.router.amqp.states cimport plain_state
from sluice.router.delivery.delivery cimport InDelivery
from sluice.router.links.settlement cimport RUN_MOST, cut_sources, free_sources


cdef class ReportingNode(NodeOwner):
    def __dealloc__(self):
        map_free(&self.received)

    cdef bint settled(self, OutDelivery** run, uint32_t n, uint8_t kind, const Slice* state) except -1:
        cdef InDelivery* sources[RUN_MOST]
        cdef Slice said = self.fitting(kind, state)
        cdef uint32_t i = 0
        cdef uint32_t begin
        cdef uint64_t first
        while i < n:
            begin = i
            first = run[i].source.key
            i += 1
            while i < n and run[i].source.key == first + (i - begin):
                i += 1
            self.report(False, first, i - begin, kind, &said, True)
        cut_sources(run, n, sources)
        free_sources(&self.received, sources, n)
        return True

    cdef int report(self, bint returned, uint64_t first, uint32_t count, uint8_t kind, const Slice* state,
                    bint settled) except -1:
        # Collect only outcomes that the other worker encodes the same way from their kind.
        if not returned and (not settled or state.size > 4 or state.size != plain_state(kind).size):
            self.flush_pending()
            return self.post_outcome(False, first, count, kind, state, settled)
        if self.pending_count and self.pending_returned == returned and self.pending_kind == kind \
                and first == self.pending_first + self.pending_count:
            self.pending_count += count
            return 0
        self.flush_pending()
        self.pending_returned = returned
        self.pending_kind = kind
        self.pending_size = 0 if returned else plain_state(kind).size
        self.pending_first = first
        self.pending_count = count
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

    cdef Slice fitting(self, uint8_t kind, const Slice* state) except *:
        return state[0]

    cdef void report_due(self) noexcept:
        pass
