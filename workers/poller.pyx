"""Event and clock source of a loop. Tests use another poller than epoll."""
from libc.errno cimport ENOSYS, errno

import os

cdef extern from "sys/epoll.h" nogil:
    int epoll_create1(int flags)
    int epoll_ctl(int epoll, int op, int fd, epoll_event* event)
    int epoll_wait(int epoll, epoll_event* events, int most, int timeout)
    enum:
        EPOLL_CTL_ADD
        EPOLL_CTL_MOD
        EPOLL_CTL_DEL
        EPOLL_CLOEXEC
        EPOLLET

cdef extern from "unistd.h" nogil:
    int close_descriptor "close"(int fd)

cdef extern from "time.h" nogil:
    struct timespec:
        long tv_sec
        long tv_nsec
    int clock_gettime(int clock, timespec* out)
    int CLOCK_MONOTONIC

cdef extern from *:
    """
    #include <sys/syscall.h>
    #include <unistd.h>
    /* Since Linux 5.11. The number is defined here for C libraries that are older. */
    #ifndef SYS_epoll_pwait2
    #define SYS_epoll_pwait2 441
    #endif
    #define sluice_epoll_wait_ns(epoll, events, most, limit) \
        ((int)syscall(SYS_epoll_pwait2, (epoll), (events), (most), (limit), NULL, 0))
    """
    int epoll_wait_ns "sluice_epoll_wait_ns"(int epoll, epoll_event* events, int most, const timespec* limit) nogil

cdef enum:
    EVENTS_PER_WAIT = 256        # most events of one wait, whatever the loop asks for


cdef class Poller:
    """Interface of a poller."""

    cdef int add(self, int fd, uint32_t interest) except -1:
        """Watch a descriptor."""
        return 0

    cdef int add_signal(self, int fd) except -1:
        """Watch an eventfd that is never read."""
        return 0

    cdef int change(self, int fd, uint32_t interest) except -1:
        """Change the events of interest of a descriptor."""
        return 0

    cdef int remove(self, int fd) except -1:
        """Stop watching a descriptor. To close it is not enough while another process has the same socket."""
        return 0

    cdef int wait(self, PollEvent* events, int most, int timeout) except -2:
        return 0

    cdef int wait_ns(self, PollEvent* events, int most, uint64_t ns) except -2:
        raise NotImplementedError

    cdef uint64_t now(self) noexcept:
        return 0


cdef class EpollPoller(Poller):
    """Poller with level-triggered epoll. A descriptor without interest is reported as broken once, not at each wait.
    """

    def __cinit__(self):
        self.epoll = epoll_create1(EPOLL_CLOEXEC)
        if self.epoll < 0:
            raise OSError(errno, os.strerror(errno))
        self.precise = True

    def __dealloc__(self):
        if self.epoll >= 0:
            close_descriptor(self.epoll)

    cdef int control(self, int op, int fd, uint32_t interest) except -1:
        cdef epoll_event event
        event.events = interest if interest else EPOLLET
        event.data.u64 = fd
        if epoll_ctl(self.epoll, op, fd, &event) < 0:
            raise OSError(errno, os.strerror(errno))
        return 0

    cdef int add(self, int fd, uint32_t interest) except -1:
        return self.control(EPOLL_CTL_ADD, fd, interest)

    cdef int add_signal(self, int fd) except -1:
        return self.control(EPOLL_CTL_ADD, fd, READABLE | <uint32_t>EPOLLET)

    cdef int change(self, int fd, uint32_t interest) except -1:
        return self.control(EPOLL_CTL_MOD, fd, interest)

    cdef int remove(self, int fd) except -1:
        return self.control(EPOLL_CTL_DEL, fd, 0)

    cdef int wait(self, PollEvent* events, int most, int timeout) except -2:
        cdef epoll_event[EVENTS_PER_WAIT] found
        cdef int count
        if most > EVENTS_PER_WAIT:
            most = EVENTS_PER_WAIT
        with nogil:
            count = epoll_wait(self.epoll, found, most, timeout)
        return self.found(events, found, count)

    cdef int wait_ns(self, PollEvent* events, int most, uint64_t ns) except -2:
        cdef epoll_event[EVENTS_PER_WAIT] found
        cdef timespec limit
        cdef int count
        if most > EVENTS_PER_WAIT:
            most = EVENTS_PER_WAIT
        limit.tv_sec = ns // 1000000000
        limit.tv_nsec = ns % 1000000000
        with nogil:
            count = epoll_wait_ns(self.epoll, found, most, &limit)
        if count < 0 and errno == ENOSYS:
            self.precise = False
            return self.wait(events, most, <int>(ns // 1000000) + 1)
        return self.found(events, found, count)

    cdef int found(self, PollEvent* events, const epoll_event* waiting, int count) noexcept:
        cdef int i
        for i in range(count):
            events[i].fd = <int>waiting[i].data.u64
            events[i].events = waiting[i].events
        return count

    cdef uint64_t now(self) noexcept:
        cdef timespec t
        clock_gettime(CLOCK_MONOTONIC, &t)
        return <uint64_t>t.tv_sec * 1000000000 + t.tv_nsec
