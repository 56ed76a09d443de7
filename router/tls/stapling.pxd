"""Answers of OCSP that servers staple to their certificates."""
from router.tls.openssl cimport SSL_CTX

cdef int ask_for_status(SSL_CTX* context) except -1
