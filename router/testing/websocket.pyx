"""Access of tests to the decoder and the encoder of WebSocket frames."""
from libc.stdint cimport uint8_t
from libc.string cimport memcpy

from sluice.router.websocket.frames cimport HEADER_MOST, FrameReader, apply_mask, write_header


cdef class WebSocketReader:
    """Decoder of frames. Each input is in memory of exactly its size, so a sanitizer detects any access beyond it."""
    cdef FrameReader reader

    def __cinit__(self, bint masked):
        self.reader = FrameReader(masked)

    def feed(self, bytes octets not None):
        """Return the payload in these octets."""
        cdef bytearray room = bytearray(octets)
        cdef Py_ssize_t made = self.reader.decode(<uint8_t*><char*>room, len(room))
        return bytes(room[:made])

    def take_ping(self):
        """Return the payload of the ping to be answered and clear it, or return None."""
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
    """Return a frame encoded by the router's functions."""
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
