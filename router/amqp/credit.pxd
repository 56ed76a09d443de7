"""Arithmetic of link credit (part 2, 2.6.7)."""
from libc.stdint cimport UINT32_MAX, int32_t, int64_t, uint32_t


cdef inline uint32_t credit_left(uint32_t receiver_count, uint32_t link_credit, uint32_t sender_count) noexcept nogil:
    """Return the deliveries that a sender may still send.

    The receiver granted `link_credit` as of `receiver_count` deliveries, and the sender has counted `sender_count`.
    Counts are serial numbers; credit is any 32-bit number.
    """
    cdef int64_t left = <int64_t>link_credit + <int32_t>(receiver_count - sender_count)
    if left < 0:
        left = 0
    elif left > UINT32_MAX:
        left = UINT32_MAX
    return <uint32_t>left
