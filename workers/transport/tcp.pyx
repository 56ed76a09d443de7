"""Transport over a TCP socket: octets pass unchanged."""
from libc.stdint cimport uint8_t

cdef extern from "sys/socket.h" nogil:
    ssize_t recv(int fd, void* data, size_t size, int flags)
    ssize_t send(int fd, const void* data, size_t size, int flags)
    int MSG_DONTWAIT, MSG_NOSIGNAL


cdef class TcpTransport(Transport):
    """Transport for AMQP directly over TCP."""

    def __cinit__(self, *args, **kwargs):
        self.plain = True
        self.established = True

    cdef ssize_t read_some(self, uint8_t* data, size_t size) except? -2:
        return recv(self.fd, data, size, MSG_DONTWAIT)

    cdef ssize_t write_some(self, const uint8_t* data, size_t size) except? -2:
        return send(self.fd, data, size, MSG_DONTWAIT | MSG_NOSIGNAL)
