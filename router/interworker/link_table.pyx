"""The consumers' links of this worker by their slots, for the records of other workers."""
from libc.stdlib cimport calloc, free

from router.links.consumer_link cimport ConsumerLink


cdef class LinkTable:
    def __cinit__(self, uint32_t size):
        """size: slots of a worker. Pages of it that nobody uses cost no memory."""
        self.links = <void**>calloc(size, sizeof(void*))
        if self.links is NULL:
            raise MemoryError("table of links")
        self.size = size

    def __dealloc__(self):
        free(self.links)

    def enter(self, uint32_t slot, ConsumerLink link not None):
        """The link, which its owner keeps until it leaves."""
        if slot >= self.size:
            raise IndexError(f"slot {slot} of {self.size}")
        self.links[slot] = <void*>link

    def leave(self, uint32_t slot):
        """The slot is no consumer's any more, if it was."""
        if slot < self.size:
            self.links[slot] = NULL
