"""How the last messages of a link began that had annotations, and what is done with messages that begin so
(docs/internals/engine.md, "Between routers")."""
from libc.stdint cimport uint8_t, uint64_t

from router.amqp.items cimport item_at
from router.forwarding.short_way cimport Answer
from router.forwarding.table cimport Address
from router.message.last_sections cimport LastSections, is_last
from router.message.sections cimport Sections

cdef enum:
    # Of a link. Between routers these are the producers whose messages may be interleaved; those of more are read each
    # time.
    BEGINNINGS = 4
    BEGINNING_EVERY = 8        # messages that begin otherwise, of which one is kept

# Owner: the handler of the link.
cdef class Beginning:
    cdef LastSections last
    cdef Answer answer                     # by the short way
    cdef Address address                   # of a RouterHandler: where such messages go, None: not known …
    cdef uint64_t version                  # … as of this version of Table.recent

# The message, in which `scan` without properties has found this, begins like none of these: the next ones may be like
# it. The one that was used least lately makes room. Returns the list, which is not empty, or None.
cdef list keep_beginning(list beginnings, const uint8_t* data, size_t size, const Sections* found)
# `beginning_of` for one that is not the first.
cdef void* further_beginning(void* beginnings, const uint8_t* data, size_t size) noexcept


cdef inline void* beginning_of(void* beginnings, const uint8_t* data, size_t size) noexcept:
    """The Beginning that a message has, which is the first from now on; NULL: it has another one. beginnings: a list
    that is not empty, or None. Borrowed, as what is returned."""
    cdef void* first
    if beginnings is <void*>None:
        return NULL
    first = item_at(beginnings, 0)
    if is_last(&(<Beginning>first).last, data, size):
        return first
    return further_beginning(beginnings, data, size)
