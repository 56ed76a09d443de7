"""Stapled OCSP responses of servers."""
from sluice.router.tls.openssl cimport SSL_CTX

cdef int request_ocsp_status(SSL_CTX* context) except -1
