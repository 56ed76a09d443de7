"""Cache of address look-ups by the octets of an address, without a dictionary.

A link from another router carries messages for any number of addresses, and each message names its own.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp

cdef uint32_t FNV_BASIS = 0x811C9DC5
cdef uint32_t FNV_PRIME = 0x01000193


cdef class AddressCache:
    def __cinit__(self):
        self.texts = [b""] * RECENT
        self.found = [None] * RECENT
        self.phases = <int*>calloc(RECENT, sizeof(int))
        self.versions = <uint64_t*>calloc(RECENT, sizeof(uint64_t))
        self.version = 1
        if self.phases is NULL or self.versions is NULL:
            raise MemoryError("recent addresses")

    def __dealloc__(self):
        free(self.phases)
        free(self.versions)

    def forget(self):
        """Make all entries void: the table has changed."""
        self.version += 1

    cdef bint get(self, const Slice* text, int phase, uint32_t* place, void** found) noexcept:
        cdef uint32_t h = FNV_BASIS ^ <uint32_t>phase
        cdef bytes known
        cdef size_t i
        for i in range(text.size):
            h = (h ^ text.data[i]) * FNV_PRIME
        h = (h ^ (h >> 16)) & (RECENT - 1)
        place[0] = h
        if self.versions[h] != self.version or self.phases[h] != phase:
            return False
        known = <bytes>self.texts[h]
        if PyBytes_GET_SIZE(known) != <Py_ssize_t>text.size \
                or memcmp(PyBytes_AS_STRING(known), text.data, text.size) != 0:
            return False
        found[0] = <void*>self.found[h]
        return True

    cdef int put(self, uint32_t place, bytes text, int phase, object found) except -1:
        self.texts[place] = text
        self.found[place] = found
        self.phases[place] = phase
        self.versions[place] = self.version
        return 0
