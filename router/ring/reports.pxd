"""Reports of outcomes to another worker: equal outcomes of consecutive deliveries become one record."""
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from sluice.router.amqp.codec cimport Slice
from sluice.router.amqp.id_map cimport IdMap
from sluice.router.delivery.delivery cimport NodeOwner, OutDelivery

# Upstream of another worker's deliveries: its port, or its end of a routed link.
cdef class ReportingNode(NodeOwner):
    cdef IdMap received                    # key -> InDelivery*: unsettled deliveries of the other worker
    # Collected outcome of keys first … first + count - 1.
    cdef uint64_t pending_first
    cdef uint32_t pending_count
    cdef uint8_t pending_kind
    cdef bint pending_returned
    cdef size_t pending_size               # octets of the state of that kind without fields
    # Report an outcome of keys first … first + count - 1. returned: they were presettled, and have left their queues.
    cdef int report(self, bint returned, uint64_t first, uint32_t count, uint8_t kind, const Slice* state,
                    bint settled) except -1
    cdef int flush_pending(self) except -1
    # Post a record of an outcome. An empty state stands for the one of its kind without fields.
    cdef int post_outcome(self, bint returned, uint64_t first, uint32_t count, uint8_t kind, const Slice* state,
                          bint settled) except -1
    # Return the state as it is sent: shortened if it is too long.
    cdef Slice fitting(self, uint8_t kind, const Slice* state) except *
    # Arrange that `flush_pending` is called at the end of this wake.
    cdef void report_due(self) noexcept


cdef inline bint continues(ReportingNode node, uint64_t key, uint8_t kind, const Slice* state) noexcept:
    """Return True if a settlement continues the collected range with the same outcome."""
    return node.pending_count != 0 and key == node.pending_first + node.pending_count \
        and kind == node.pending_kind and state.size == node.pending_size and not node.pending_returned
