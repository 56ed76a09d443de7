"""Test access to the event loop: scripted transports and pollers."""
from libc cimport errno
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from sluice.router.stats.counters cimport use_worker_slot
from sluice.router.stats.samples cimport use_samples
from sluice.workers.loop cimport Loop
from sluice.workers.poller cimport BROKEN, READABLE, WRITABLE, EpollPoller, PollEvent, Poller
from sluice.workers.transport.base cimport (
    HANDSHAKE_DONE, HANDSHAKE_FAILED, HANDSHAKE_GOES_ON, Handshake, Transport, TransportHost,
)
from sluice.workers.transport.tcp cimport TcpTransport


cdef enum:
    MOST_WAITS = 100000        # of a loop in memory that does not sleep; more mean that it never will


class InjectedTransportError(Exception):
    """Fault injected by a test."""


cdef class FaultyTransport(TcpTransport):
    """Transport that raises InjectedTransportError in the operation that `fails` names: "read", "write" or "go on"."""
    cdef public str fails

    cdef ssize_t read_some(self, uint8_t* data, size_t size) except? -2:
        if self.fails == "read":
            raise InjectedTransportError("read")
        return TcpTransport.read_some(self, data, size)

    cdef ssize_t write_some(self, const uint8_t* data, size_t size) except? -2:
        if self.fails == "write":
            raise InjectedTransportError("write")
        return TcpTransport.write_some(self, data, size)

    def go_on(self):
        if self.fails == "go on":
            raise InjectedTransportError("go on")
        TcpTransport.go_on(self)


def count_in(Loop loop):
    """Count in the slot of that loop's worker from now on, as the worker's process does; None: count in no region."""
    if loop is None:
        use_worker_slot(NULL)
        use_samples(None, 0)
    else:
        loop.use_own_counters()


cdef class ScriptedTransport(Transport):
    """Transport whose behaviour a Python object scripts, for tests of what transports may do. `script` has the methods

        handshake() -> None (not done), True (done) or False (failed); read(size) -> octets, b"" at the end, None: none
        now; write(octets) -> number of octets taken, None: none now; pending(), unsent() -> bool; wants() -> "r", "w",
        "rw" or ""; shutdown().
    """
    cdef public object script

    cdef ssize_t read_some(self, uint8_t* data, size_t size) except? -2:
        cdef bytes octets
        found = self.script.read(size)
        if found is None:
            errno.errno = errno.EAGAIN
            return -1
        octets = found
        if <size_t>len(octets) > size:
            raise ValueError(f"{len(octets)} octets where {size} fit")
        memcpy(data, <const uint8_t*>octets, len(octets))
        return len(octets)

    cdef ssize_t write_some(self, const uint8_t* data, size_t size) except? -2:
        took = self.script.write(b"" if data is NULL else data[:size])
        if took is None:
            errno.errno = errno.EAGAIN
            return -1
        return took

    cdef Handshake handshake(self) except *:
        state = self.script.handshake()
        return HANDSHAKE_GOES_ON if state is None else HANDSHAKE_DONE if state else HANDSHAKE_FAILED

    cdef bint pending(self) except -1:
        return self.script.pending()

    cdef bint unsent(self) except -1:
        return self.script.unsent()

    cdef uint32_t wants(self) except? 0xFFFF:
        text = self.script.wants()
        return READABLE * ("r" in text) | WRITABLE * ("w" in text)

    cdef int shutdown(self) except -1:
        self.script.shutdown()
        return 0

    def preload(self, bytes octets not None):
        self.script.preload(octets)
        self.read_on()


cdef class MemoryTransport(Transport):
    """Transport in memory, for a loop with a MemoryPoller. Its descriptor is a number that nothing else uses."""
    cdef MemoryPoller poller
    cdef bytes sent                        # octets sent by the peer
    cdef size_t read                       # octets of `sent` that the router has read
    cdef list received                     # octets received by the peer, in chunks
    cdef public bint blocked               # the peer does not read, so the router cannot write
    cdef bint reset                        # the peer has reset the connection
    cdef bint told                         # the reset was reported to the loop while it had no interest

    def __cinit__(self, TransportHost loop not None, int fd, *args, **kwargs):
        self.plain = True
        self.established = True
        self.poller = loop.poller
        self.poller.memory[fd] = self
        self.sent = b""
        self.received = []

    def put(self, bytes octets not None):
        """Send octets as the peer."""
        self.sent = self.sent[self.read:] + octets if self.unread() else octets
        self.read = 0

    def take(self):
        """Return the octets that the peer has received since the last call."""
        octets = b"".join(self.received)
        self.received.clear()
        return octets

    def lose(self):
        """Reset the connection as the peer. Octets that it sent before can no longer be read."""
        self.put(b"")
        self.read = len(self.sent)
        self.reset = True

    cdef size_t unread(self) noexcept:
        return len(self.sent) - self.read

    cdef ssize_t read_some(self, uint8_t* data, size_t size) except? -2:
        cdef size_t here = min(size, self.unread())
        if here:
            memcpy(data, <const uint8_t*>self.sent + self.read, here)
            self.read += here
            return here
        if self.reset:
            return 0
        errno.errno = errno.EAGAIN
        return -1

    cdef ssize_t write_some(self, const uint8_t* data, size_t size) except? -2:
        if self.blocked:
            errno.errno = errno.EAGAIN
            return -1
        self.received.append(data[:size])
        return size

    cdef int close_descriptor(self) except -1:
        del self.poller.memory[self.fd]
        return 0

    @property
    def left(self):
        """Number of octets of the peer that the router has not read yet."""
        return self.unread()

    def readable_now(self):
        """True if unread octets of the peer exist and the loop is interested in them."""
        return self.fd >= 0 and self.unread() > 0 and self.interest & READABLE != 0

    cdef uint32_t events(self) except? 0xFFFF:
        """Return the events that epoll would report for a socket."""
        cdef uint32_t events = BROKEN if self.reset and not self.told else 0
        if self.reset or self.unread():
            events |= READABLE & self.interest
        if not self.blocked:
            events |= WRITABLE & self.interest
        return events


class LoopWouldSleep(Exception):
    """Raised when the loop would sleep: there is no event, and no timer is due."""


class StandstillError(AssertionError):
    """Raised when the loop neither sleeps nor makes progress."""


cdef class ManualPoller(Poller):
    """Poller with events and time set by a test. Descriptors are any small numbers and are never used."""
    cdef public dict interest              # by descriptor
    cdef public list events                # (descriptor, events) for the next wait
    cdef public uint64_t time_ns
    cdef public list waits                 # time-outs of the loop's waits

    def __cinit__(self):
        self.interest = {}
        self.events = []
        self.waits = []
        self.time_ns = 1000000000

    cdef int add(self, int fd, uint32_t interest) except -1:
        self.interest[fd] = interest
        return 0

    cdef int change(self, int fd, uint32_t interest) except -1:
        self.interest[fd] = interest
        return 0

    cdef int remove(self, int fd) except -1:
        del self.interest[fd]
        return 0

    cdef int wait(self, PollEvent* events, int most, int timeout) except -2:
        cdef int count = 0
        self.waits.append(timeout)
        while self.events and count < most:
            events[count].fd, events[count].events = self.events.pop(0)
            count += 1
        return count

    cdef uint64_t now(self) noexcept:
        return self.time_ns


cdef class MemoryPoller(Poller):
    """Poller with time set by a test, and with events of transports in memory and of real descriptors.

    `memory` holds the transports by descriptor. Where the poller would wait, it raises LoopWouldSleep; the loop is to
    be run again when `awaited`.
    """
    cdef public dict memory
    cdef public int first                  # index of the event to report first, if several are pending
    cdef public uint64_t time_ns
    cdef public object until               # time in ms until which the loop wanted to sleep; None: until an event
    cdef EpollPoller real
    cdef int waits                         # number of waits since the loop slept
    cdef bint roused                       # `awaited` consumed the edge of a signal

    def __cinit__(self):
        self.memory = {}
        self.time_ns = 1000000000
        self.real = EpollPoller()

    cdef int add(self, int fd, uint32_t interest) except -1:
        return 0 if fd in self.memory else self.real.add(fd, interest)

    cdef int add_signal(self, int fd) except -1:
        return self.real.add_signal(fd)

    cdef int change(self, int fd, uint32_t interest) except -1:
        cdef MemoryTransport transport = self.memory.get(fd)
        if transport is None:
            return self.real.change(fd, interest)
        transport.told = False
        return 0

    cdef int remove(self, int fd) except -1:
        return self.real.remove(fd)

    cdef int wait(self, PollEvent* events, int most, int timeout) except -2:
        cdef int count = self.real.wait(events, most, 0)
        cdef MemoryTransport transport
        cdef uint32_t found
        if count < 0:
            return count
        for transport in self.memory.values():
            found = transport.events()
            if found and count < most:
                transport.told = transport.interest == 0
                events[count].fd, events[count].events = transport.fd, found
                count += 1
        if count and self.first:
            self.turn(events, count, self.first % count)
        if timeout == 0 or count or self.due() or self.roused:
            self.roused = False
            self.until = None
            self.waits += 1
            if self.waits > MOST_WAITS:
                raise StandstillError(f"{self.waits} wakes, and the loop does not sleep")
            return count
        self.waits = 0
        self.until = None if timeout < 0 else self.time_ns // 1000000 + timeout
        raise LoopWouldSleep

    cdef void turn(self, PollEvent* events, int count, int first) noexcept:
        """Rotate the events so that the one at `first` is reported first, as epoll reports events in order of arrival.
        """
        cdef PollEvent event
        cdef int at
        while first > 0:
            event = events[0]
            for at in range(1, count):
                events[at - 1] = events[at]
            events[count - 1] = event
            first -= 1

    cdef bint due(self):
        """True if the time-out of a wait that raised LoopWouldSleep has expired."""
        return self.until is not None and self.until <= self.time_ns // 1000000

    def awaited(self):
        """True if a sleeping loop would be woken now."""
        cdef PollEvent event
        cdef MemoryTransport transport
        cdef int count
        if self.due() or self.roused:
            return True
        for transport in self.memory.values():
            if transport.events():
                return True
        count = self.real.wait(&event, 1, 0)
        while count < 0:                   # interrupted
            count = self.real.wait(&event, 1, 0)
        self.roused = count > 0
        return self.roused

    cdef uint64_t now(self) noexcept:
        return self.time_ns


cdef class PrecisePoller(MemoryPoller):
    """Poller that can wait for less than a millisecond, so that outcomes for other workers may share wakes."""

    def __cinit__(self):
        self.precise = True

    cdef int wait_ns(self, PollEvent* events, int most, uint64_t ns) except -2:
        return self.wait(events, most, <int>(ns // 1000000) + 1)
