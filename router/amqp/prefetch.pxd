"""Memory that is needed soon is asked for before it is: a copy of it comes from a farther cache meanwhile."""

cdef extern from *:
    """
    /* Any address: one that nobody has is no fault. A struct of `size` octets, line by line. */
    static inline __attribute__((always_inline)) void sluice_prefetch(const void *at, size_t size) {
        for (size_t i = 0; i < size; i += 64)
            __builtin_prefetch((const char *)at + i);
    }
    """
    void prefetch "sluice_prefetch"(const void* at, size_t size) noexcept nogil
