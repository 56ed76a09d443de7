"""A set of credentials, ready for connections."""
from router.tls.openssl cimport SSL_CTX

# Owner: whoever made it, and the connections that were made with it.
cdef class TlsContext:
    cdef SSL_CTX* context
    cdef readonly bint server
    cdef readonly double expires       # seconds since the epoch: when the first certificate of ours expires; 0: none
    cdef readonly double valid_from    # seconds since the epoch: of our own certificate, the first one; 0: none
    cdef readonly double valid_until
    cdef readonly dict list_ends       # by authority: until when its revocation list holds; seconds since the epoch
    cdef int lists                     # of revocation
    cdef int use_protocols(self, names) except -1
    cdef int use_ciphers(self, str text) except -1
    cdef int use_groups(self) except -1
    cdef int use_certificates(self, str text) except -1
    cdef int use_key(self, str text, password) except -1
    cdef int trust(self, str text) except -1
    cdef int use_lists(self, str text) except -1
    cdef int use_tickets(self, bytes key, bytes context) except -1
