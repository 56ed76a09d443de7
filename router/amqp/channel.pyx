"""Session as its connection knows it: the interface."""


cdef class Channel:
    cdef bint turn(self) except *:
        raise NotImplementedError

    cdef void reopen_window(self) noexcept:
        pass

    cdef void shorten_window(self) noexcept:
        pass

    cdef bint has_waited_too_long(self, uint64_t now) noexcept:
        return False

    cdef void survey(self, Survey* found) noexcept:
        pass

    cdef int frame(self, uint8_t code, const uint8_t* p, const uint8_t* end) except -1:
        raise NotImplementedError

    cdef int flush(self) except -1:
        raise NotImplementedError

    cdef int end(self) except -1:
        raise NotImplementedError

    cdef int lost(self) except -1:
        raise NotImplementedError

    cdef bint end_some_links(self, uint32_t most, uint32_t* ended) except *:
        raise NotImplementedError

    cdef int answered(self, uint16_t number, list items) except -1:
        raise NotImplementedError
