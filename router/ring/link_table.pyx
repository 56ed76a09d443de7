"""Consumer links of this worker by slot, for records of other workers."""
from libc.stdlib cimport calloc, free

from sluice.router.links.consumer_link cimport ConsumerLink


cdef class LinkTable:
    def __cinit__(self, uint32_t size):
        """size: slots of a worker. Pages of the table that nobody uses cost no memory."""
        self.places.by_slot = <LinkPlace*>calloc(size, sizeof(LinkPlace))
        if self.places.by_slot is NULL:
            raise MemoryError("table of links")
        self.places.size = size

    def __dealloc__(self):
        cdef uint32_t slot
        for slot in range(self.places.end):
            if self.places.by_slot[slot].link is not NULL:
                (<ConsumerLink>self.places.by_slot[slot].link).place = NULL
        free(self.places.by_slot)

    def enter(self, uint32_t slot, uint32_t generation, ConsumerLink link not None):
        """Enter the link for this generation of the slot. It is removed by `leave`, or when its memory is freed."""
        cdef LinkPlace* place
        if slot >= self.places.size:
            raise IndexError(f"slot {slot} of {self.places.size}")
        if link.place is not NULL:
            raise ValueError("the link has a slot")
        self.leave(slot)
        place = &self.places.by_slot[slot]
        place.link = <void*>link
        place.generation = generation
        link.place = <void**>&place.link
        if slot >= self.places.end:
            self.places.end = slot + 1

    def leave(self, uint32_t slot):
        """Clear the entry of a slot, if it has one."""
        cdef LinkPlace* place
        if slot >= self.places.end:
            return
        place = &self.places.by_slot[slot]
        if place.link is not NULL:
            (<ConsumerLink>place.link).place = NULL
            place.link = NULL
