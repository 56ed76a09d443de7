"""Event loop of a worker.

In each wake, sockets are read before rings. Then paused connections resume, every dirty connection sends its output in
one write, and ports wake their peers. The interpreter runs for each descriptor event of the control plane, each timer
and each connection, but never for each delivery.
"""
from libc.errno cimport EINTR, errno
from libc.string cimport memcpy

from sluice.router.amqp.connection cimport PAUSE_SLICE, PAUSE_TURN, Connection
from sluice.router.links.pause cimport PAUSE_DRAIN
from sluice.router.amqp.block cimport blocks_grew
from sluice.router.amqp.buffer cimport buffer_used, buffers_drop
from sluice.router.stats.counters cimport totals, use_worker_slot
from sluice.router.stats.samples cimport use_samples
from sluice.router.delivery.delivery cimport delivery_octets, pools_drop, pools_grew
from sluice.router.message.content cimport chunks_drop, stored_octets
from sluice.router.ring.region cimport Region
from sluice.router.ring.wakeup cimport any_doorbell, clear_sleeping, set_sleeping, take_doorbells
from sluice.router.ring.port cimport WorkerPort
from sluice.router.ring.port_work cimport PortWork, take_lowest
from sluice.workers.fairness cimport (
    EVENTS_PER_WAKE, LONG_WAKE_NS, READ_BUFFER_OCTETS, RING_PASSES_BEFORE_CONTROL, LoopScheduler,
    order_deliveries_first,
)
from sluice.workers.poller cimport BROKEN, READABLE, WRITABLE, EpollPoller, PollEvent, Poller
from sluice.workers.transport.base cimport Transport

import heapq
import os

from sluice.workers.lingering import LingeringSockets

cdef extern from "malloc.h" nogil:
    int mallopt(int param, int value)
    int malloc_trim(size_t kept)
    int M_TRIM_THRESHOLD
    int M_MMAP_THRESHOLD

cdef enum:
    MALLOC_THRESHOLD = 1048576  # blocks of at least this many octets are mapped, and returned to the system when freed
    TRIM_THRESHOLD = 8388608   # free octets that the heap keeps; growing and shrinking the heap costs page faults
    QUIET_MS = 5000            # time from the last use of much memory until free memory is returned to the system
    MUCH_OCTETS = 1048576
    # A timer this late means that the process did not run: it was stopped, frozen, or starved of its core.
    HELD_UP_MS = 500


def set_heap_limits():
    """Set malloc options of the process so that freed memory, except for a small reserve, goes back to the system."""
    mallopt(M_MMAP_THRESHOLD, MALLOC_THRESHOLD)
    mallopt(M_TRIM_THRESHOLD, TRIM_THRESHOLD)


cdef void rotate_events(PollEvent* events, int n, int fd) noexcept:
    """Let the events begin behind the one of this descriptor."""
    cdef PollEvent[EVENTS_PER_WAKE] rotated
    cdef int first = 0
    cdef int i
    for i in range(n):
        if events[i].fd == fd:
            first = i + 1
    for i in range(n):
        rotated[i] = events[(first + i) % n]
    memcpy(events, rotated, n * sizeof(PollEvent))


cdef class Loop(TransportHost):
    """Event loop. Owner: the worker process."""

    def __cinit__(self, Region region not None, int worker, Poller poller=None):
        """Create a loop. poller: source of events and time; None: epoll and the system clock."""
        self.poller = EpollPoller() if poller is None else poller
        self.scheduler = LoopScheduler(self.poller)
        self.slot = region.worker_slot(worker)
        self.slot_owner = region
        self.worker = worker
        self.use_own_counters()
        self.transports = []
        self.ports = []
        self.port_work = PortWork()
        self.timers = []
        self.fed = []
        self.inside = []
        self.last_fd = -1
        self.port_work.patient = self.poller.precise
        self.enlarge_read_buffer(READ_BUFFER_OCTETS)
        self.lingering = LingeringSockets(self)
        self.clock()

    cpdef void note_memory_use(self):
        """Note that much memory was used, or that a large object has ended, and schedule `trim`."""
        self.memory_used_at = self.scheduler.now
        if not self.trim_scheduled:
            self.trim_scheduled = True
            self.call_at(self.memory_used_at + QUIET_MS, self.trim)

    def trim(self):
        """Return free memory to the system if QUIET_MS have passed since the last use of much memory."""
        if self.scheduler.now < self.memory_used_at + QUIET_MS:
            self.call_at(self.memory_used_at + QUIET_MS, self.trim)
            return
        if not (pools_drop() and chunks_drop()):
            self.call_at(self.scheduler.now + 1, self.trim)
            return
        self.trim_scheduled = False
        if self.read_buffer_size > READ_BUFFER_OCTETS:
            self.enlarge_read_buffer(READ_BUFFER_OCTETS)
        buffers_drop()
        malloc_trim(0)

    def use_ports(self, ports):
        """Use these ports, ordered by worker number. One of them leads to this worker itself."""
        self.ports = list(ports)

    cdef void use_own_counters(self) noexcept:
        use_worker_slot(self.slot)
        use_samples(self.slot_owner, self.worker)

    cdef void clock(self) noexcept:
        """Read the clock: once in a wake, and again before each further socket and ring of the same wake."""
        self.slot.heartbeat = self.poller.now()
        self.port_work.now = self.slot.heartbeat
        self.slot.heard = self.scheduler.active_at
        self.scheduler.set_clock(self.slot.heartbeat)

    cpdef void beat(self) noexcept:
        """Write the heartbeat, between items of a wake that may take long."""
        self.slot.heartbeat = self.poller.now()

    # -- descriptors --------------------------------------------------------------------------------------------------

    def add(self, int fd, what):
        """Watch a descriptor for reading. what: a Transport, or a callable without arguments."""
        while len(self.transports) <= fd:
            self.transports.append(None)
        self.transports[fd] = what
        self.poller.add(fd, READABLE)
        if isinstance(what, Transport):
            totals.connections += 1

    def remove(self, int fd):
        """Stop watching a callable's descriptor. Transports remove their own."""
        self.poller.remove(fd)
        self.transports[fd] = None

    def count_fault(self):
        """Count a reported internal error."""
        totals.checks_failed += 1

    def close_descriptor(self, int fd):
        """Close a descriptor that never became a transport."""
        os.close(fd)

    def add_signal(self, int fd):
        """Watch an eventfd that is never read; each signal wakes the loop."""
        while len(self.transports) <= fd:
            self.transports.append(None)
        self.poller.add_signal(fd)

    def pause_clients(self):
        """Stop reading from all clients, before the worker ends. Output is still written."""
        cdef Transport transport
        for transport in [t for t in self.transports if isinstance(t, Transport)]:
            transport.connection.pause(PAUSE_DRAIN)
            transport.watch()

    def idle(self):
        """True if nothing is left to be written to sockets or to other workers."""
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
        """Call `what` at `due` (ms of the scheduler's clock). An exception closes `connection`; without a connection
        it ends the worker.
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
                            transport.connection.extend_deadline(self.went_on)
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
            owed = self.signal_deferred_wakeups() if self.port_work.outcomes_due else 0
            if timeout:
                set_sleeping(self.slot)
                if self.doorbell_is_set():
                    timeout = 0
            self.wake(timeout, owed)
            self.finish_wake()

    def step(self):
        """Run one wake without blocking, for tests."""
        self.wake(0, 0)
        self.finish_wake()

    cdef int timeout(self) except -2:
        """Return the ms until the loop has to run again; 0: at once, -1: no timer is set."""
        cdef uint64_t due
        cdef int wait = -1
        if self.scheduler.dirty or self.scheduler.resumed or self.scheduler.starved or self.scheduler.unfinished() \
                or self.inside:
            return 0
        if self.scheduler.entering:
            wait = self.scheduler.admission_delay()
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

    cdef uint64_t signal_deferred_wakeups(self) except? 0xFFFFFFFFFFFFFFFF:
        """Wake the workers whose deferred wake-ups are due. Return the ns until the next one is due; 0: there is none.
        """
        cdef WorkerPort port
        cdef uint64_t bits = self.port_work.outcomes_due
        cdef uint64_t now = self.poller.now()
        cdef uint64_t left, least = 0
        while bits:
            port = self.ports[take_lowest(&bits)]
            left = port.outbox.owed(now)
            if left and (least == 0 or left < least):
                least = left
        return least

    cdef bint doorbell_is_set(self) noexcept:
        """True if another worker has set a doorbell, or if a ring was left with unread records."""
        return self.port_work.rung != 0 or any_doorbell(self.slot)

    cdef int service_doorbells(self) except -1:
        """Service doorbells: read the rings of the workers that set them."""
        cdef WorkerPort port
        cdef uint64_t rung = self.port_work.rung | take_doorbells(self.slot)
        self.port_work.rung = 0
        while rung:
            port = self.ports[take_lowest(&rung)]
            self.clock()
            port.service_doorbell()
        return 0

    cdef int read_rings(self) except -1:
        """Read pending ring records before a control message is processed.

        The supervisor may already know of events that these records precede. For example, a consumer's outcomes have
        to be processed before the end of the consumer's link.
        """
        cdef int turns = RING_PASSES_BEFORE_CONTROL
        while turns and self.doorbell_is_set():
            self.service_doorbells()
            turns -= 1
        return 0

    cdef int wait(self, PollEvent* events, int timeout, uint64_t owed) except -2:
        """Wait at most `timeout` ms for events (-1: no limit), or at most `owed` ns, when a deferred wake-up is due
        (0: none)."""
        cdef int n
        if timeout == 0 or owed == 0:
            return self.poller.wait(events, EVENTS_PER_WAKE, timeout)
        n = self.poller.wait_ns(events, EVENTS_PER_WAKE, owed)
        self.port_work.patient = self.poller.precise
        return n

    cdef int wake(self, int timeout, uint64_t owed) except -1:
        cdef PollEvent[EVENTS_PER_WAKE] events
        cdef int n, light
        cdef uint64_t begun
        cdef bint stopped = False
        if timeout and not self.waits_since:
            self.waits_since = self.poller.now()
        n = self.wait(events, timeout, owed)
        while n < 0 and errno == EINTR:
            # EINTR: the process was stopped and resumed, whatever its sockets hold. Poll again.
            stopped = True
            n = self.poller.wait(events, EVENTS_PER_WAKE, 0)
        clear_sleeping(self.slot)
        if n < 0:
            raise OSError(errno, os.strerror(errno))
        self.slot.wakes += 1
        self.clock()
        if self.waits_since:
            self.scheduler.capacity_share.waited_ns += self.scheduler.now_ns - self.waits_since
            self.waits_since = 0
        self.scheduler.begin_wake()
        if stopped or (self.timers and self.scheduler.now >= <uint64_t>self.timers[0][0] + HELD_UP_MS):
            self.went_on = self.scheduler.now
        begun = self.scheduler.now_ns
        if self.last_fd >= 0:
            # The last wake was cut short. Start with the sockets that it did not handle.
            rotate_events(events, n, self.last_fd)
            self.last_fd = -1
            light = n
        else:
            light = self.order_bulk_last(events, n)
        if self.handle_events(events, light, begun) and light < n:
            if light and self.scheduler.dirty:
                self.send_output()         # messages of quiet connections do not wait for those of bulk senders
            self.clock()
            self.handle_events(events + light, n - light, begun)
        return 0

    cdef int order_bulk_last(self, PollEvent* events, int n) except -1:
        """Order the events of transports that read much lately behind all others. Return the number of the others."""
        cdef PollEvent[EVENTS_PER_WAKE] bulk
        cdef int light = 0
        cdef int i
        for i in range(n):
            what = self.transports[events[i].fd]
            if isinstance(what, Transport) and (<Transport>what).reads_bulk:
                bulk[i - light] = events[i]
            else:
                events[light] = events[i]
                light += 1
        memcpy(events + light, bulk, (n - light) * sizeof(PollEvent))
        return light

    cdef bint handle_events(self, const PollEvent* events, int n, uint64_t begun) except -1:
        """Handle events of descriptors. False: some are left, since the wake takes long; epoll reports them again."""
        cdef int fd = -1
        cdef int k = 0
        cdef object what = None
        while k < n:
            try:
                while k < n:
                    if fd >= 0:
                        self.clock()
                        if self.scheduler.now_ns - begun > LONG_WAKE_NS:
                            self.last_fd = fd
                            return False
                    fd = events[k].fd
                    what = self.transports[fd]
                    k += 1
                    if what is not None:
                        self.handle_event(what, events[k - 1].events)
            except Exception as fault:
                if not isinstance(what, Transport):
                    raise
                (<Transport>what).ended_by(fault)
        return True

    cdef int handle_event(self, object what, uint32_t events) except -1:
        """Handle the epoll events of one descriptor."""
        cdef uint64_t begun
        cdef Transport transport
        if not isinstance(what, Transport):
            begun = self.scheduler.now_ns
            self.read_rings()
            what()
            self.scheduler.charge_admission(begun)
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

    cdef int read_buffered_transports(self) except -1:
        """Read each transport with buffered octets once, since no event announces these."""
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

    cdef int admit_clients(self) except -1:
        """Let waiting clients make the admission steps that this wake reserved for them."""
        cdef Transport transport
        cdef uint64_t begun = self.poller.now()
        self.scheduler.release_admission_steps()
        while self.scheduler.may_admit():
            transport = self.scheduler.take_first_entering()
            if transport.fd >= 0:
                self.clock()
                try:
                    transport.make_admission_step()
                except Exception as fault:
                    transport.ended_by(fault)
        self.scheduler.charge_admission(begun)
        return 0

    cdef int finish_wake(self) except -1:
        cdef uint64_t begun
        if self.inside:
            self.read_buffered_transports()
        if self.doorbell_is_set():
            self.service_doorbells()
        if self.control is not None and self.control.busy:
            begun = self.poller.now()
            self.scheduler.begin_time_budget()
            self.control.go_on()
            self.scheduler.charge_admission(begun)
        if self.timers:
            self.run_timers()
        if self.scheduler.starved:
            self.check_starved()
        if self.scheduler.losing:
            self.scheduler.begin_time_budget()
            self.scheduler.end_lost_links()
        self.send_output()
        if self.scheduler.admission_steps_reserved:
            self.admit_clients()           # after all established clients
        if self.scheduler.turns:
            self.scheduler.grant_turns()
        if self.scheduler.sliced:
            self.scheduler.resume_sliced()
        if self.scheduler.resumed:
            self.scheduler.begin_time_budget()
            self.resume_connections()
            self.flush_connections()
            self.flush_ports()         # resumed frames may have written ring records
        if self.control is not None and self.control.dirty:
            self.control.send()
        if stored_octets() != self.slot.buffered:
            if stored_octets() >= MUCH_OCTETS or self.slot.buffered >= MUCH_OCTETS:
                self.note_memory_use()
            self.slot.buffered = stored_octets()
        self.scheduler.memory.note_content(self.slot.buffered, delivery_octets())
        if self.scheduler.memory.windows_to_shorten:
            self.scheduler.memory.shorten_some_windows()
        if pools_grew() or blocks_grew():
            self.note_memory_use()
        self.slot.windows_shut = self.scheduler.memory.windows_shut
        if self.scheduler.memory.given_up:
            self.slot.given_up += self.scheduler.memory.given_up
            self.scheduler.memory.given_up = 0
        return 0

    cdef int send_output(self) except -1:
        """Send what is to be sent to other workers, to the supervisor and to peers."""
        if self.port_work.dirty:
            # Flush before the writes below, so that other workers run in parallel. Ring records must also precede the
            # events for the supervisor; see `read_rings`.
            self.flush_ports()
        if self.control is not None and self.control.dirty:
            # Send before clients are answered: management must know the answers that clients have received.
            self.control.send()
        self.flush_connections()
        return self.flush_ports()

    cdef int flush_ports(self) except -1:
        """Flush ports with records for their peers, and ports that wait for room, which the peers may have made by
        now.

        Pause connections read in this wake if their records do not fit into a ring.
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
        """Let each dirty connection write once in this wake.

        Writing for one connection may make another one dirty. A connection that has more to write than fits its turn,
        or becomes dirty again after it, continues in the next wake, after other connections were read.
        """
        cdef list dirty
        cdef list later = []
        while self.scheduler.dirty:
            dirty = self.scheduler.dirty
            self.scheduler.dirty = []
            self.flush_all(order_deliveries_first(dirty) if len(dirty) > 1 else dirty, later)
        self.scheduler.dirty = later
        return 0

    cdef int flush_all(self, list dirty, list later) except -1:
        cdef Connection connection
        cdef Transport transport = None  # keeps a reference while the transport closes itself
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
        """Check links and sessions whose receivers take nothing; see `Scheduler.starved`."""
        starved = self.scheduler.starved
        self.scheduler.starved = []
        for each in starved:
            try:
                due = each.check_starved()
            except Exception as fault:
                each.end_by(fault)
                continue
            if due:
                self.call_at(due, self.recheck_starved(each))

    def recheck_starved(self, each):
        return lambda: self.scheduler.starved.append(each)
