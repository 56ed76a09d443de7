"""WebSocket frames, read in place and written (RFC 6455, 5)."""
from libc.stdint cimport int32_t, uint8_t, uint16_t, uint64_t

cdef enum Opcode:
    CONTINUATION = 0x0
    TEXT = 0x1
    BINARY = 0x2
    CLOSE = 0x8
    PING = 0x9
    PONG = 0xA

cdef enum CloseCode:
    NORMAL = 1000
    PROTOCOL_ERROR = 1002
    UNSUPPORTED_DATA = 1003
    NO_CODE = 1005             # never on the wire: a close without a code
    INVALID_TEXT = 1007
    TOO_BIG = 1009

cdef enum:
    HEADER_MOST = 14
    CONTROL_MOST = 125         # octets that a ping, a pong or a close may have

# What a peer sends, decoded where it lies. Holds a header and one control frame at most. Owner: a transport.
cdef class FrameReader:
    cdef readonly bint masked              # the peer is a client, which has to mask
    cdef uint8_t[HEADER_MOST] header       # of the frame that comes, as far as it is here
    cdef int32_t header_size
    cdef uint64_t left                     # octets of its payload that have not come
    cdef uint8_t[8] mask                   # twice the four octets, from the next octet of the payload on
    cdef uint8_t opcode
    cdef bint final
    cdef bint inside                       # within a frame: its header is complete
    cdef bint fragmented                   # a message has begun and not ended
    cdef uint8_t[CONTROL_MOST] control
    cdef int32_t control_size
    cdef uint8_t[CONTROL_MOST] ping        # the last one that is to be answered
    cdef int32_t ping_size                 # -1: none is
    cdef readonly uint16_t fault           # the close code that the peer's fault demands; 0: none
    cdef readonly uint16_t closed          # the close code that the peer has sent; 0: it has not closed
    cdef Py_ssize_t decode(self, uint8_t* data, size_t size) noexcept
    cdef bint begin_frame(self) noexcept
    cdef void end_control(self) noexcept
    cdef void end_close(self) noexcept
    cdef void rotate(self, uint64_t by) noexcept

cdef int32_t write_header(uint8_t* to, uint8_t opcode, uint64_t size, const uint8_t* mask) noexcept
cdef void apply_mask(uint8_t* to, const uint8_t* data, uint64_t size, const uint8_t* mask) noexcept
