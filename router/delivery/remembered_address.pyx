"""Remembered addresses: the addresses of an anonymous link's recent messages, each with the plan for its messages."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.string cimport memcmp

from sluice.router.amqp.items cimport item_at, items_in, put_first
from sluice.router.message.annotations cimport composed_drop


cdef class RememberedAddress:
    def __dealloc__(self):
        composed_drop(&self.plan.composed)


cdef void* find_address(void* addresses, const Slice* text) noexcept:
    cdef Py_ssize_t at
    cdef void* found
    cdef void* known
    if addresses is <void*>None:
        return NULL
    for at in range(items_in(addresses)):
        found = item_at(addresses, at)
        known = <void*>(<RememberedAddress>found).text
        if PyBytes_GET_SIZE(<bytes>known) == <Py_ssize_t>text.size \
                and memcmp(PyBytes_AS_STRING(<bytes>known), text.data, text.size) == 0:
            if at:
                put_first(<list>addresses, at)
            return found
    return NULL


cdef list remember_address(list addresses, RememberedAddress one):
    if addresses is None:
        return [one]
    if len(addresses) == REMEMBERED_ADDRESSES:
        addresses[REMEMBERED_ADDRESSES - 1] = one
    else:
        addresses.append(one)
    put_first(addresses, len(addresses) - 1)
    return addresses
