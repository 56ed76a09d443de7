"""Timestamps of log lines."""
from libc.stdint cimport int64_t

cdef enum:
    DIGITS = 6                         # of the microseconds in the default pattern
    ZERO = 0x30                        # code of the digit 0

cdef class TimestampFormatter:
    cdef str pattern
    cdef object broken_down            # time.gmtime or time.localtime
    cdef int64_t second
    cdef str before                    # text in front of the microseconds of the present second
    cdef str after
    cdef str digits                    # format of the microseconds; None: the pattern has none
    cdef bint usual                    # DIGITS digits with leading zeros, as in the default pattern

    cdef bint prepare(self, int64_t nanoseconds) except -1
    cdef int renew(self, int64_t second) except -1


cdef inline void put_microseconds(char* octets, int64_t nanoseconds) noexcept:
    """Write the DIGITS digits of the microseconds of a time since the epoch."""
    cdef long left = <long>(nanoseconds % 1000000000 // 1000)
    cdef int at
    for at in range(DIGITS):
        octets[DIGITS - 1 - at] = <char>(ZERO + left % 10)
        left //= 10
