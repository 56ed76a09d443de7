"""Composition of outgoing message-annotations: users' annotations are kept, router annotations are written anew.

routing-semantics.md 11.1, 11.4; inter-router.md 10, 10.1, 10.2; inter-router-protocol.md 6.1.
"""
from libc.stdint cimport uint8_t, uint32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy, memmove

from sluice.router.amqp.buffer cimport write32
from sluice.router.amqp.codec cimport Slice, open_list, skip_value
from sluice.router.amqp.spec cimport (
    S_MESSAGE_ANNOTATIONS, T_LIST8, T_LIST32, T_MAP8, T_MAP32, T_SMALLINT, T_SMALLULONG, T_SYM8,
)
from sluice.router.message.sections cimport SERVED_SIZE, Sections, is_router_key

from sluice.router.amqp import codec

cdef bytes node_holder = b"\xa1\x030/?"
cdef const uint8_t* node = node_holder
cdef size_t node_size = 5


# Write ingress and trace for every message. False, at an edge router: only for the router's own (inter-router.md
# 10.3).
cdef bint follows = True


def use_node(str text not None, *, bint forwarded=True):
    """Set this router's node id ("0/ID") for ingress and trace.

    forwarded: write these for forwarded messages as well.
    """
    global node_holder, node, node_size, follows
    follows = forwarded
    node_holder = codec.encode_string(text)
    node = node_holder
    node_size = len(node_holder)


cdef size_t compose_room(const Content* c) noexcept nogil:
    # 12 for the header of the section; keys of 9 to 19 octets, with 2 for their header; 9 for the header of a list.
    return c.sections.map.size + c.to.size + c.sections.ingress.size + c.sections.trace.size + c.served.size \
        + 2 * node_size + 224


cdef inline uint8_t* put_key(uint8_t* w, const char* text, uint8_t size) noexcept nogil:
    w[0] = T_SYM8
    w[1] = size
    memcpy(w + 2, text, size)
    return w + 2 + size


cdef inline uint8_t* put_slice(uint8_t* w, const uint8_t* data, size_t size) noexcept nogil:
    memcpy(w, data, size)
    return w + size


cdef uint8_t* put_trace(uint8_t* w, const Slice* trace) noexcept nogil:
    """Write the incoming trace with this router added, unless it is the last one: a copy that has moved to another
    worker (moved_copies.pyx) has been annotated before."""
    cdef uint32_t count = 0
    cdef const uint8_t* stop = NULL
    cdef const uint8_t* items = NULL
    cdef size_t size = 0
    if trace.data is not NULL:
        items = open_list(trace.data, trace.data + trace.size, &count, &stop)
    if items is not NULL and count:
        size = stop - items
    else:
        count = 0
    if count and size >= node_size and memcmp(stop - node_size, node, node_size) == 0:
        return put_slice(w, trace.data, trace.size)
    if size + node_size < 255 and count < 255:
        w[0] = T_LIST8
        w[1] = <uint8_t>(size + node_size + 1)
        w[2] = <uint8_t>(count + 1)
        w += 3
    else:
        w[0] = T_LIST32
        write32(w + 1, <uint32_t>(size + node_size + 4))
        write32(w + 5, count + 1)
        w += 9
    if size:
        w = put_slice(w, items, size)
    return put_slice(w, node, node_size)


cdef uint8_t* put_user_pairs(uint8_t* w, const Sections* s) noexcept nogil:
    """Write the annotations of users."""
    cdef const uint8_t* p = s.map.data
    cdef const uint8_t* end = s.map.data + s.map.size
    cdef const uint8_t* value
    cdef const uint8_t* following
    cdef Slice name
    if not s.router:
        return put_slice(w, p, s.map.size)
    while p < end:
        value = skip_value(p, end)
        if value is NULL:
            break
        following = skip_value(value, end)
        if following is NULL:
            break
        if not is_router_key(p, value, &name):
            w = put_slice(w, p, following - p)
        p = following
    return w


cdef size_t compose(uint8_t* w, const Content* c, bint router) noexcept nogil:
    cdef const Sections* s = &c.sections
    cdef uint8_t* start = w
    cdef uint8_t* body = w + 12
    cdef uint32_t items = 2 * s.pairs
    cdef size_t size
    w = body
    if s.pairs:
        w = put_user_pairs(w, s)
    if router:
        if c.served.data is not NULL or s.served.data is not NULL:
            w = put_key(w, b"x-opt-sluice.served", SERVED_SIZE)
            w = put_slice(w, c.served.data, c.served.size) if c.served.data is not NULL \
                else put_slice(w, s.served.data, s.served.size)
            items += 2
        if c.phase:
            w = put_key(w, b"x-opt-qd.phase", 14)
            w[0] = T_SMALLINT
            w[1] = <uint8_t>c.phase
            w += 2
            items += 2
        if s.stream:
            w = put_key(w, b"x-opt-qd.stream", 15)
            w[0] = T_SMALLINT
            w[1] = 1
            w += 2
            items += 2
        if c.checking:
            w = put_key(w, b"x-opt-qd.settled", 16)
            w[0] = T_SMALLINT
            w[1] = 1
            w += 2
            items += 2
        if c.to.data is not NULL:
            w = put_key(w, b"x-opt-qd.to", 11)
            w = put_slice(w, c.to.data, c.to.size)
            items += 2
        if follows or c.own:
            w = put_key(w, b"x-opt-qd.ingress", 16)
            if s.ingress.data is not NULL:
                w = put_slice(w, s.ingress.data, s.ingress.size)
            else:
                w = put_slice(w, node, node_size)
            w = put_key(w, b"x-opt-qd.trace", 14)
            w = put_trace(w, &s.trace)
            items += 4
    if items == 0:
        return 0
    size = w - body
    start[0] = 0
    start[1] = T_SMALLULONG
    start[2] = S_MESSAGE_ANNOTATIONS
    if size < 255 and items < 256:
        start[3] = T_MAP8
        start[4] = <uint8_t>(size + 1)
        start[5] = <uint8_t>items
        memmove(start + 6, body, size)
        return size + 6
    start[3] = T_MAP32
    write32(start + 4, <uint32_t>(size + 4))
    write32(start + 8, items)
    return size + 12


cdef bint composed_keep(ComposedAnnotations* kept, const Content* c) noexcept nogil:
    cdef size_t room = compose_room(c)
    composed_drop(kept)
    if room > COMPOSED_MOST:
        return False
    kept.octets = <uint8_t*>malloc(room)
    if kept.octets is NULL:
        return False               # composed each time then
    kept.size = compose(kept.octets, c, True)
    return True


cdef void composed_drop(ComposedAnnotations* kept) noexcept nogil:
    free(kept.octets)
    kept.octets = NULL
    kept.size = 0
