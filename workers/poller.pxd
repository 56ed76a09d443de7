"""Input of a loop: events of descriptors, and the time."""
from libc.stdint cimport uint32_t, uint64_t

# Interest, and events. The values are those of epoll.
cdef enum:
    READABLE = 1
    WRITABLE = 4
    BROKEN = 8 | 16            # error, hang-up: events only

cdef extern from "sys/epoll.h" nogil:
    ctypedef union epoll_data_t:
        uint64_t u64
    struct epoll_event:
        uint32_t events
        epoll_data_t data

cdef struct PollEvent:
    int fd
    uint32_t events

# The interface, and a poller that has no descriptors and whose clock stands still. Owner: its loop.
cdef class Poller:
    cdef readonly bint precise             # the system waits for less than a millisecond, as far as is known
    cdef int add(self, int fd, uint32_t interest) except -1
    # Watch an eventfd that nobody reads: each signal is an event.
    cdef int add_signal(self, int fd) except -1
    # Interest 0: only BROKEN is told, and once. Who cannot deal with it yet asks again when it can.
    cdef int change(self, int fd, uint32_t interest) except -1
    cdef int remove(self, int fd) except -1
    # Wait for events, at most for some ms, -1: without limit. Returns their number; -1: see errno (EINTR: a signal, or
    # this process was stopped).
    cdef int wait(self, PollEvent* events, int most, int timeout) except -2
    # The same for less than a millisecond, where `precise`.
    cdef int wait_ns(self, PollEvent* events, int most, uint64_t ns) except -2
    cdef uint64_t now(self) noexcept       # ns of the monotonic clock

# Linux: epoll and CLOCK_MONOTONIC.
cdef class EpollPoller(Poller):
    cdef int epoll
    cdef int control(self, int op, int fd, uint32_t interest) except -1
    cdef int found(self, PollEvent* events, const epoll_event* waiting, int count) noexcept
