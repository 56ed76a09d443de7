"""Table of objects by a number that a peer chooses (channel, handle). Its memory follows the number of objects."""
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from libc.stdint cimport uint32_t

from sluice.router.amqp.items cimport item_at, items_in

cdef enum:
    # The list holds numbers up to this many above those in use. That is sufficient for every ordinary peer.
    NEAR_SLACK = 16

# Table of objects by number. The list has at most 4 * count + 2 * NEAR_SLACK places, whatever numbers were in use
# before. Owner: a connection or session.
cdef class ObjectTable:
    cdef list near                         # objects by number; None: the number is free
    cdef dict far                          # objects with numbers beyond the list; None: none
    cdef uint32_t count                    # number of objects in both
    cdef uint32_t far_most                 # largest size of `far` since it was created, which its memory follows
    cdef uint32_t lowest                   # all smaller numbers are in use
    cdef int put(self, uint32_t number, object what) except -1
    cdef int remove(self, uint32_t number) except -1
    cdef int shorten(self) except -1
    cdef list values(self)
    cdef uint32_t lowest_free(self) except? 0xFFFFFFFF


cdef inline object number_get(ObjectTable table, uint32_t number):
    """Return the object with the number, or None. Called for each frame, without the checks that a list would repeat.
    """
    if number < <uint32_t>PyList_GET_SIZE(table.near):
        return <object>PyList_GET_ITEM(table.near, number)
    return None if table.far is None else table.far.get(number)


cdef inline void* number_at(void* table, uint32_t number) noexcept:
    """Return the object in the list as a borrowed pointer; NULL if the number is beyond the list. table: borrowed."""
    cdef void* near = <void*>(<ObjectTable>table).near
    return item_at(near, number) if number < <uint32_t>items_in(near) else NULL
