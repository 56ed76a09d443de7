"""Clearing of structs, for those that are used for each delivery."""

cdef extern from *:
    """
    /* Clear a struct. gcc emits `rep stosq` for more than 96 octets, which takes longer to start than clearing a struct
       with stores of 16 octets. So the compiler is given at most 64 octets at a time. */
    static inline __attribute__((always_inline)) void sluice_zero(void *at, size_t size) {
        char *p = (char *)at;
        while (size > 64) {
            __builtin_memset(p, 0, 64);
            p += 64;
            size -= 64;
        }
        __builtin_memset(p, 0, size);
    }
    """
    void zero "sluice_zero"(void* at, size_t size) noexcept nogil
