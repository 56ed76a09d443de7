"""The consumers' links of this worker by their slots, for the records of other workers."""
from libc.stdlib cimport calloc, free

from router.links.consumer_link cimport ConsumerLink


cdef class LinkTable:
    def __cinit__(self, uint32_t size):
        """size: slots of a worker. Pages of it that nobody uses cost no memory."""
        self.places.links = <void**>calloc(size, sizeof(void*))
        if self.places.links is NULL:
            raise MemoryError("table of links")
        self.places.size = size

    def __dealloc__(self):
        free(self.places.links)

    def enter(self, uint32_t slot, ConsumerLink link not None):
        """The link, which its owner keeps until it leaves."""
        if slot >= self.places.size:
            raise IndexError(f"slot {slot} of {self.places.size}")
        self.places.links[slot] = <void*>link

    def leave(self, uint32_t slot):
        """The slot is no consumer's any more, if it was."""
        if slot < self.places.size:
            self.places.links[slot] = NULL
