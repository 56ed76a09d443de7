"""Cached prefixes: the leading sections of a link's recent messages with annotations, each with its forwarding
decision.
"""
from router.amqp.items cimport items_in
from router.message.annotations cimport composed_drop
from router.message.last_sections cimport last_keep


cdef class Beginning:
    def __dealloc__(self):
        composed_drop(&self.answer.composed)


cdef list keep_beginning(list beginnings, const uint8_t* data, size_t size, const Sections* found):
    cdef bint full = beginnings is not None and len(beginnings) == BEGINNINGS
    cdef Beginning one = <Beginning>beginnings[BEGINNINGS - 1] if full else Beginning()
    if not last_keep(&one.last, data, size, found):
        return beginnings
    if beginnings is None:
        return [one]
    composed_drop(&one.answer.composed)
    one.answer.version = 0
    one.address = None
    if not full:
        beginnings.append(one)
    put_first(beginnings, len(beginnings) - 1)
    return beginnings


cdef void* further_beginning(void* beginnings, const uint8_t* data, size_t size) noexcept:
    cdef Py_ssize_t at
    cdef void* found
    for at in range(1, items_in(beginnings)):
        found = item_at(beginnings, at)
        if is_last(&(<Beginning>found).last, data, size):
            put_first(<list>beginnings, at)
            return found
    return NULL


cdef inline void put_first(list beginnings, Py_ssize_t at) noexcept:
    """Move the entry `at` to the front; the others keep their order. Nothing is allocated, so nothing can fail."""
    while at:
        beginnings[at - 1], beginnings[at] = beginnings[at], beginnings[at - 1]
        at -= 1
