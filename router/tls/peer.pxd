"""Negotiated parameters of a TLS connection, and identity of its peer."""
from sluice.router.tls.openssl cimport SSL, SSL_CTX, X509_NAME

cdef object negotiated_tls(SSL* ssl)
cdef str full_name(const X509_NAME* name)
cdef list attributes_of(const X509_NAME* name)
cdef bytes channel_binding(SSL* ssl)
cdef bint is_certificate_expired(SSL* ssl)
cdef bint is_chain_revoked(SSL* ssl, SSL_CTX* context) except -1
