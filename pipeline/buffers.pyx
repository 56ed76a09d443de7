"""Column buffers in the layout of Arrow: text or octets, and bitmaps. Needs no pyarrow."""
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_Free, PyMem_Malloc, PyMem_Realloc
from libc.limits cimport INT_MAX
from libc.stdint cimport int32_t, uint8_t
from libc.string cimport memcpy, memset


cdef class ColumnText:
    """Octets of a column, initially with room for `room`, and the end offset of each value."""
    def __cinit__(self, size_t rows, size_t room=0):
        self.ends_room = rows + 1
        self.ends = <int32_t*>PyMem_Malloc(self.ends_room * sizeof(int32_t))
        self.room = room or 64 + 16 * rows
        self.data = <uint8_t*>PyMem_Malloc(self.room)
        if self.ends is NULL or self.data is NULL:
            raise MemoryError()
        self.ends[0] = 0

    def __dealloc__(self):
        PyMem_Free(self.data)
        PyMem_Free(self.ends)

    cdef int add(self, const uint8_t* p, size_t size) except -1:
        """Append octets to the current value. Raises OverflowError if the column exceeds 2 GiB."""
        cdef size_t room
        cdef void* grown
        if size > <size_t>INT_MAX or self.size + size > <size_t>INT_MAX:
            raise OverflowError("more than 2 GiB in a column of one batch")
        if self.room - self.size < size:
            room = 2 * self.room + size
            grown = PyMem_Realloc(self.data, room)
            if grown is NULL:
                raise MemoryError()
            self.data = <uint8_t*>grown
            self.room = room
        if size:
            memcpy(self.data + self.size, p, size)
        self.size += size
        return 0

    cdef int finish(self) except -1:
        """End the current value."""
        cdef void* grown
        self.count += 1
        if self.count >= self.ends_room:
            grown = PyMem_Realloc(self.ends, 2 * self.ends_room * sizeof(int32_t))
            if grown is NULL:
                raise MemoryError()
            self.ends = <int32_t*>grown
            self.ends_room *= 2
        self.ends[self.count] = <int32_t>self.size
        return 0

    cdef int add_text(self, const uint8_t* p, size_t size) except -1:
        """Append octets as UTF-8. Invalid sequences become U+FFFD."""
        cdef size_t at = 0
        cdef bytes clean
        while at < size and p[at] < 0x80:
            at += 1
        if at == size:
            return self.add(p, size)
        clean = PyBytes_FromStringAndSize(<const char*>p, size).decode("utf-8", "replace").encode()
        return self.add(<const uint8_t*>clean, len(clean))

    cdef int add_bytes(self, bytes octets) except -1:
        return self.add(<const uint8_t*>octets, len(octets))

    cdef tuple buffers(self):
        return (PyBytes_FromStringAndSize(<const char*>self.ends, (self.count + 1) * sizeof(int32_t)),
                PyBytes_FromStringAndSize(<const char*>self.data, self.size))


cdef class RowBitmap:
    """Bitmap of one bit for each row, initially all zero."""
    def __cinit__(self, size_t rows):
        self.octets = PyBytes_FromStringAndSize(NULL, (rows + 7) // 8)
        self.data = <uint8_t*>self.octets
        memset(self.data, 0, (rows + 7) // 8)
