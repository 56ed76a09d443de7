"""What becomes of a delivery: outcomes of its copies on their way back to the producer, and what the producer says."""
from libc.stdint cimport uint8_t, uint32_t

from router.amqp.codec cimport Slice
from router.delivery.delivery cimport InDelivery, OutDelivery

cdef int in_routed(InDelivery* d) except -1
cdef int in_update(InDelivery* d, uint8_t kind, const Slice* state, bint settled) except -1
cdef int in_settled_late(InDelivery* d) except -1
cdef int in_lost(InDelivery* d) except -1
cdef int in_keep_state(InDelivery* d, uint8_t kind, const Slice* state) except -1
cdef int out_update(OutDelivery* o, uint8_t kind, const Slice* state, bint settled) except -1
cdef int out_left(OutDelivery* o) except -1
