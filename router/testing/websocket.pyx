"""Access of tests to WebSocket frames."""
from libc.stdint cimport uint8_t
from libc.string cimport memcpy

from router.websocket.frames cimport HEADER_MOST, FrameReader, apply_mask, write_header


cdef class Reader:
    """Decodes what it is fed, in memory of exactly that size, so that a sanitizer sees each octet too many."""
    cdef FrameReader reader

    def __cinit__(self, bint masked):
        self.reader = FrameReader(masked)

    def feed(self, bytes octets not None):
        """The payload of these octets."""
        cdef bytearray room = bytearray(octets)
        cdef Py_ssize_t made = self.reader.decode(<uint8_t*><char*>room, len(room))
        return bytes(room[:made])

    def take_ping(self):
        """The payload of the ping that is to be answered; None: none is."""
        if self.reader.ping_size < 0:
            return None
        found = (<const uint8_t*>self.reader.ping)[:self.reader.ping_size]
        self.reader.ping_size = -1
        return found

    @property
    def fault(self):
        return self.reader.fault

    @property
    def closed(self):
        return self.reader.closed


def frame(int opcode, bytes payload not None, bytes mask=None):
    """A frame, as the router makes it."""
    cdef uint8_t[HEADER_MOST] header
    cdef uint8_t[8] keys
    cdef bytearray room = bytearray(len(payload))
    if mask is not None:
        memcpy(keys, <const uint8_t*>mask, 4)
        memcpy(keys + 4, <const uint8_t*>mask, 4)
    size = write_header(header, opcode, len(payload), NULL if mask is None else keys)
    if mask is None:
        return (<const uint8_t*>header)[:size] + payload
    apply_mask(<uint8_t*><char*>room, <const uint8_t*>payload, len(payload), keys)
    return (<const uint8_t*>header)[:size] + bytes(room)
