"""Cached prefixes: the leading sections of a link's recent messages with annotations, each with the plan
for it.
"""
from sluice.router.amqp.items cimport items_in, put_first
from sluice.router.message.annotations cimport composed_drop
from sluice.router.message.scanned_prefix cimport prefix_keep


cdef class CachedPrefix:
    def __dealloc__(self):
        composed_drop(&self.plan.composed)


cdef list keep_prefix(list cached_prefixes, const uint8_t* data, size_t size, const Sections* found):
    cdef bint full = cached_prefixes is not None and len(cached_prefixes) == CACHED_PREFIXES
    cdef CachedPrefix one = <CachedPrefix>cached_prefixes[CACHED_PREFIXES - 1] if full else CachedPrefix()
    if not prefix_keep(&one.last, data, size, found):
        return cached_prefixes
    if cached_prefixes is None:
        return [one]
    composed_drop(&one.plan.composed)
    one.plan.version = 0
    one.address = None
    if not full:
        cached_prefixes.append(one)
    put_first(cached_prefixes, len(cached_prefixes) - 1)
    return cached_prefixes


cdef void* find_further_prefix(void* cached_prefixes, const uint8_t* data, size_t size) noexcept:
    cdef Py_ssize_t at
    cdef void* found
    for at in range(1, items_in(cached_prefixes)):
        found = item_at(cached_prefixes, at)
        if has_prefix(&(<CachedPrefix>found).last, data, size):
            put_first(<list>cached_prefixes, at)
            return found
    return NULL
