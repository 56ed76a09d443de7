"""Transport over a TCP socket."""
from sluice.workers.transport.base cimport Transport

cdef class TcpTransport(Transport):
    pass
