"""Event and clock source of a loop."""
from libc.stdint cimport uint32_t, uint64_t

# Interest in events, and events. The values are those of epoll.
cdef enum:
    READABLE = 1
    WRITABLE = 4
    BROKEN = 8 | 16            # error or hang-up; reported without interest

cdef extern from "sys/epoll.h" nogil:
    ctypedef union epoll_data_t:
        uint64_t u64
    struct epoll_event:
        uint32_t events
        epoll_data_t data

cdef struct PollEvent:
    int fd
    uint32_t events

# Interface of a poller, and a poller without descriptors whose clock does not advance. Owner: its loop.
cdef class Poller:
    cdef readonly bint precise             # waits shorter than a millisecond are supported, as far as is known
    cdef int add(self, int fd, uint32_t interest) except -1
    # Watch an eventfd that is never read: each signal is an event.
    cdef int add_signal(self, int fd) except -1
    # Set the events of interest. With interest 0 only BROKEN is reported, and only once; a caller that cannot handle
    # it yet sets its interest again when it can.
    cdef int change(self, int fd, uint32_t interest) except -1
    cdef int remove(self, int fd) except -1
    # Wait for events for at most `timeout` ms; -1: no limit. Return their number; -1: see errno (EINTR: a signal
    # arrived, or this process was stopped).
    cdef int wait(self, PollEvent* events, int most, int timeout) except -2
    # Wait for at most `ns`, which is less than a millisecond. Only where `precise`.
    cdef int wait_ns(self, PollEvent* events, int most, uint64_t ns) except -2
    cdef uint64_t now(self) noexcept       # ns of the monotonic clock

# Poller with epoll and CLOCK_MONOTONIC of Linux.
cdef class EpollPoller(Poller):
    cdef int epoll
    cdef int control(self, int op, int fd, uint32_t interest) except -1
    cdef int found(self, PollEvent* events, const epoll_event* waiting, int count) noexcept
