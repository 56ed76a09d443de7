"""The event loop of a worker.

One wake: sockets are read, then rings; paused connections resume; every dirty connection sends in one write; ports wake
their peers. Interpreter calls happen per descriptor event of the control plane, per timer and per connection, never per
delivery.
"""
from libc.errno cimport EINTR, errno

from router.amqp.connection cimport PAUSE_SLICE, PAUSE_TURN, Connection
from router.amqp.scheduler cimport Scheduler
from router.links.pause cimport PAUSE_DRAIN
from router.amqp.block cimport blocks_grew
from router.amqp.buffer cimport buffer_used, buffers_drop
from router.stats.counters cimport totals, use_worker_slot
from router.stats.samples cimport use_samples
from router.delivery.delivery cimport delivery_octets, pools_drop, pools_grew
from router.message.content cimport chunks_drop, stored_octets
from router.interworker.region cimport Region
from router.interworker.wakeup cimport any_bell, clear_sleeping, set_sleeping, take_bells
from router.interworker.port cimport WorkerPort
from router.interworker.port_work cimport PortWork, take_lowest
from workers.poller cimport BROKEN, READABLE, WRITABLE, EpollPoller, PollEvent
from workers.transport.base cimport STEPS_A_WAKE, Transport

import heapq
import os

from workers.lingering import Lingering

cdef extern from "malloc.h" nogil:
    int mallopt(int param, int value)
    int malloc_trim(size_t kept)
    int M_TRIM_THRESHOLD
    int M_MMAP_THRESHOLD

cdef enum:
    ROOM_OCTETS = 98304        # read at once from one socket: the bound of one connection in a wake
    EVENTS_A_WAKE = 256
    TURNS_BEFORE_ORDERS = 16   # of each ring, that are read before what the supervisor says
    MALLOC_THRESHOLD = 1048576  # a block this large goes back to the system when it is freed
    TRIM_THRESHOLD = 8388608   # free memory that the heap keeps: growing and shrinking it costs page faults
    QUIET_MS = 5000            # after the last use of much memory, until free memory is returned to the system
    MUCH_OCTETS = 1048576
    # A wake that takes longer ends before all sockets were handled: its output is sent, and new events are seen.
    LONG_WAKE_NS = 20000000
    # Clients that come in, and what the supervisor says, have one part in PARTS of the worker's time while clients are
    # heard that are in already; in FEW_PARTS when the first of those that wait has waited for long, and all when that
    # did not help, so that nobody gives up. It is counted by the clock: where cores are scarce they take fewer steps.
    PARTS = 16
    FEW_PARTS = 4
    LONG_WAIT_MS = 2000
    HEARD_MS = 100             # so long after it was read a client counts as heard
    ALLOWANCE_NS = 500000      # of time that was not taken, so much may be taken later
    # Interpreter work while clients are heard: so long at a time, a step of it at least, until what they have sent is
    # handled; and so many new frames a wake, since each may cost others a wake, too.
    PIECE_NS = 150000
    FEW_FRAMES = 8
    DEBT_NS = 1000000          # what is taken beyond the allowance; the rest is forgiven, so that the pause is bounded
    # A timer this late means that this process did not run: it was stopped, frozen, or starved of its core.
    HELD_UP_MS = 500


def bound_heap():
    """Of the whole process: what it has freed goes back to the system, but for a little."""
    mallopt(M_MMAP_THRESHOLD, MALLOC_THRESHOLD)
    mallopt(M_TRIM_THRESHOLD, TRIM_THRESHOLD)


cdef list deliveries_first(list dirty):
    """Connections with deliveries to write, for which somebody waits, before those that have only outcomes and credit:
    these are collected in their sessions until they are written."""
    cdef list first = []
    cdef list others = []
    cdef Connection connection
    for connection in dirty:
        (first if buffer_used(&connection.out) else others).append(connection)
    return first + others if first else others


cdef class LoopScheduler(Scheduler):
    def __cinit__(self, Poller poller not None):
        self.poller = poller

    cdef void begin_piece(self) noexcept:
        if self.shared:
            self.piece_ends = self.poller.now() + PIECE_NS

    cpdef bint has_time(self) noexcept:
        return not self.shared or self.poller.now() < self.piece_ends


cdef class Loop(TransportHost):
    """The event loop. Owner: the worker process."""

    def __cinit__(self, Region region not None, int worker, Poller poller=None):
        """poller: source of events and time; None: epoll and the system clock."""
        self.poller = EpollPoller() if poller is None else poller
        self.scheduler = self.pieces = LoopScheduler(self.poller)
        self.slot = region.worker_slot(worker)
        self.slot_owner = region
        self.worker = worker
        self.count_here()
        self.transports = []
        self.ports = []
        self.port_work = PortWork()
        self.timers = []
        self.fed = []
        self.inside = []
        self.last_fd = -1
        self.allowance = ALLOWANCE_NS
        self.port_work.patient = self.poller.precise
        self.more_room(ROOM_OCTETS)
        self.lingering = Lingering(self)
        self.clock()

    cpdef void used_memory(self):
        """Much memory was used, or a larger object has ended: there may soon be memory to return."""
        self.used_at = self.scheduler.now
        if not self.trims:
            self.trims = True
            self.call_at(self.used_at + QUIET_MS, self.trim)

    def trim(self):
        """Return free memory to the system, once it is quiet."""
        if self.scheduler.now < self.used_at + QUIET_MS:
            self.call_at(self.used_at + QUIET_MS, self.trim)
            return
        if not (pools_drop() and chunks_drop()):
            self.call_at(self.scheduler.now + 1, self.trim)
            return
        self.trims = False
        if self.room_size > ROOM_OCTETS:
            self.more_room(ROOM_OCTETS)
        buffers_drop()
        malloc_trim(0)

    def use_ports(self, ports):
        """Use these ports to workers, by number; one leads to this worker itself."""
        self.ports = list(ports)

    cdef void count_here(self) noexcept:
        use_worker_slot(self.slot)
        use_samples(self.slot_owner, self.worker)

    cdef void clock(self) noexcept:
        """Read the clock: once a wake, and before further sockets and rings of the same wake."""
        self.slot.heartbeat = self.poller.now()
        self.port_work.now = self.slot.heartbeat
        self.slot.heard = self.heard_at
        self.scheduler.set_clock(self.slot.heartbeat)

    # -- clients that come in ------------------------------------------------------------------------------------------

    cdef bint shared(self) noexcept:
        """Whether clients are heard that are in already."""
        return self.scheduler.now < self.heard_at + HEARD_MS

    cdef void allow(self) noexcept:
        """The allowance grows with the time."""
        cdef uint64_t now = self.scheduler.now_ns
        if now > self.allowed_at:
            self.allowance = min(ALLOWANCE_NS, self.allowance + <int64_t>((now - self.allowed_at) // self.parts()))
            self.allowed_at = now

    cdef int parts(self) noexcept:
        cdef Transport first
        cdef uint64_t waited
        if not self.entering:
            return PARTS
        first = self.entering[0]
        waited = self.scheduler.now - first.waits_since
        return PARTS if waited <= LONG_WAIT_MS else FEW_PARTS if waited <= 2 * LONG_WAIT_MS else 1

    cdef void charge(self, uint64_t begun) noexcept:
        """Work for those that come in, or for the supervisor, began then (ns) and has ended."""
        self.allowance = max(-DEBT_NS, self.allowance - <int64_t>(self.poller.now() - begun))

    cdef int entrance(self) noexcept:
        """ms until one that waits to come in may take its next step."""
        if self.allowance > 0 or not self.shared():
            return 0
        return <int>(-self.allowance * self.parts() // 1000000) + 1

    cpdef void beat(self) noexcept:
        """Write the heartbeat, between the steps of a wake that may take long."""
        self.slot.heartbeat = self.poller.now()

    # -- descriptors --------------------------------------------------------------------------------------------------

    def add(self, int fd, what):
        """Watch a descriptor for reading: a Transport, or a callable without arguments."""
        while len(self.transports) <= fd:
            self.transports.append(None)
        self.transports[fd] = what
        self.poller.add(fd, READABLE)
        if isinstance(what, Transport):
            totals.connections += 1

    def remove(self, int fd):
        """Stop watching (a callable's descriptor; transports close themselves)."""
        self.poller.remove(fd)
        self.transports[fd] = None

    def count_fault(self):
        """A fault of the router was reported."""
        totals.checks_failed += 1

    def close_descriptor(self, int fd):
        """Close a descriptor that never became a transport."""
        os.close(fd)

    def add_signal(self, int fd):
        """Be woken by an eventfd that nobody reads."""
        while len(self.transports) <= fd:
            self.transports.append(None)
        self.poller.add_signal(fd)

    def stop_reading(self):
        """From now on clients are only written to (the worker is about to end)."""
        cdef Transport transport
        for transport in [t for t in self.transports if isinstance(t, Transport)]:
            transport.connection.pause(PAUSE_DRAIN)
            transport.watch()

    def idle(self):
        """Whether nothing is left to be written, to sockets or to other workers."""
        cdef Transport transport
        cdef WorkerPort port
        for transport in [t for t in self.transports if isinstance(t, Transport)]:
            if buffer_used(&transport.connection.out) or (not transport.plain and transport.unsent()):
                return False
        for port in self.ports:
            if port is not None and port.alive and (port.stuck() or port.unread()):
                return False
        return True

    # -- timers -------------------------------------------------------------------------------------------------------

    def call_at(self, uint64_t due, what, connection=None):
        """Call `what` at `due` (ms of the scheduler's clock). connection: an exception ends it; without one an
        exception ends the worker.
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
        """Run until `running` is false."""
        cdef int timeout
        cdef uint64_t owed
        self.running = True
        while self.running:
            timeout = self.timeout()
            owed = self.pay() if self.port_work.owing else 0
            if timeout:
                set_sleeping(self.slot)
                if self.bell_rung():
                    timeout = 0
            self.wake(timeout, owed)
            self.finish_wake()

    def step(self):
        """One wake without blocking, for tests."""
        self.wake(0, 0)
        self.finish_wake()

    cdef int timeout(self) except -2:
        """ms until something is due; 0: something is due already; -1: nothing is."""
        cdef uint64_t due
        cdef int wait = -1
        if self.scheduler.dirty or self.scheduler.resumed or self.scheduler.starved or self.scheduler.unfinished() \
                or self.inside:
            return 0
        if self.entering:
            wait = self.entrance()
            if wait == 0:
                return 0
        if self.port_work.dirty or self.port_work.rung:
            return 0
        if self.control is not None and self.control.more:
            return 0
        if not self.timers:
            return wait
        due = self.timers[0][0]
        if due <= self.scheduler.now:
            return 0
        return <int>min(due - self.scheduler.now, <uint64_t>wait) if wait > 0 else <int>(due - self.scheduler.now)

    cdef uint64_t pay(self) except? 0xFFFFFFFFFFFFFFFF:
        """Wake those workers for which outcomes have waited long enough; returns ns until the next one's have, 0: there
        is none."""
        cdef WorkerPort port
        cdef uint64_t bits = self.port_work.owing
        cdef uint64_t now = self.poller.now()
        cdef uint64_t left, least = 0
        while bits:
            port = self.ports[take_lowest(&bits)]
            left = port.outbox.owed(now)
            if left and (least == 0 or left < least):
                least = left
        return least

    cdef bint bell_rung(self) noexcept:
        """Another worker has something for this one."""
        return self.port_work.rung != 0 or any_bell(self.slot)

    cdef int answer_bells(self) except -1:
        """The rings of those who rang."""
        cdef WorkerPort port
        cdef uint64_t rung = self.port_work.rung | take_bells(self.slot)
        self.port_work.rung = 0
        while rung:
            port = self.ports[take_lowest(&rung)]
            self.clock()
            port.answer_bell()
        return 0

    cdef int read_rings(self) except -1:
        """Take what other workers have said, before what the supervisor says: it may have heard of it. A consumer's
        outcomes come before the end of the link that they are reported by."""
        cdef int turns = TURNS_BEFORE_ORDERS
        while turns and self.bell_rung():
            self.answer_bells()
            turns -= 1
        return 0

    cdef int wait(self, PollEvent* events, int timeout, uint64_t owed) except -2:
        """Events, within `timeout` ms (-1: whenever they come), or earlier, when another worker is to be woken: in
        `owed` ns (0: none is)."""
        cdef int n
        if timeout == 0 or owed == 0:
            return self.poller.wait(events, EVENTS_A_WAKE, timeout)
        n = self.poller.wait_ns(events, EVENTS_A_WAKE, owed)
        self.port_work.patient = self.poller.precise
        return n

    cdef int wake(self, int timeout, uint64_t owed) except -1:
        cdef PollEvent[EVENTS_A_WAKE] events
        cdef int n, i, k
        cdef int first = 0
        cdef int fd = -1
        cdef uint64_t begun
        cdef object what = None
        cdef bint stopped = False
        n = self.wait(events, timeout, owed)
        while n < 0 and errno == EINTR:
            # A process that was stopped and resumed gets EINTR, whatever its sockets hold: ask again.
            stopped = True
            n = self.poller.wait(events, EVENTS_A_WAKE, 0)
        clear_sleeping(self.slot)
        if n < 0:
            raise OSError(errno, os.strerror(errno))
        self.slot.wakes += 1
        self.scheduler.begin_wake()
        self.clock()
        self.allow()
        self.pieces.shared = self.shared()
        self.pieces.begin_piece()
        if self.pieces.shared:
            self.scheduler.frames_left = FEW_FRAMES
            self.steps_left = 0
            self.steps_kept = 1 if self.entering and self.allowance > 0 else 0
        else:
            self.steps_kept = STEPS_A_WAKE if self.entering else 0
            self.steps_left = STEPS_A_WAKE - self.steps_kept
        if stopped or (self.timers and self.scheduler.now >= <uint64_t>self.timers[0][0] + HELD_UP_MS):
            self.went_on = self.scheduler.now
        begun = self.scheduler.now_ns
        if self.last_fd >= 0:
            # The last wake was cut short: the sockets that it did not handle come first.
            for i in range(n):
                if events[i].fd == self.last_fd:
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
                            self.last_fd = fd      # epoll reports the others again
                            return 0
                    k += 1
                    fd = events[i].fd
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
        cdef uint64_t begun
        cdef Transport transport
        if not isinstance(what, Transport):
            begun = self.scheduler.now_ns
            self.read_rings()
            what()
            self.charge(begun)
            return 0
        transport = <Transport>what
        if events & (READABLE | BROKEN):
            if transport.connection.paused & ~<uint32_t>(PAUSE_TURN | PAUSE_SLICE) and events & BROKEN:
                transport.lost()
            else:
                transport.readable()
        if events & WRITABLE and transport.fd >= 0:
            transport.writable()
        return 0

    cdef int read_inside(self) except -1:
        """Transports with buffered octets, which no event announces. Each is read once a wake, as a socket is."""
        cdef Transport transport
        cdef list inside = self.inside
        self.inside = []
        for transport in inside:
            if transport.fd >= 0:
                self.clock()
                try:
                    transport.readable()
                except Exception as fault:
                    transport.ended_by(fault)
        return 0

    cdef int let_in(self) except -1:
        """Clients that come in and wait take the steps of this wake that are kept for them."""
        cdef Transport transport
        cdef uint64_t begun = self.poller.now()
        self.steps_left += self.steps_kept
        self.steps_kept = 0
        while self.entering and self.steps_left > 0:
            transport = self.entering.popleft()
            if transport.fd >= 0:
                self.clock()
                try:
                    transport.go_in()
                except Exception as fault:
                    transport.ended_by(fault)
        self.charge(begun)
        return 0

    cdef int finish_wake(self) except -1:
        cdef uint64_t begun
        if self.inside:
            self.read_inside()
        if self.bell_rung():
            self.answer_bells()
        if self.control is not None and self.control.busy:
            begun = self.poller.now()
            self.pieces.begin_piece()
            self.control.go_on()
            self.charge(begun)
        if self.timers:
            self.run_timers()
        if self.scheduler.starved:
            self.check_starved()
        if self.scheduler.losing:
            self.pieces.begin_piece()
            self.scheduler.lose_links()
        if self.port_work.dirty:
            # Others begin with it while this worker writes. Before what the supervisor is told, see `read_rings`.
            self.flush_ports()
        if self.control is not None and self.control.dirty:
            # Before clients hear of it: management must know what they have been answered.
            self.control.send()
        self.flush_connections()
        self.flush_ports()
        if self.steps_kept:
            self.let_in()                  # when all others have been served
        if self.scheduler.turns:
            self.scheduler.give_turns()
        if self.scheduler.sliced:
            self.scheduler.resume_sliced()
        if self.scheduler.resumed:
            self.pieces.begin_piece()
            self.resume_connections()
            self.flush_connections()
            self.flush_ports()         # resumed frames may have been for other workers
        if self.control is not None and self.control.dirty:
            self.control.send()
        if stored_octets() != self.slot.buffered:
            if stored_octets() >= MUCH_OCTETS or self.slot.buffered >= MUCH_OCTETS:
                self.used_memory()
            self.slot.buffered = stored_octets()
        self.scheduler.memory.note_content(self.slot.buffered, delivery_octets())
        if self.scheduler.memory.untold:
            self.scheduler.memory.withdraw_some()
        if pools_grew() or blocks_grew():
            self.used_memory()
        self.slot.windows_shut = self.scheduler.memory.windows_shut
        if self.scheduler.memory.given_up:
            self.slot.given_up += self.scheduler.memory.given_up
            self.scheduler.memory.given_up = 0
        return 0

    cdef int flush_ports(self) except -1:
        """Flush the ports that have something for their peers, or wait for room which these have made. Connections
        read in this wake are paused if their records do not fit into a ring.
        """
        cdef WorkerPort port
        cdef Connection connection
        cdef uint64_t bits = self.port_work.dirty
        while bits:
            port = self.ports[take_lowest(&bits)]
            port.flush()
        if self.fed:
            bits = self.port_work.stuck
            while bits:
                port = self.ports[take_lowest(&bits)]
                for connection in self.fed:
                    port.throttle(connection)
            self.fed.clear()
        return 0

    cdef int resume_connections(self) except -1:
        cdef Connection connection
        cdef Transport transport
        cdef list resumed = self.scheduler.resumed
        cdef uint64_t begun = self.poller.now()
        self.scheduler.resumed = []
        for at, connection in enumerate(resumed):
            self.beat()
            if at and self.slot.heartbeat - begun > LONG_WAKE_NS:
                self.scheduler.resumed[:0] = resumed[at:]
                break
            transport = connection.owner
            if transport is not None:
                try:
                    transport.go_on()
                except Exception as fault:
                    transport.ended_by(fault)
        return 0

    cdef int flush_connections(self) except -1:
        """Each has one turn to write in a wake. Writing for one may make another one dirty; one that has more to write
        than its turn, or again, goes on in the next wake, when others have been heard."""
        cdef list dirty
        cdef list later = []
        while self.scheduler.dirty:
            dirty = self.scheduler.dirty
            self.scheduler.dirty = []
            self.flush_all(deliveries_first(dirty) if len(dirty) > 1 else dirty, later)
        self.scheduler.dirty = later
        return 0

    cdef int flush_all(self, list dirty, list later) except -1:
        cdef Connection connection
        cdef Transport transport = None  # keeps it while it closes itself
        cdef Py_ssize_t at = 0
        while at < len(dirty):
            try:
                while at < len(dirty):
                    self.beat()
                    connection = dirty[at]
                    transport = connection.owner
                    if transport is None:
                        connection.dirty = False
                    elif transport.turn == self.slot.wakes:
                        later.append(connection)
                    else:
                        transport.turn = self.slot.wakes
                        transport.flush()
                    at += 1
            except Exception as fault:
                transport.ended_by(fault)
                at += 1
        return 0

    def check_starved(self):
        """Check links and sessions whose receivers take nothing, see `Scheduler.starved`."""
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
