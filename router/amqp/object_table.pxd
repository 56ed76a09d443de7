"""Objects by a number that a peer chooses (channels, handles): memory follows how many, not how they are called."""
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from libc.stdint cimport uint32_t

from router.amqp.items cimport item_at, items_in

cdef enum:
    # Numbers up to so many above the ones in use are kept in a list, which is what every ordinary peer needs.
    NEAR_SLACK = 16

# Owner: a connection or session.
cdef class ObjectTable:
    cdef list near                         # by number; None where there is none
    cdef dict far                          # those beyond the list, or None
    cdef int put(self, uint32_t number, object what) except -1
    cdef int remove(self, uint32_t number) except -1
    cdef list values(self)
    cdef uint32_t lowest_free(self) noexcept


cdef inline object number_get(ObjectTable table, uint32_t number):
    """What has that number, or None. For each frame: without the checks that a list would make again."""
    if number < <uint32_t>PyList_GET_SIZE(table.near):
        return <object>PyList_GET_ITEM(table.near, number)
    return None if table.far is None else table.far.get(number)


cdef inline void* number_at(void* table, uint32_t number) noexcept:
    """The same for each frame. table, and what is returned: borrowed. NULL: not among those in the list."""
    cdef void* near = <void*>(<ObjectTable>table).near
    return item_at(near, number) if number < <uint32_t>items_in(near) else NULL
