"""Delivery states (part 3, 3.4), encoded."""
from libc.stdint cimport uint8_t

from router.amqp.codec cimport Slice
from router.amqp.spec cimport D_ACCEPTED, D_MODIFIED, D_RECEIVED, D_RELEASED

# The descriptor of an encoded state: 0 for none, OTHER_STATE for one that is only relayed.
cdef uint8_t state_kind(const Slice* state) noexcept nogil
# Its first field is there: of a rejection the error.
cdef bint has_field(const Slice* state) noexcept nogil
# Encoding of an outcome without fields.
cdef Slice plain_state(uint8_t kind) noexcept nogil


cdef inline bint is_plain_outcome(uint8_t kind, const Slice* state) noexcept nogil:
    """True for accepted and released without fields, and for no state: outcomes that are known by their kind alone.
    Others of the same length are not, as modified without fields, and states that AMQP does not define."""
    return state.size <= 4 and (kind == D_ACCEPTED or kind == D_RELEASED or (kind == 0 and state.size == 0))


cdef inline bint terminal(uint8_t kind) noexcept nogil:
    """It is an outcome: nothing but settlement follows it."""
    return kind != 0 and kind != D_RECEIVED


cdef inline bint is_outcome(uint8_t kind) noexcept nogil:
    """Return True for the four outcomes of part 3, 3.4: a delivery that has one may be settled. A transactional state
    holds an outcome that is not final yet."""
    return D_ACCEPTED <= kind <= D_MODIFIED
