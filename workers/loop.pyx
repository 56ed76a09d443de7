"""The event loop of a worker, and the transports of its connections.

One wake: sockets are read, then rings; connections that waited go on; every connection that has something to say
sends it in one write; ports wake their peers. What costs an interpreter call happens per descriptor event of the
control plane, per timer and per connection, never per delivery.
"""
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy

from router.amqp.connection cimport PAUSE_DRAIN
from router.amqp.buffer cimport buffer_release, buffer_used, buffers_drop
from router.amqp.counters cimport totals, use_worker_slot
from router.amqp.delivery cimport pools_drop
from router.amqp.message cimport chunks_drop, stored_octets
from router.ipc.layout cimport Region
from router.ipc.ring cimport ring_empty
from router.ipc.signal cimport clear_sleeping, set_sleeping
from router.routing.port cimport WorkerPort

import heapq
import os

cdef extern from "sys/socket.h" nogil:
    ssize_t recv(int fd, void* data, size_t size, int flags)
    ssize_t send(int fd, const void* data, size_t size, int flags)
    int MSG_DONTWAIT, MSG_NOSIGNAL

cdef extern from "sys/epoll.h" nogil:
    ctypedef union epoll_data_t:
        uint64_t u64
    struct epoll_event:
        uint32_t events
        epoll_data_t data
    int epoll_create1(int flags)
    int epoll_ctl(int epoll, int op, int fd, epoll_event* event)
    int epoll_wait(int epoll, epoll_event* events, int most, int timeout)
    enum:
        EPOLLIN
        EPOLLOUT
        EPOLLERR
        EPOLLHUP
        EPOLL_CTL_ADD
        EPOLL_CTL_MOD
        EPOLL_CTL_DEL
        EPOLL_CLOEXEC

cdef extern from "unistd.h" nogil:
    int close_descriptor "close"(int fd)

cdef extern from "time.h" nogil:
    struct timespec:
        long tv_sec
        long tv_nsec
    int clock_gettime(int clock, timespec* out)
    int CLOCK_MONOTONIC

cdef extern from "malloc.h" nogil:
    int mallopt(int param, int value)
    int malloc_trim(size_t kept)
    int M_TRIM_THRESHOLD
    int M_MMAP_THRESHOLD

cdef enum:
    ROOM_OCTETS = 98304        # read at once from one socket: a wake of one connection is bounded by it
    EVENTS_A_WAKE = 256
    WRITES_A_TURN = 2          # full write buffers that one connection may send in one wake
    MALLOC_THRESHOLD = 1048576  # a block this large goes back to the system when it is freed
    TRIM_THRESHOLD = 8388608   # free memory that the heap keeps: growing and shrinking it costs page faults
    # A peer that sends but does not read what it is told is not read either until it does; far more than what a client
    # that looks at its socket now and then leaves there.
    UNREAD_OCTETS = 4194304
    LINGER_MS = 5000           # what a peer that does not read may keep of a connection that has ended
    QUIET_MS = 5000            # after the last use of much memory, until what is free goes back to the system
    MUCH_OCTETS = 1048576
    # A wake that takes longer ends before all sockets had their turn: what it has to say leaves, and who has come
    # meanwhile is seen.
    LONG_WAKE_NS = 20000000
    # A timer that is so late says that this process did not run: it was stopped, frozen, or starved of its core.
    HELD_UP_MS = 500


cdef class Transport:
    """A connection over a TCP socket. Owner: the loop."""

    def __cinit__(self, Loop loop not None, int fd, Connection connection not None, *args, **kwargs):
        self.loop = loop
        self.fd = fd
        self.connection = connection
        connection.owner = self
        self.interest = EPOLLIN

    def __dealloc__(self):
        free(self.rest)

    cdef ssize_t read_some(self, uint8_t* data, size_t size) except? -2:
        """Octets read; 0: end of stream; -1: none now (errno EAGAIN) or an error."""
        return recv(self.fd, data, size, MSG_DONTWAIT)

    cdef ssize_t write_some(self, const uint8_t* data, size_t size) except? -2:
        return send(self.fd, data, size, MSG_DONTWAIT | MSG_NOSIGNAL)

    cdef int readable(self) except -1:
        cdef ssize_t got
        cdef Loop loop = self.loop
        if self.connection.paused:
            return self.watch()        # it was paused behind our back: its socket is not to wake us again and again
        if self.rest_size + 65536 > loop.room_size:
            loop.more_room(2 * (self.rest_size + 65536))
        got = self.read_some(loop.room + self.rest_size, loop.room_size - self.rest_size)
        if got > 0:
            if self.rest_size:
                memcpy(loop.room, self.rest, self.rest_size)
            return self.feed(self.rest_size + got)
        if got == 0 or (errno != EAGAIN and errno != EINTR):
            return self.lost()
        return 0

    cdef int feed(self, size_t size) except -1:
        """`size` octets are in the loop's room: give them to the connection, keep what it does not take."""
        cdef Py_ssize_t taken = self.connection.receive(self.loop.room, size)
        cdef size_t left = size - taken
        cdef uint8_t* rest
        if left == 0:
            if self.rest is not NULL:
                free(self.rest)
                self.rest = NULL
        else:
            if self.rest is NULL or left > self.rest_size:
                rest = <uint8_t*>realloc(self.rest, left)
                if rest is NULL:
                    raise MemoryError(f"{left} octets of a frame")
                self.rest = rest
            memcpy(self.rest, self.loop.room + taken, left)
        self.rest_size = left
        self.loop.fed.append(self.connection)
        if self.connection.paused:
            self.watch()
        return 0

    def go_on(self):
        """The connection was paused and goes on with what was kept."""
        if self.fd < 0 or self.connection.paused or self.connection.finished:
            return
        if self.rest_size:
            if self.rest_size > self.loop.room_size:
                self.loop.more_room(2 * self.rest_size)
            memcpy(self.loop.room, self.rest, self.rest_size)
            self.feed(self.rest_size)
        self.watch()

    cdef int flush(self) except -1:
        """Send what the connection has to say, as far as the socket takes it."""
        cdef Connection connection = self.connection
        cdef ssize_t sent
        cdef bint wrote = False
        connection.dirty = False
        if self.fd < 0:
            return 0
        for _ in range(WRITES_A_TURN):
            if not connection.finished:
                connection.prepare()
            if connection.silent or not buffer_used(&connection.out):
                break
            if connection.traced:
                connection.show_sent()
            sent = self.write_some(connection.out.data + connection.out.start, buffer_used(&connection.out))
            if sent < 0:
                if errno == EAGAIN or errno == EINTR:
                    break
                return self.lost()
            wrote = True
            connection.sent(sent)
            if buffer_used(&connection.out):
                break
            connection.out.start = connection.out.end = 0
            if not connection.wants_turn():
                break
        if wrote:
            connection.last_sent = self.loop.scheduler.now
        if connection.finished and (connection.silent or not buffer_used(&connection.out)):
            return self.close()
        if connection.finished and not self.lingers:
            self.lingers = True
            self.loop.call_at(self.loop.scheduler.now + LINGER_MS, self.give_up, connection)
        if not buffer_used(&connection.out):
            buffer_release(&connection.out)
            if connection.wants_turn():
                connection.mark_dirty()
        return self.watch()

    def give_up(self):
        """The peer did not read the end of a connection in time, unless it did while this process was held up."""
        if self.fd >= 0:
            self.flush()
        self.close()

    cdef int look(self) except -1:
        """Read what has come, which no event may have told yet: the peer is about to be called silent."""
        if buffer_used(&self.connection.out) >= UNREAD_OCTETS:
            self.flush()               # it may have read since
        if self.fd >= 0 and buffer_used(&self.connection.out) < UNREAD_OCTETS:
            return self.readable()
        return 0

    cdef int watch(self) except -1:
        """Ask epoll for what is of interest now."""
        cdef epoll_event event
        cdef uint32_t interest = 0
        if self.fd < 0:
            return 0
        if not self.connection.paused and buffer_used(&self.connection.out) < UNREAD_OCTETS:
            interest = EPOLLIN
        if buffer_used(&self.connection.out):
            interest |= EPOLLOUT
        if interest == self.interest:
            return 0
        self.interest = interest
        event.events = interest
        event.data.u64 = self.fd
        if epoll_ctl(self.loop.epoll, EPOLL_CTL_MOD, self.fd, &event) < 0:
            raise OSError(errno, os.strerror(errno))
        return 0

    cdef int lost(self) except -1:
        """The peer's end of the socket is gone."""
        self.connection.transport_lost()
        return self.close()

    cdef int close(self) except -1:
        if self.fd >= 0:
            self.loop.transports[self.fd] = None
            os.close(self.fd)
            self.fd = -1
            buffer_release(&self.connection.out)
            free(self.rest)
            self.rest = NULL
            self.rest_size = 0
            self.connection.owner = None
            self.connection.release()
            # A timer may hold this object for a while, and nothing behind it.
            self.connection = None
            totals.connections -= 1
            self.loop.used_memory()
        return 0

    cdef int ended_by(self, object fault) except -1:
        """The net of the loop: what was raised on the way between socket and connection ends both, without a word."""
        if self.connection is None:
            raise fault
        self.connection.drop_by(fault)
        return self.close()

    def schedule(self):
        """Tick the connection when it wants that."""
        self.loop.schedule_tick(self)


cdef class Loop:
    """The event loop. Owner: the worker process."""

    def __cinit__(self, Region region not None, int worker):
        self.scheduler = Scheduler()
        self.slot = region.worker_slot(worker)
        self.slot_owner = region
        use_worker_slot(self.slot)
        self.transports = []
        self.ports = []
        self.timers = []
        self.fed = []
        self.last_fd = -1
        self.epoll = epoll_create1(EPOLL_CLOEXEC)
        if self.epoll < 0:
            raise OSError(errno, os.strerror(errno))
        mallopt(M_MMAP_THRESHOLD, MALLOC_THRESHOLD)
        mallopt(M_TRIM_THRESHOLD, TRIM_THRESHOLD)
        self.more_room(ROOM_OCTETS)
        self.clock()

    def __dealloc__(self):
        free(self.room)
        if self.epoll >= 0:
            close_descriptor(self.epoll)

    def more_room(self, size_t size):
        """Sockets are read into one piece of memory, at least as large as the largest frame that came."""
        cdef uint8_t* room = <uint8_t*>malloc(size)
        if room is NULL:
            raise MemoryError(f"{size} octets to read into")
        free(self.room)
        self.room = room
        self.room_size = size
        if size > ROOM_OCTETS:
            self.used_memory()

    cpdef void used_memory(self):
        """Much was used, or something larger has ended: soon there may be something to give back."""
        self.used_at = self.scheduler.now
        if not self.trims:
            self.trims = True
            self.call_at(self.used_at + QUIET_MS, self.trim)

    def trim(self):
        """Give memory that nobody uses back to the system, once it is quiet."""
        if self.scheduler.now < self.used_at + QUIET_MS:
            self.call_at(self.used_at + QUIET_MS, self.trim)
            return
        self.trims = False
        if self.room_size > ROOM_OCTETS:
            self.more_room(ROOM_OCTETS)
        chunks_drop()
        buffers_drop()
        pools_drop()
        malloc_trim(0)

    def use_ports(self, ports):
        """The ports to other workers."""
        self.ports = [port for port in ports if port is not None]

    cdef void clock(self) noexcept:
        """Look at the clock: once a wake, and before further sockets and rings of the same wake."""
        cdef timespec t
        clock_gettime(CLOCK_MONOTONIC, &t)
        self.slot.heartbeat = <uint64_t>t.tv_sec * 1000000000 + t.tv_nsec
        self.scheduler.set_clock(self.slot.heartbeat)

    cpdef void beat(self) noexcept:
        """This worker is at work, as the supervisor sees: between the steps of a wake that may take long."""
        cdef timespec t
        clock_gettime(CLOCK_MONOTONIC, &t)
        self.slot.heartbeat = <uint64_t>t.tv_sec * 1000000000 + t.tv_nsec

    # -- descriptors --------------------------------------------------------------------------------------------------

    def add(self, int fd, what):
        """Watch a descriptor for reading: a Transport, or a callable without arguments."""
        cdef epoll_event event
        while len(self.transports) <= fd:
            self.transports.append(None)
        self.transports[fd] = what
        event.events = EPOLLIN
        event.data.u64 = fd
        if epoll_ctl(self.epoll, EPOLL_CTL_ADD, fd, &event) < 0:
            raise OSError(errno, os.strerror(errno))
        if isinstance(what, Transport):
            totals.connections += 1

    def remove(self, int fd):
        """Stop watching (a callable's descriptor; transports close themselves)."""
        cdef epoll_event event
        epoll_ctl(self.epoll, EPOLL_CTL_DEL, fd, &event)
        self.transports[fd] = None

    def count_fault(self):
        """A fault of the router was reported."""
        totals.checks_failed += 1

    def close_descriptor(self, int fd):
        """Close a descriptor that never became a transport."""
        os.close(fd)

    def clear_eventfd(self, int fd):
        """Our eventfd was signalled: it says only that rings have something."""
        os.eventfd_read(fd)

    def stop_reading(self):
        """From now on clients are only written to (the worker is about to end)."""
        cdef Transport transport
        for transport in [t for t in self.transports if isinstance(t, Transport)]:
            transport.connection.pause(PAUSE_DRAIN)
            transport.watch()

    def idle(self):
        """Nothing is left to be written, to sockets or to other workers."""
        cdef Transport transport
        cdef WorkerPort port
        for transport in [t for t in self.transports if isinstance(t, Transport)]:
            if buffer_used(&transport.connection.out):
                return False
        for port in self.ports:
            if port.alive and port.stuck():
                return False
        return self.rings_empty()

    # -- timers -------------------------------------------------------------------------------------------------------

    def call_at(self, uint64_t due, what, connection=None):
        """Call `what` at `due` (ms of the scheduler's clock). connection: whose it is; what is raised then ends that
        one, and the worker when there is none.
        """
        self.timer_number += 1
        heapq.heappush(self.timers, (due, self.timer_number, what, connection))

    def schedule_tick(self, Transport transport not None):
        due = transport.connection.tick(self.scheduler.now)
        if due and (transport.due == 0 or due < transport.due):
            transport.due = due
            self.call_at(due, transport)

    cdef int run_timers(self) except -1:
        cdef Transport transport
        while self.timers and self.timers[0][0] <= self.scheduler.now:
            due, _, what, owner = heapq.heappop(self.timers)
            self.beat()
            try:
                if isinstance(what, Transport):
                    transport = what
                    if transport.fd >= 0 and transport.due == due:
                        transport.due = 0
                        if transport.connection.overdue(self.scheduler.now):
                            transport.connection.excuse(self.went_on)
                            transport.look()
                        if transport.fd >= 0:
                            self.schedule_tick(transport)
                else:
                    what()
            except Exception as fault:
                if isinstance(what, Transport):
                    (<Transport>what).ended_by(fault)
                elif owner is not None:
                    (<Connection>owner).end_by(fault)
                else:
                    raise
        return 0

    # -- running ------------------------------------------------------------------------------------------------------

    def run(self):
        """Until `running` is false."""
        cdef int timeout
        self.running = True
        while self.running:
            timeout = self.timeout()
            if timeout:
                set_sleeping(self.slot)
                if not self.rings_empty():
                    timeout = 0
            self.wake(timeout)
            self.finish_wake()

    def step(self):
        """One wake without blocking, for tests."""
        self.wake(0)
        self.finish_wake()

    cdef int timeout(self) except -2:
        """ms until something is due; 0: something is to be done already; -1: nothing is."""
        cdef uint64_t due
        cdef WorkerPort port
        if self.scheduler.dirty or self.scheduler.resumed or self.scheduler.starved:
            return 0
        for port in self.ports:
            if port.alive and port.dirty:
                return 0
        if not self.timers:
            return -1
        due = self.timers[0][0]
        return <int>(due - self.scheduler.now) if due > self.scheduler.now else 0

    cdef bint rings_empty(self) noexcept:
        cdef WorkerPort port
        for port in self.ports:
            if port.alive and not ring_empty(&port.inbound):
                return False
        return True

    cdef int wake(self, int timeout) except -1:
        cdef epoll_event[EVENTS_A_WAKE] events
        cdef int n, i, k
        cdef int first = 0
        cdef int fd = -1
        cdef uint64_t begun
        cdef object what = None
        cdef bint stopped = False
        with nogil:
            n = epoll_wait(self.epoll, events, EVENTS_A_WAKE, timeout)
            while n < 0 and errno == EINTR:
                # A process that was stopped and goes on is told this, whatever lies in its sockets: ask again.
                stopped = True
                n = epoll_wait(self.epoll, events, EVENTS_A_WAKE, 0)
        clear_sleeping(self.slot)
        if n < 0:
            raise OSError(errno, os.strerror(errno))
        self.slot.wakes += 1
        self.clock()
        if stopped or (self.timers and self.scheduler.now >= <uint64_t>self.timers[0][0] + HELD_UP_MS):
            self.went_on = self.scheduler.now
        begun = self.scheduler.now_ns
        if self.last_fd >= 0:
            # The wake before was cut short: who had no turn in it comes first.
            for i in range(n):
                if <int>events[i].data.u64 == self.last_fd:
                    first = i + 1
            self.last_fd = -1
        k = 0
        while k < n:
            try:
                while k < n:
                    i = (first + k) % n
                    if k:
                        self.clock()
                        if self.scheduler.now_ns - begun > LONG_WAKE_NS:
                            self.last_fd = fd      # epoll tells of the others again
                            return 0
                    k += 1
                    fd = <int>events[i].data.u64
                    what = self.transports[fd]
                    if what is not None:
                        self.take_event(what, events[i].events)
            except Exception as fault:
                if not isinstance(what, Transport):
                    raise
                (<Transport>what).ended_by(fault)
        return 0

    cdef int take_event(self, object what, uint32_t events) except -1:
        """The epoll events of one descriptor."""
        cdef Transport transport
        if not isinstance(what, Transport):
            what()
            return 0
        transport = <Transport>what
        if events & (EPOLLIN | EPOLLHUP | EPOLLERR):
            if transport.connection.paused and events & (EPOLLHUP | EPOLLERR):
                transport.lost()
            else:
                transport.readable()
        if events & EPOLLOUT and transport.fd >= 0:
            transport.connection.mark_dirty()
        return 0

    cdef int finish_wake(self) except -1:
        cdef WorkerPort port
        for port in self.ports:
            if port.alive and not ring_empty(&port.inbound):
                self.clock()
                port.receive()
        if self.timers:
            self.run_timers()
        if self.scheduler.starved:
            self.check_starved()
        if self.control is not None and self.control.dirty:
            # The supervisor hears first: what a client has been answered, management knows.
            self.control.send()
        self.flush_connections()
        self.flush_ports()
        if self.scheduler.resumed:
            self.resume_connections()
            self.flush_connections()
            self.flush_ports()         # what was kept while they were paused may have been for other workers
        if self.control is not None and self.control.dirty:
            # What comes in while telling may be answered at once.
            while self.control.dirty:
                self.control.flush()
            self.flush_ports()         # it may have been for another worker
        if stored_octets() != self.slot.buffered:
            if stored_octets() >= MUCH_OCTETS or self.slot.buffered >= MUCH_OCTETS:
                self.used_memory()
            self.slot.buffered = stored_octets()
            self.scheduler.note_content(self.slot.buffered)
        return 0

    cdef int flush_ports(self) except -1:
        """All that is for other workers, also without news of our own: they may have made room.

        Who was read, and has given a ring more than it has room for, is not read on until there is some.
        """
        cdef WorkerPort port
        cdef Connection connection
        for port in self.ports:
            if port.alive:
                port.flush()
                if self.fed and port.stuck():
                    for connection in self.fed:
                        port.throttle(connection)
        self.fed.clear()
        return 0

    cdef int resume_connections(self) except -1:
        cdef Connection connection
        cdef Transport transport
        cdef list resumed = self.scheduler.resumed
        self.scheduler.resumed = []
        for connection in resumed:
            self.beat()
            transport = connection.owner
            if transport is not None:
                try:
                    transport.go_on()
                except Exception as fault:
                    transport.ended_by(fault)
        return 0

    cdef int flush_connections(self) except -1:
        cdef list dirty
        cdef int rounds = 0
        while self.scheduler.dirty and rounds < 4:
            # What one connection sends may make another one dirty; who has more than its turn goes on in the next wake.
            rounds += 1
            dirty = self.scheduler.dirty
            self.scheduler.dirty = []
            self.flush_all(dirty)
        return 0

    cdef int flush_all(self, list dirty) except -1:
        cdef Connection connection
        cdef Transport transport = None  # keeps it while it closes itself
        cdef Py_ssize_t at = 0
        while at < len(dirty):
            try:
                while at < len(dirty):
                    self.beat()
                    connection = dirty[at]
                    transport = connection.owner
                    if transport is not None:
                        transport.flush()
                    else:
                        connection.dirty = False
                    at += 1
            except Exception as fault:
                transport.ended_by(fault)
                at += 1
        return 0

    def check_starved(self):
        """Links and sessions that wait for somebody to take something, see `Scheduler.starved`."""
        starved = self.scheduler.starved
        self.scheduler.starved = []
        for each in starved:
            try:
                due = each.check_starved()
            except Exception as fault:
                each.end_by(fault)
                continue
            if due:
                self.call_at(due, self.starved_again(each))

    def starved_again(self, each):
        return lambda: self.scheduler.starved.append(each)
