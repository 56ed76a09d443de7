"""Big-endian integers, and a growing write buffer."""
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t


cdef inline uint16_t read16(const uint8_t* p) noexcept nogil:
    return (<uint16_t>p[0] << 8) | p[1]


cdef inline uint32_t read32(const uint8_t* p) noexcept nogil:
    return (<uint32_t>p[0] << 24) | (<uint32_t>p[1] << 16) | (<uint32_t>p[2] << 8) | p[3]


cdef inline uint64_t read64(const uint8_t* p) noexcept nogil:
    return (<uint64_t>read32(p) << 32) | read32(p + 4)


cdef inline void write16(uint8_t* p, uint16_t v) noexcept nogil:
    p[0] = <uint8_t>(v >> 8)
    p[1] = <uint8_t>v


cdef inline void write32(uint8_t* p, uint32_t v) noexcept nogil:
    p[0] = <uint8_t>(v >> 24)
    p[1] = <uint8_t>(v >> 16)
    p[2] = <uint8_t>(v >> 8)
    p[3] = <uint8_t>v


# Queue of octets to send. Owner: the connection that contains it.
cdef struct WriteBuffer:
    uint8_t* data
    size_t start               # first octet not sent yet
    size_t end                 # position after the last octet written
    size_t room                # number of octets allocated

cdef enum:
    WRITE_BUFFER_FIRST = 8192  # octets of a new buffer; most connections write less in a wake
    # Octets of unused buffers that this process keeps for reuse: returning them to the system costs a page fault for
    # every 4 KiB written afterwards. Large buffers: see block.pxd.
    WRITE_BUFFERS_KEPT = 4194304


cdef inline size_t buffer_used(WriteBuffer* b) noexcept nogil:
    return b.end - b.start


cdef uint8_t* buffer_grow(WriteBuffer* b, size_t n) except NULL


cdef inline uint8_t* buffer_room(WriteBuffer* b, size_t n) except NULL:
    """Return b.data + b.end with at least n writable octets behind it. The caller advances b.end. Raises MemoryError.
    """
    if b.room - b.end < n:
        return buffer_grow(b, n)
    return b.data + b.end


# Drop the content and give the memory back: an idle connection holds none.
cdef void buffer_release(WriteBuffer* b) noexcept
cdef void buffers_drop() noexcept
