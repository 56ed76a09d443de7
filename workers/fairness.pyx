"""Fairness of a worker: budgets and pacing of the work in a wake of its event loop, and the order of writes.

Turns and slices of connections are in `router/amqp/scheduler.pyx`. See docs/internals/engine.md, "A wake".
"""
from libc.stdint cimport int64_t

from sluice.router.amqp.buffer cimport buffer_used
from sluice.router.amqp.connection cimport Connection
from sluice.router.pacing.admission_share cimport ACTIVE_MS, SMALL_SHARE_DIVISOR, share_divisor

import heapq

cdef enum:
    # Time budget of each kind of interpreter work in a wake, of which at least one item is done. A quiet worker does
    # more at once, since each wake has its cost, and each batch of attaches one for all workers.
    BUDGET_WHILE_ACTIVE_NS = 150000
    BUDGET_WHILE_QUIET_NS = 3000000
    # Further bounds while established clients are active: new frames for the interpreter in a wake, and connections
    # that get a turn. Each of these frames may also wake another worker.
    FRAMES_WHILE_ACTIVE = 8
    TURNS_WHILE_ACTIVE = 2
    # Admission steps in a wake. Frames up to and including the open take a tenth of a millisecond.
    ADMISSION_STEPS_PER_WAKE = 32
    # Admission bucket: unused time that may be used later, and the largest deficit.
    BUCKET_CAPACITY_NS = 500000
    MAX_DEFICIT_NS = 1000000
    NS_A_MS = 1000000


cdef list order_deliveries_first(list dirty):
    """Return `dirty` with connections that have deliveries to write before those with only outcomes and credit.

    Consumers wait for the deliveries. Sessions collect outcomes and credit until they are written.
    """
    cdef list first = []
    cdef list others = []
    cdef Connection connection
    for connection in dirty:
        (first if buffer_used(&connection.out) else others).append(connection)
    return first + others if first else others


cdef class LoopScheduler(Scheduler):
    def __cinit__(self, Poller poller not None):
        self.poller = poller
        self.entering = []
        self.admission_bucket = TokenBucket(BUCKET_CAPACITY_NS, MAX_DEFICIT_NS)
        self.admission_steps_left = ADMISSION_STEPS_PER_WAKE

    cpdef void begin_wake(self) noexcept:
        """Allow the frames, losses and admission steps of a new wake, whose time has been set."""
        Scheduler.begin_wake(self)
        self.admission_bucket.refill(self.now_ns, self.admission_divisor(), 0)
        self.shared = self.has_active_clients()
        self.begin_time_budget()
        if self.shared:
            self.frames_left = FRAMES_WHILE_ACTIVE
            self.turns_at_once = TURNS_WHILE_ACTIVE
            self.admission_steps_left = 0
            self.admission_steps_reserved = 1 if self.entering and self.admission_bucket.tokens > 0 else 0
        else:
            self.admission_steps_reserved = ADMISSION_STEPS_PER_WAKE if self.entering else 0
            self.admission_steps_left = ADMISSION_STEPS_PER_WAKE - self.admission_steps_reserved

    cdef bint has_active_clients(self) noexcept:
        """True if established clients are active."""
        return self.now < self.active_at + ACTIVE_MS

    # -- interpreter work ---------------------------------------------------------------------------------------------

    cdef void begin_time_budget(self) noexcept:
        self.budget_ends = self.poller.now() + (BUDGET_WHILE_ACTIVE_NS if self.shared else BUDGET_WHILE_QUIET_NS)

    cpdef bint has_time(self) noexcept:
        return self.poller.now() < self.budget_ends

    # -- admission ----------------------------------------------------------------------------------------------------

    cdef int admission_divisor(self) noexcept:
        """Return the divisor of the worker's time that admission gets now."""
        cdef uint64_t waits_since
        if not self.entering:
            return SMALL_SHARE_DIVISOR
        waits_since = self.entering[0][1]
        return share_divisor(self.now - waits_since)

    cdef int admission_delay(self) noexcept:
        """Return the time in ms until a waiting client may take its next admission step."""
        if self.admission_bucket.tokens > 0 or not self.has_active_clients():
            return 0
        return <int>(self.admission_bucket.delay(self.admission_divisor()) // NS_A_MS) + 1

    cdef void charge_admission(self, uint64_t begun) noexcept:
        """Take the time since `begun` (ns) from the admission bucket, after admission work or a control message."""
        self.admission_bucket.spend(<int64_t>(self.poller.now() - begun))

    cdef bint take_admission_step(self, int32_t cost) noexcept:
        """Take `cost` of this wake's admission steps. False: none is left, and the client must wait for a later wake.

        An admission step is one read of a connecting client: a part of its handshake, or frames up to the open. Each
        costs interpreter work. The limit keeps a connection burst from delaying established clients.
        """
        if self.admission_steps_left <= 0:
            return False
        self.admission_steps_left -= cost
        return True

    cdef void allow_admission_step(self) noexcept:
        """Allow at least one more admission step in this wake."""
        self.admission_steps_left = max(self.admission_steps_left, 1)

    cdef void release_admission_steps(self) noexcept:
        """Make the reserved admission steps available to clients in `entering`."""
        self.admission_steps_left += self.admission_steps_reserved
        self.admission_steps_reserved = 0

    cdef uint64_t take_place(self) noexcept:
        """Return the place of a client in the order of admission, behind all others."""
        self.last_place += 1
        return self.last_place

    cdef int add_entering(self, uint64_t place, uint64_t since, object transport) except -1:
        """Queue a transport whose peer waits for an admission step. place: of its client. since: time in ms at which
        the client first had to wait."""
        heapq.heappush(self.entering, (place, since, transport))
        return 0

    cdef bint may_admit(self) noexcept:
        """True if a client waits and an admission step is left."""
        return bool(self.entering) and self.admission_steps_left > 0

    cdef object take_first_entering(self):
        """Return the transport whose client has the first place, and remove it from the queue."""
        return heapq.heappop(self.entering)[2]
