"""How the last messages of a link began that had annotations, and what is done with messages that begin so."""
from router.message.annotations cimport composed_drop
from router.message.last_sections cimport last_keep


cdef class Beginning:
    def __dealloc__(self):
        composed_drop(&self.answer.composed)


cdef int keep_beginning(list beginnings, const uint8_t* data, size_t size, const Sections* found) except -1:
    cdef bint full = len(beginnings) == BEGINNINGS
    cdef Beginning one = <Beginning>beginnings[BEGINNINGS - 1] if full else Beginning()
    if not last_keep(&one.last, data, size, found):
        return 0
    composed_drop(&one.answer.composed)
    one.answer.version = 0
    one.address = None
    if not full:
        beginnings.append(one)
    put_first(beginnings, len(beginnings) - 1)
    return 0


cdef void put_first(list beginnings, Py_ssize_t at) noexcept:
    """Those before it come behind it, in their order."""
    beginnings.insert(0, beginnings.pop(at))
