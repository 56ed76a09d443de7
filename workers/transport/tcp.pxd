"""Transport over a TCP socket."""
from workers.transport.base cimport Transport

cdef class TcpTransport(Transport):
    pass
