"""The transport over WebSocket."""
from libc.stdint cimport uint8_t, uint64_t

from router.websocket.frames cimport FrameReader
from workers.transport.base cimport Handshake, Transport

cdef class WebSocketTransport(Transport):
    cdef Transport below                   # TCP or TLS: reads and writes the descriptor, and nothing else
    cdef FrameReader reader
    cdef bint client                       # we have asked for it
    cdef bint asked                        # the request has been sent
    cdef bint said_close
    cdef bint refused                      # an answer is on its way out that ends the connection
    cdef bint secured                      # what is below has had its handshake
    cdef bint encrypted                    # nothing is said to a peer that speaks without TLS
    cdef object side                       # of the handshake: ServerSide or ClientSide; None: it is done
    cdef bytearray head                    # HTTP, as far as it is here
    cdef bytes early                       # octets of WebSocket that came with the head
    cdef size_t early_at
    cdef uint8_t* left                     # encoded octets that the socket did not take
    cdef size_t left_at
    cdef size_t left_size
    cdef int page                          # the supervisor's answer to a request for a page; -1: there is none
    cdef uint64_t page_due                 # ms: when the client must have taken it
    cdef Handshake secure(self) except *
    cdef Handshake ask(self) except *
    cdef Handshake take_head(self, Py_ssize_t size) except *
    cdef Handshake pass_page(self) except *
    cdef bint put(self, const uint8_t* data, size_t size) except -1
    cdef bint drain(self) except -1
    cdef bint pong(self) except -1
    cdef size_t frame(self, uint8_t opcode, const uint8_t* data, size_t size) except 0
    cdef ssize_t raw(self, uint8_t* data, size_t size) except? -2
