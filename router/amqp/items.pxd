"""Access to items of a list by borrowed pointers, for each frame. Cython would count a reference to each object passed
on."""

cdef extern from "Python.h":
    void* item_at "PyList_GET_ITEM"(void* items, Py_ssize_t at) noexcept
    Py_ssize_t items_in "PyList_GET_SIZE"(void* items) noexcept
