"""Slab allocator for structs of one size: incoming deliveries, or copies.

A link with 100,000 unsettled deliveries walks through tens of megabytes between the arrival of a delivery and its
settlement. With a list of free structs, the order of the structs in memory becomes random within seconds, and nearly
every access misses the caches. A slab hands its structs out by address, and slabs without structs in use come first.
So deliveries that arrive one after the other lie side by side again, whatever order earlier ones were settled in.
"""
from libc.stdint cimport uint32_t, uint64_t, uintptr_t

from sluice.router.amqp.prefetch cimport prefetch

cdef extern from *:
    """
    /* A struct that is returned twice would be handed out twice. AddressSanitizer reports whoever uses a free one. */
    #ifdef SLUICE_DEBUG
    #include <stdlib.h>
    #include <sanitizer/asan_interface.h>
    #define sluice_check_used(bits, bit) do { if ((bits) & (bit)) abort(); } while (0)
    #define sluice_forbid(memory, octets) ASAN_POISON_MEMORY_REGION(memory, octets)
    #define sluice_permit(memory, octets) ASAN_UNPOISON_MEMORY_REGION(memory, octets)
    #else
    #define sluice_check_used(bits, bit) ((void)0)
    #define sluice_forbid(memory, octets) ((void)0)
    #define sluice_permit(memory, octets) ((void)0)
    #endif
    """
    void check_used "sluice_check_used"(uint64_t bits, uint64_t bit) noexcept nogil
    # Make reads and writes of these octets an error, or none, in the debug flavour.
    void forbid "sluice_forbid"(void* memory, size_t octets) noexcept nogil
    void permit "sluice_permit"(void* memory, size_t octets) noexcept nogil

cdef enum:
    SLAB_STRUCTS = 64          # structs in a slab: the bits of `Slab.free`
    SLAB_HEAD = 64             # octets before the first struct
    # Most structs of slabs without structs in use that a pool keeps: enough for the unsettled deliveries of a few busy
    # links.
    POOL_KEEP = 131072

# Head of a slab, at an address that is a multiple of the pool's `span`.
cdef struct Slab:
    uint64_t free              # bit i is set: struct i is neither in use nor in the run of the pool
    Slab* next                 # neighbours in the list of the pool that the slab is in
    Slab* previous

# Structs of one size, which functions below get as `size` and `span`, as constants that the compiler folds.
# Owner: the process; a worker has one thread.
cdef struct Pool:
    # Run of free structs that lie side by side, from which structs are taken; NULL: no struct is free.
    void* next
    void* end                  # octet after the run
    Slab* current              # slab of the run, in no list
    Slab* whole                # slabs without structs in use, the latest first
    Slab* partial              # slabs with structs in use and free ones, the one first that has had free ones longest
    Slab* partial_last
    uint64_t alive             # structs in use
    uint32_t slabs
    uint32_t wholes            # slabs in `whole`

# Add a slab to a pool without free structs. False: no memory.
cdef bint pool_add(Pool* pool, size_t size, size_t span) noexcept
# Choose the run from which structs are taken: the last one is used up.
cdef void pool_advance(Pool* pool, size_t size) noexcept nogil
# Move a slab to the list of its state, after the first or the last of its structs has become free.
cdef void pool_move(Pool* pool, Slab* slab, size_t size) noexcept nogil
# Free `most` slabs without structs in use. False: there are more.
cdef bint pool_drop(Pool* pool, uint32_t most, size_t size, size_t span) noexcept nogil


cdef inline void* pool_take(Pool* pool, size_t size) noexcept nogil:
    """Take a struct. The pool has a free one. The one after it is prefetched."""
    cdef void* taken = pool.next
    permit(taken, size)
    pool.alive += 1
    pool.next = <char*>taken + size
    if pool.next is pool.end:
        pool_advance(pool, size)
    prefetch(pool.next, size)
    return taken


cdef inline uint64_t run_bits(uint32_t first, uint32_t n) noexcept nogil:
    """Return the bits of n structs, at least one, that lie side by side."""
    return (~<uint64_t>0 >> (SLAB_STRUCTS - n)) << first


cdef inline Slab* slab_of(void* one, size_t span) noexcept nogil:
    return <Slab*>(<uintptr_t>one & ~<uintptr_t>(span - 1))


cdef inline void pool_give(Pool* pool, void* first, uint32_t n, size_t size, size_t span) noexcept nogil:
    """Return n structs that lie side by side."""
    cdef Slab* slab = slab_of(first, span)
    cdef uint32_t place = (<uint32_t>(<uintptr_t>first & (span - 1)) - SLAB_HEAD) // <uint32_t>size
    cdef uint64_t before = slab.free
    cdef uint64_t given = run_bits(place, n)
    check_used(before, given)
    forbid(first, n * size)
    slab.free = before | given
    pool.alive -= n
    if before == 0 or slab.free == ~<uint64_t>0:
        pool_move(pool, slab, size)


cdef inline uint32_t pool_kept(const Pool* pool) noexcept nogil:
    """Return the number of free structs."""
    return <uint32_t>(<uint64_t>pool.slabs * SLAB_STRUCTS - pool.alive)
