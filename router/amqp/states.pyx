"""Encoded delivery states (part 3, 3.4): their kinds, and the encodings of those without fields."""
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from sluice.router.amqp.codec cimport Slice, open_described, open_list
from sluice.router.amqp.spec cimport D_ACCEPTED, D_MODIFIED, D_REJECTED, D_RELEASED, T_NULL

cdef enum:
    OTHER_STATE = 0xFF         # kind of a state whose descriptor is not of part 3

cdef uint8_t[4] ACCEPTED_OCTETS = [0x00, 0x53, 0x24, 0x45]
cdef uint8_t[4] REJECTED_OCTETS = [0x00, 0x53, 0x25, 0x45]
cdef uint8_t[4] RELEASED_OCTETS = [0x00, 0x53, 0x26, 0x45]
# State of deliveries to a consumer that has disappeared: delivery-failed=true, undeliverable-here=false.
cdef uint8_t[8] MODIFIED_OCTETS = [0x00, 0x53, 0x27, 0xC0, 0x03, 0x02, 0x41, 0x42]


cdef uint8_t state_kind(const Slice* state) noexcept nogil:
    """Return the descriptor of an encoded state: 0 for none, OTHER_STATE for one that is only relayed."""
    cdef uint64_t code
    if state.data is NULL or state.size == 0:
        return 0
    if open_described(state.data, state.data + state.size, &code) is NULL or code > 0xFE:
        return OTHER_STATE
    return <uint8_t>code


cdef bint has_field(const Slice* state) noexcept nogil:
    """True if the first field of an encoded state is present, such as the error of a rejection."""
    cdef uint64_t code
    cdef uint32_t count
    cdef const uint8_t* stop
    cdef const uint8_t* p
    if state.data is NULL or state.size == 0:
        return False
    p = open_described(state.data, state.data + state.size, &code)
    if p is NULL:
        return False
    p = open_list(p, state.data + state.size, &count, &stop)
    return p is not NULL and count > 0 and p < stop and p[0] != T_NULL


cdef Slice plain_state(uint8_t kind) noexcept nogil:
    """Return the encoding of an outcome without fields. Modified has its two flags."""
    cdef Slice s
    s.size = 4
    if kind == D_ACCEPTED:
        s.data = ACCEPTED_OCTETS
    elif kind == D_REJECTED:
        s.data = REJECTED_OCTETS
    elif kind == D_RELEASED:
        s.data = RELEASED_OCTETS
    elif kind == D_MODIFIED:
        s.data = MODIFIED_OCTETS
        s.size = 8
    else:
        s.data = NULL
        s.size = 0
    return s
