"""WebSocket frames (RFC 6455, 5): decoding in place, and encoding."""
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
    NO_CODE = 1005             # stands for a close frame without a code; never sent
    INVALID_TEXT = 1007
    TOO_BIG = 1009

cdef enum:
    HEADER_MOST = 14
    CONTROL_MOST = 125         # octets in the payload of a ping, pong or close

# Decoder of a peer's frames, in place. It stores at most one header and one control frame. Owner: a transport.
cdef class FrameReader:
    cdef readonly bint masked              # the peer is a client, which has to mask its frames
    cdef uint8_t[HEADER_MOST] header       # octets received of the present frame's header
    cdef int32_t header_size
    cdef uint64_t left                     # octets of the present frame's payload not received yet
    cdef uint8_t[8] mask                   # mask from the next octet of the payload on, twice
    cdef uint8_t opcode
    cdef bint final
    cdef bint inside                       # the header of the present frame is complete
    cdef bint fragmented                   # a message has begun and not ended
    cdef uint8_t[CONTROL_MOST] control
    cdef int32_t control_size
    cdef uint8_t[CONTROL_MOST] ping        # payload of the last ping that has no pong yet
    cdef int32_t ping_size                 # -1: no ping waits
    cdef readonly uint16_t fault           # close code for an error of the peer; 0: no error
    cdef readonly uint16_t closed          # close code received from the peer; 0: the peer has not closed
    cdef Py_ssize_t decode(self, uint8_t* data, size_t size) noexcept
    cdef bint begin_frame(self) noexcept
    cdef void end_control(self) noexcept
    cdef void end_close(self) noexcept
    cdef void rotate(self, uint64_t by) noexcept

cdef int32_t write_header(uint8_t* to, uint8_t opcode, uint64_t size, const uint8_t* mask) noexcept
cdef void apply_mask(uint8_t* to, const uint8_t* data, uint64_t size, const uint8_t* mask) noexcept
