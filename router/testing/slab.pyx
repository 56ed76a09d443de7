"""Pool of structs of a test's size, for tests of the slab allocator."""
from libc.stdint cimport uint32_t, uintptr_t
from libc.string cimport memset

from sluice.router.delivery.slab cimport Pool, pool_add, pool_drop, pool_give, pool_kept, pool_take

cdef enum:
    SIZE = 40                  # octets of a struct; a slab has 64 of them, and a head of 64 octets
    SPAN = 4096


cdef class TestPool:
    """Pool of structs that are known by their addresses."""
    cdef Pool pool
    cdef set used

    def __cinit__(self):
        self.used = set()

    def __dealloc__(self):
        for address in self.used:
            pool_give(&self.pool, <void*><uintptr_t>address, 1, SIZE, SPAN)
        while not pool_drop(&self.pool, 1, SIZE, SPAN):
            pass

    def take(self):
        """Take a struct, overwrite it, and return its address."""
        cdef void* taken
        if self.pool.next is NULL and not pool_add(&self.pool, SIZE, SPAN):
            raise MemoryError("slab")
        taken = pool_take(&self.pool, SIZE)
        memset(taken, 0xFF, SIZE)
        self.used.add(<uintptr_t>taken)
        return <uintptr_t>taken

    def give(self, uintptr_t address):
        """Return a struct."""
        self.used.remove(address)
        memset(<void*>address, 0xFF, SIZE)
        pool_give(&self.pool, <void*>address, 1, SIZE, SPAN)

    def give_neighbours(self, uintptr_t address, uint32_t n):
        """Return n structs that lie side by side."""
        for each in range(address, address + n * SIZE, SIZE):
            self.used.remove(each)
        pool_give(&self.pool, <void*>address, n, SIZE, SPAN)

    def drop(self, uint32_t most):
        """Free slabs without structs in use. Return False if there are more."""
        return bool(pool_drop(&self.pool, most, SIZE, SPAN))

    @property
    def counts(self):
        """Numbers of structs in use, of free ones, and of slabs."""
        return self.pool.alive, pool_kept(&self.pool), self.pool.slabs
