"""Transport over TLS."""
from sluice.router.tls.context cimport TlsContext
from sluice.router.tls.openssl cimport SSL
from sluice.workers.transport.base cimport Handshake, Transport

cdef class TlsTransport(Transport):
    cdef TlsContext context
    cdef SSL* ssl                          # NULL: not begun, or the peer does not use TLS
    cdef str host                          # name of the server that this router connects to
    cdef bint looks                        # waits for the first octet, which shows whether the peer uses TLS
    cdef bint more                         # octets, or the end of the stream, may be buffered
    cdef bint failed                       # after an error the library must not be called again
    cdef int records                       # TLS records without data that were read; see limit_empty_records
    cdef Handshake look_at(self) except *
    cdef int create_tls(self) except -1
    cdef Handshake do_tls_handshake(self) except *
    cdef ssize_t failure(self, int result) except? -2
