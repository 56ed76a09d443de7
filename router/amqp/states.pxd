"""Encoded delivery states (part 3, 3.4)."""
from libc.stdint cimport uint8_t

from sluice.router.amqp.codec cimport Slice
from sluice.router.amqp.spec cimport D_ACCEPTED, D_MODIFIED, D_RECEIVED, D_RELEASED

# Return the descriptor of an encoded state: 0 for none, OTHER_STATE for one that is only relayed.
cdef uint8_t state_kind(const Slice* state) noexcept nogil
# True if the first field of an encoded state is present, such as the error of a rejection.
cdef bint has_field(const Slice* state) noexcept nogil
# Return the encoding of an outcome without fields.
cdef Slice plain_state(uint8_t kind) noexcept nogil


cdef inline bint is_plain_outcome(uint8_t kind, const Slice* state) noexcept nogil:
    """True for outcomes that are known by their kind alone: accepted and released without fields, and no state. Other
    states of the same length are not: modified without fields, and states that AMQP does not define."""
    return state.size <= 4 and (kind == D_ACCEPTED or kind == D_RELEASED or (kind == 0 and state.size == 0))


cdef inline bint terminal(uint8_t kind) noexcept nogil:
    """True for a state after which only settlement follows."""
    return kind != 0 and kind != D_RECEIVED


cdef inline bint is_outcome(uint8_t kind) noexcept nogil:
    """True for the four outcomes of part 3, 3.4, with which a delivery may be settled. A transactional state holds an
    outcome that is not final yet."""
    return D_ACCEPTED <= kind <= D_MODIFIED
