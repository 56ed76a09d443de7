"""System call that wakes another worker; everything else is inline in wakeup.pxd."""
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport uint64_t
from posix.unistd cimport write


cdef int wake(int eventfd) noexcept nogil:
    cdef uint64_t one = 1
    while write(eventfd, &one, sizeof(one)) < 0:
        if errno == EAGAIN:  # the counter is at its limit, so it is readable already
            return 0
        if errno != EINTR:
            return -errno
    return 0
