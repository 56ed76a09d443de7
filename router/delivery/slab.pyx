"""Slab allocator for structs of one size: incoming deliveries, or copies (slab.pxd)."""
from libc.stdint cimport uint32_t, uint64_t, uintptr_t
from libc.stdlib cimport free

cdef extern from *:
    """
    #define sluice_lowest_bit(bits) ((uint32_t)__builtin_ctzll(bits))
    """
    uint32_t lowest_bit "sluice_lowest_bit"(uint64_t bits) noexcept nogil

cdef extern from "stdlib.h" nogil:
    int posix_memalign(void** memory, size_t alignment, size_t size)


cdef bint pool_add(Pool* pool, size_t size, size_t span) noexcept:
    cdef void* memory = NULL
    cdef Slab* slab
    if posix_memalign(&memory, span, SLAB_HEAD + SLAB_STRUCTS * size):
        return False
    slab = <Slab*>memory
    forbid(<char*>memory + SLAB_HEAD, SLAB_STRUCTS * size)
    slab.free = ~<uint64_t>0
    slab.next = slab.previous = NULL
    pool.slabs += 1
    make_current(pool, slab, size)
    return True


cdef void pool_advance(Pool* pool, size_t size) noexcept nogil:
    cdef Slab* slab = pool.current
    if slab.free == 0:
        slab = pool.whole
        if slab is NULL:
            make_partial_current(pool, size)
            return
        pool.whole = slab.next
        pool.wholes -= 1
        slab.next = NULL
    make_current(pool, slab, size)


cdef void pool_move(Pool* pool, Slab* slab, size_t size) noexcept nogil:
    if slab is pool.current:
        return
    if pool.next is NULL:
        make_current(pool, slab, size)
        return
    if slab.free != ~<uint64_t>0:
        append_partial(pool, slab)
        return
    if slab.next is not NULL or slab.previous is not NULL or pool.partial is slab:
        remove_partial(pool, slab)
    add_whole(pool, slab)


cdef inline void make_current(Pool* pool, Slab* slab, size_t size) noexcept nogil:
    """Let structs be taken from the free ones of a slab with the lowest addresses. The slab is in no list; NULL: no
    struct is free."""
    cdef uint64_t bits
    cdef uint32_t first, n
    pool.current = slab
    if slab is NULL:
        pool.next = pool.end = NULL
        return
    first = lowest_bit(slab.free)
    bits = ~(slab.free >> first)               # its lowest bit is that of the first struct in use
    n = lowest_bit(bits) if bits else SLAB_STRUCTS
    slab.free &= ~run_bits(first, n)
    pool.next = <char*>slab + SLAB_HEAD + first * size
    pool.end = <char*>pool.next + n * size


cdef inline void add_whole(Pool* pool, Slab* slab) noexcept nogil:
    if pool.wholes * SLAB_STRUCTS >= POOL_KEEP:
        pool.slabs -= 1
        free(slab)
        return
    slab.previous = NULL
    slab.next = pool.whole
    pool.whole = slab
    pool.wholes += 1


cdef inline void append_partial(Pool* pool, Slab* slab) noexcept nogil:
    slab.next = NULL
    slab.previous = pool.partial_last
    if slab.previous is not NULL:
        slab.previous.next = slab
    else:
        pool.partial = slab
    pool.partial_last = slab


cdef inline void remove_partial(Pool* pool, Slab* slab) noexcept nogil:
    if slab.previous is not NULL:
        slab.previous.next = slab.next
    else:
        pool.partial = slab.next
    if slab.next is not NULL:
        slab.next.previous = slab.previous
    else:
        pool.partial_last = slab.previous
    slab.next = slab.previous = NULL


cdef bint pool_drop(Pool* pool, uint32_t most, size_t size, size_t span) noexcept nogil:
    cdef Slab* slab
    if pool.next is not NULL:
        # The run may be all that keeps its slab.
        slab = pool.current
        slab.free |= run_bits(
            <uint32_t>(((<uintptr_t>pool.next & (span - 1)) - SLAB_HEAD) // size),
            <uint32_t>((<char*>pool.end - <char*>pool.next) // <ssize_t>size),
        )
        if slab.free == ~<uint64_t>0:
            slab.next = pool.whole
            pool.whole = slab
            pool.wholes += 1
            make_partial_current(pool, size)
        else:
            make_current(pool, slab, size)
    while pool.whole is not NULL and most:
        slab = pool.whole
        pool.whole = slab.next
        pool.wholes -= 1
        pool.slabs -= 1
        most -= 1
        free(slab)
    return pool.whole is NULL


cdef inline void make_partial_current(Pool* pool, size_t size) noexcept nogil:
    """Let structs be taken from the first partial slab, if there is one."""
    cdef Slab* slab = pool.partial
    if slab is not NULL:
        remove_partial(pool, slab)
    make_current(pool, slab, size)
