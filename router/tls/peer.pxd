"""What a TLS connection has negotiated, and who the peer is."""
from router.tls.openssl cimport SSL

cdef object negotiated(SSL* ssl)
cdef bint expired(SSL* ssl)
