"""Items of a list by borrowed pointers, for each frame: Cython counts a reference to each object that it passes on."""

cdef extern from "Python.h":
    void* item_at "PyList_GET_ITEM"(void* items, Py_ssize_t at) noexcept
    Py_ssize_t items_in "PyList_GET_SIZE"(void* items) noexcept
