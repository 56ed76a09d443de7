"""Setting structs to zero, for those of each delivery."""

cdef extern from *:
    """
    /* As memset, for a struct's size. gcc writes `rep stosq` for more than 96 octets, which takes longer to begin than
       a struct takes in stores of 16 octets; so it is given less at a time. */
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
