"""Prefetching of memory that is needed soon into the nearest cache."""

cdef extern from *:
    """
    /* Prefetch a struct of `size` octets, line by line. Any address may be given: an invalid one causes no fault. */
    static inline __attribute__((always_inline)) void sluice_prefetch(const void *at, size_t size) {
        for (size_t i = 0; i < size; i += 64)
            __builtin_prefetch((const char *)at + i);
    }
    """
    void prefetch "sluice_prefetch"(const void* at, size_t size) noexcept nogil
