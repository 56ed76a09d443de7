"""Stapled OCSP responses of servers."""
from router.tls.openssl cimport SSL_CTX

cdef int ask_for_status(SSL_CTX* context) except -1
