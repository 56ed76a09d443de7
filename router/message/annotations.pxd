"""Message-annotations as they go out: those of users as they came, those of routers anew."""
from libc.stdint cimport uint8_t

from router.message.content cimport Content

# Most octets of the annotations section that compose writes for this content.
cdef size_t compose_room(const Content* c) noexcept nogil
# Writes the message-annotations section for a way out; router: with router annotations. Returns octets, 0: no section.
cdef size_t compose(uint8_t* w, const Content* c, bint router) noexcept nogil

cdef enum:
    COMPOSED_MOST = 1024       # octets of what is kept; longer ones are composed each time

# What `compose` has made for a way out with router annotations, for messages that say the same. Plain struct: embedded
# in its user, who frees `octets`.
cdef struct Composed:
    uint8_t* octets            # NULL: nothing is kept
    size_t size

# Compose for this content and keep that. False: it is not kept.
cdef bint composed_keep(Composed* kept, const Content* c) noexcept nogil
cdef void composed_drop(Composed* kept) noexcept nogil
