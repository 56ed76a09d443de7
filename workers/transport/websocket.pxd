"""Transport over WebSocket."""
from libc.stdint cimport uint8_t, uint64_t

from sluice.router.websocket.frames cimport FrameReader
from sluice.workers.transport.base cimport Handshake, Transport

cdef class WebSocketTransport(Transport):
    cdef Transport below                   # TCP or TLS transport; it only reads and writes the descriptor
    cdef FrameReader reader
    cdef bint client                       # the local end is the client
    cdef bint asked                        # the request has been sent
    cdef bint refused                      # the answer being sent refuses the connection
    cdef bint secured                      # the handshake of `below` is done
    cdef bint encrypted                    # a peer without TLS gets no answer
    cdef object side                       # ServerSide or ClientSide until the handshake; None after it
    cdef bytearray head                    # HTTP head, as far as it was received
    cdef bytes early                       # WebSocket octets that were received with the head
    cdef size_t early_at
    cdef uint8_t* left                     # encoded octets that the socket did not take
    cdef size_t left_at
    cdef size_t left_size
    cdef int page                          # descriptor of the supervisor's answer to a request for a page; -1: none
    cdef uint64_t page_due                 # deadline in ms for the client to have taken the page
    cdef Handshake secure(self) except *
    cdef Handshake ask(self) except *
    cdef Handshake take_head(self, Py_ssize_t size) except *
    cdef Handshake forward_page(self) except *
    cdef bint put(self, const uint8_t* data, size_t size) except -1
    cdef bint drain(self) except -1
    cdef bint pong(self) except -1
    cdef size_t frame(self, uint8_t opcode, const uint8_t* data, size_t size) except 0
    cdef ssize_t raw(self, uint8_t* data, size_t size) except? -2
