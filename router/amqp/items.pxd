"""Access to items of a list by borrowed pointers, for each frame. Cython would count a reference to each object passed
on."""

cdef extern from "Python.h":
    void* item_at "PyList_GET_ITEM"(void* items, Py_ssize_t at) noexcept
    Py_ssize_t items_in "PyList_GET_SIZE"(void* items) noexcept


cdef inline void put_first(list items, Py_ssize_t at) noexcept:
    """Move the item `at` to the front; the others keep their order. Nothing is allocated, so nothing can fail."""
    while at:
        items[at - 1], items[at] = items[at], items[at - 1]
        at -= 1
