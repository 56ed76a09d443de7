"""OpenSSL context: a set of credentials, ready for connections."""
from sluice.router.tls.openssl cimport SSL_CTX

# Owner: its creator, and the connections made with it. Times are seconds since the epoch.
cdef class TlsContext:
    cdef SSL_CTX* context
    cdef readonly bint server
    cdef readonly double expires       # earliest expiry in the router's certificate chain; 0: no certificate
    cdef readonly double valid_from    # validity of the router's own certificate, the first one; 0: no certificate
    cdef readonly double valid_until
    cdef readonly dict list_ends       # expiry of the revocation list by authority
    cdef int lists                     # number of revocation lists
    cdef int use_protocols(self, names) except -1
    cdef int use_ciphers(self, str text) except -1
    cdef int use_groups(self) except -1
    cdef int use_certificates(self, str text) except -1
    cdef int use_key(self, str text, password) except -1
    cdef int trust(self, str text) except -1
    cdef int use_lists(self, str text) except -1
    cdef int use_tickets(self, bytes key, bytes context) except -1
