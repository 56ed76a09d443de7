"""Column buffers in the layout of Arrow: text or octets, and bitmaps."""
from libc.stdint cimport int32_t, uint8_t


cdef class ColumnText:
    cdef uint8_t* data
    cdef size_t size
    cdef size_t room
    cdef int32_t* ends
    cdef size_t count
    cdef size_t ends_room
    # Append octets to the current value.
    cdef int add(self, const uint8_t* p, size_t size) except -1
    # Append octets as UTF-8. Invalid sequences become U+FFFD.
    cdef int add_text(self, const uint8_t* p, size_t size) except -1
    cdef int add_bytes(self, bytes octets) except -1
    # End the current value.
    cdef int finish(self) except -1
    cdef tuple buffers(self)


cdef class RowBitmap:
    cdef bytes octets
    cdef uint8_t* data

    cdef inline void set(self, size_t row) noexcept:
        self.data[row >> 3] |= <uint8_t>(1 << (row & 7))
