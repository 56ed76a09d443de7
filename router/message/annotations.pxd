"""Composition of outgoing message-annotations: users' annotations are kept, router annotations are written anew."""
from libc.stdint cimport uint8_t

from sluice.router.message.content cimport Content

# Return the most octets that `compose` may write for this content.
cdef size_t compose_room(const Content* c) noexcept nogil
# Write the message-annotations section of an outgoing copy. router: with router annotations. Returns its octets; 0:
# there is no section.
cdef size_t compose(uint8_t* w, const Content* c, bint router) noexcept nogil

cdef enum:
    COMPOSED_MOST = 1024       # octets of the longest section that is kept; longer ones are composed each time

# Section composed by `compose` with router annotations, kept for messages with identical leading sections. Plain
# struct: embedded in its user, which calls `composed_drop`.
cdef struct ComposedAnnotations:
    uint8_t* octets            # owned; NULL: nothing is kept
    size_t size

# Compose the section for this content and keep it. False: it is not kept.
cdef bint composed_keep(ComposedAnnotations* kept, const Content* c) noexcept nogil
cdef void composed_drop(ComposedAnnotations* kept) noexcept nogil
