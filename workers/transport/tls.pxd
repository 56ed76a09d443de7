"""The transport over TLS."""
from router.tls.context cimport TlsContext
from router.tls.openssl cimport SSL
from workers.transport.base cimport Handshake, Transport

cdef class TlsTransport(Transport):
    cdef TlsContext context
    cdef SSL* ssl                          # NULL: not begun, or the peer speaks without TLS
    cdef str host                          # of a connection of ours: the peer's name
    cdef bint looks                        # a listener: the first octet says whether the peer speaks TLS
    cdef bint more                         # octets may be inside, or the end of the stream
    cdef bint failed                       # the library allows nothing more
    cdef int records                       # of TLS itself that were read, see count_record
    cdef Handshake look_at(self) except *
    cdef int begin_tls(self) except -1
    cdef Handshake shake_hands(self) except *
    cdef ssize_t failure(self, int result) except? -2
