"""Link credit as slots show it."""
from libc.stdint cimport INT32_MAX, int32_t, uint32_t


cdef inline int32_t shown_credit(uint32_t credit) noexcept nogil:
    """Credit as a slot shows it."""
    return INT32_MAX if credit > INT32_MAX else <int32_t>credit
