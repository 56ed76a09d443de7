"""Message-annotations as they go out: those of users as they came, those of routers anew."""
from libc.stdint cimport uint8_t

from router.message.content cimport Content

# Most octets of the annotations section that compose writes for this content.
cdef size_t compose_room(const Content* c) noexcept nogil
# Writes the message-annotations section for a way out; router: with router annotations. Returns octets, 0: no section.
cdef size_t compose(uint8_t* w, const Content* c, bint router) noexcept nogil
