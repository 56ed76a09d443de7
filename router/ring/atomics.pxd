"""Atomic words in shared memory: the compiler's builtins under typed names. All are naturally aligned words."""
from libc.stdint cimport uint32_t, uint64_t

cdef extern from *:
    enum:
        RELAXED "__ATOMIC_RELAXED"
        ACQUIRE "__ATOMIC_ACQUIRE"
        RELEASE "__ATOMIC_RELEASE"
        SEQUENTIAL "__ATOMIC_SEQ_CST"
    uint32_t load32 "__atomic_load_n"(const uint32_t* word, int order) noexcept nogil
    uint64_t load64 "__atomic_load_n"(const uint64_t* word, int order) noexcept nogil
    void store32 "__atomic_store_n"(uint32_t* word, uint32_t value, int order) noexcept nogil
    void store64 "__atomic_store_n"(uint64_t* word, uint64_t value, int order) noexcept nogil
    uint64_t fetch_or64 "__atomic_fetch_or"(uint64_t* word, uint64_t bits, int order) noexcept nogil
    uint64_t fetch_add64 "__atomic_fetch_add"(uint64_t* word, uint64_t value, int order) noexcept nogil
    bint compare_exchange64 "__atomic_compare_exchange_n"(
        uint64_t* word, uint64_t* expected, uint64_t value, bint weak, int success, int failure) noexcept nogil
    uint64_t exchange64 "__atomic_exchange_n"(uint64_t* word, uint64_t value, int order) noexcept nogil
    void fence "__atomic_thread_fence"(int order) noexcept nogil
