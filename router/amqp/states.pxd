"""Delivery states (part 3, 3.4), encoded."""
from libc.stdint cimport uint8_t

from router.amqp.codec cimport Slice
from router.amqp.spec cimport D_RECEIVED

# The descriptor of an encoded state: 0 for none, OTHER_STATE for one that is only relayed.
cdef uint8_t state_kind(const Slice* state) noexcept nogil
# Its first field is there: of a rejection the error.
cdef bint has_field(const Slice* state) noexcept nogil
# Encoding of an outcome without fields.
cdef Slice plain_state(uint8_t kind) noexcept nogil


cdef inline bint terminal(uint8_t kind) noexcept nogil:
    """It is an outcome: nothing but settlement follows it."""
    return kind != 0 and kind != D_RECEIVED
