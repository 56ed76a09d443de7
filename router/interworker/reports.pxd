"""What became of another worker's deliveries, for that worker: equal outcomes of consecutive ones are one record."""
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from router.amqp.codec cimport Slice
from router.amqp.id_map cimport IdMap
from router.delivery.delivery cimport NodeOwner, OutDelivery

# Where deliveries of another worker come from: its port, or its end of a routed link.
cdef class ReportingNode(NodeOwner):
    cdef IdMap received                    # key -> InDelivery*: of the other worker, not settled
    # The outcome being collected: of keys first … first + count - 1.
    cdef uint64_t pending_first
    cdef uint32_t pending_count
    cdef uint8_t pending_kind
    cdef bint pending_returned
    cdef size_t pending_size               # octets of the plain state of that kind
    # What became of the deliveries with keys first … first + count - 1. returned: they were settled, and have left.
    cdef int report(self, bint returned, uint64_t first, uint32_t count, uint8_t kind, const Slice* state,
                    bint settled) except -1
    cdef int flush_pending(self) except -1
    # Post a record of it, for `count` keys. An empty state is the plain one of its kind.
    cdef int post_outcome(self, bint returned, uint64_t first, uint32_t count, uint8_t kind, const Slice* state,
                          bint settled) except -1
    # The state as it crosses.
    cdef Slice fitting(self, uint8_t kind, const Slice* state) except *
    # flush_pending is to be called when this wake ends.
    cdef void report_due(self) noexcept


cdef inline bint continues(ReportingNode node, uint64_t key, uint8_t kind, const Slice* state) noexcept:
    """A settlement that is one with those being collected."""
    return node.pending_count != 0 and key == node.pending_first + node.pending_count \
        and kind == node.pending_kind and state.size == node.pending_size and not node.pending_returned
