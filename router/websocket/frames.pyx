"""WebSocket frames (RFC 6455, 5).

AMQP over WebSocket is a stream: the boundaries of WebSocket frames and messages have no meaning. So payload is passed
on as it arrives, and long frames are not buffered.
"""
from libc.stdint cimport int32_t, uint8_t, uint64_t
from libc.string cimport memcpy, memmove

cdef enum:
    FINAL = 0x80
    RESERVED = 0x70
    MASKED = 0x80
    SHORT = 125                # greatest payload length that fits into the second octet
    MEDIUM = 126               # the length is in the next two octets
    LONG = 127                 # the length is in the next eight octets

# Greatest size of an AMQP frame. A well-behaved peer sends no longer WebSocket frames.
cdef uint64_t PAYLOAD_MOST = 0xFFFFFFFF


cdef void apply_mask(uint8_t* to, const uint8_t* data, uint64_t size, const uint8_t* mask) noexcept:
    """Mask or unmask octets. `mask`: the four octets of the frame's mask, twice.

    `to` may be before `data`; both may overlap.
    """
    cdef uint64_t word, key
    cdef uint64_t at = 0
    memcpy(&key, mask, 8)
    while at + 8 <= size:
        memcpy(&word, data + at, 8)
        word ^= key
        memcpy(to + at, &word, 8)
        at += 8
    while at < size:
        to[at] = data[at] ^ mask[at & 3]
        at += 1


cdef int32_t write_header(uint8_t* to, uint8_t opcode, uint64_t size, const uint8_t* mask) noexcept:
    """Write the header of an unfragmented message and return its length.

    `mask`: four octets if this side is the client, NULL if it is the server.
    """
    cdef int32_t used = 2
    cdef int32_t i, octets
    to[0] = FINAL | opcode
    if size <= SHORT:
        to[1] = <uint8_t>size
    else:
        octets = 2 if size <= 0xFFFF else 8
        to[1] = MEDIUM if octets == 2 else LONG
        for i in range(octets):
            to[2 + i] = <uint8_t>(size >> 8 * (octets - 1 - i))
        used += octets
    if mask is not NULL:
        to[1] |= MASKED
        memcpy(to + used, mask, 4)
        used += 4
    return used


cdef bint is_sendable(int32_t code) noexcept:
    """Return whether a peer may send a close code (RFC 6455, 7.4)."""
    return 1000 <= code <= 1003 or 1007 <= code <= 1014 or 3000 <= code <= 4999


cdef bint is_text(const uint8_t* data, int32_t size):
    try:
        data[:size].decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


cdef class FrameReader:
    """Decoder of a peer's frames. `masked`: the peer is a client and has to mask its frames; a server must not."""

    def __cinit__(self, bint masked):
        self.masked = masked
        self.ping_size = -1

    cdef Py_ssize_t decode(self, uint8_t* data, size_t size) noexcept:
        """Decode octets of the peer: replace them by their payload, and return the payload's length.

        Octets after an error or a close frame are dropped.
        """
        cdef size_t at = 0
        cdef size_t made = 0
        cdef uint64_t here
        while not self.fault and not self.closed:
            if not self.inside:
                while at < size and not self.begin_frame() and not self.fault:
                    self.header[self.header_size] = data[at]
                    self.header_size += 1
                    at += 1
                if not self.inside and (self.fault or not self.begin_frame()):
                    break
            here = min(self.left, <uint64_t>(size - at))
            if self.opcode & 0x8:
                if self.masked:
                    apply_mask(self.control + self.control_size, data + at, here, self.mask)
                else:
                    memcpy(self.control + self.control_size, data + at, here)
                self.control_size += <int32_t>here
            elif self.masked:
                apply_mask(data + made, data + at, here, self.mask)
                made += here
            else:
                if made != at:
                    memmove(data + made, data + at, here)
                made += here
            at += here
            self.left -= here
            if self.left:
                if self.masked:
                    self.rotate(here)
                break
            self.inside = False
            if self.opcode & 0x8:
                self.end_control()
        return made

    cdef bint begin_frame(self) noexcept:
        """Check the octets of the header received so far. Return True if it is complete and the payload follows."""
        cdef int32_t need = 2
        cdef int32_t i, octets, length
        cdef uint8_t opcode
        if self.header_size < 2:
            return False
        opcode = self.header[0] & 0x0F
        length = self.header[1] & 0x7F
        if self.header_size == 2:          # check these octets before reading more of the header
            if self.header[0] & RESERVED or bool(self.header[1] & MASKED) != self.masked:
                self.fault = PROTOCOL_ERROR
            elif opcode & 0x8:
                if opcode > PONG or length > SHORT or not self.header[0] & FINAL:
                    self.fault = PROTOCOL_ERROR
            elif opcode > BINARY or self.fragmented != (opcode == CONTINUATION):
                self.fault = PROTOCOL_ERROR
            elif opcode == TEXT:
                self.fault = UNSUPPORTED_DATA
            if self.fault:
                return False
        octets = 0 if length <= SHORT else 2 if length == MEDIUM else 8
        need += octets + 4 * self.masked
        if self.header_size < need:
            return False
        self.left = length
        if octets:
            self.left = 0
            for i in range(octets):
                self.left = self.left << 8 | self.header[2 + i]
            # The length must have the shortest form, and its first bit must be 0.
            if self.left <= <uint64_t>(SHORT if octets == 2 else 0xFFFF) or self.left >> 63:
                self.fault = PROTOCOL_ERROR
                return False
            if self.left > PAYLOAD_MOST:
                self.fault = TOO_BIG
                return False
        if self.masked:
            memcpy(self.mask, self.header + 2 + octets, 4)
            memcpy(self.mask + 4, self.header + 2 + octets, 4)
        self.opcode = opcode
        self.final = bool(self.header[0] & FINAL)
        if not opcode & 0x8:
            self.fragmented = not self.final
        self.header_size = 0
        self.control_size = 0
        self.inside = True
        return True

    cdef void rotate(self, uint64_t by) noexcept:
        """Rotate the mask after `by` octets of payload, so that it begins with the next octet."""
        cdef uint8_t[8] before
        cdef int32_t i
        memcpy(before, self.mask, 8)
        for i in range(8):
            self.mask[i] = before[(<uint64_t>i + by) & 3]

    cdef void end_control(self) noexcept:
        """Process a complete control frame."""
        if self.opcode == PING:
            memcpy(self.ping, self.control, self.control_size)
            self.ping_size = self.control_size
        elif self.opcode == CLOSE:
            self.end_close()

    cdef void end_close(self) noexcept:
        cdef int32_t code = NO_CODE
        if self.control_size == 1:
            self.fault = PROTOCOL_ERROR
            return
        if self.control_size:
            code = self.control[0] << 8 | self.control[1]
            if not is_sendable(code):
                self.fault = PROTOCOL_ERROR
                return
            if not is_text(self.control + 2, self.control_size - 2):
                self.fault = INVALID_TEXT
                return
        self.closed = code
