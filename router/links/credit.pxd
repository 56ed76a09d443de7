"""Link credit as shown in link slots."""
from libc.stdint cimport INT32_MAX, int32_t, uint32_t


cdef inline int32_t shown_credit(uint32_t credit) noexcept nogil:
    """Return a link's credit as shown in its slot: at most INT32_MAX."""
    return INT32_MAX if credit > INT32_MAX else <int32_t>credit
