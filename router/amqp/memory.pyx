"""The bound of memory: octets of messages that a connection, and the process, may hold (docs/internals/credit.md).

At a bound nobody gets credit or a window for what is held up. Where that lasts although somebody waits for room, the
link ends that holds most of what nobody takes.
"""
from libc.string cimport memset

from router.amqp.meter cimport meter_new, meter_release
from router.amqp.survey cimport STANDSTILL_MS

cdef enum:
    WALK_MS = 100              # from one look at all links of the process on behalf of one connection to the next
    COPIES_A_LOOK = 100000     # messages in the queues of consumers that one look at the bound counts


cdef class ProcessMemory:
    def __cinit__(self, Clock clock not None):
        self.clock = clock
        self.withheld = set()
        self.connections = set()
        self.content_limit = PROCESS_CONTENT

    cdef int note_content(self, uint64_t held) except -1:
        """The process holds so many octets of messages. Between both marks nothing changes, so that it does not turn
        on and off with each message."""
        cdef ConnectionMemory connection
        self.content = held
        if held >= self.content_limit:
            self.crowded = True
            if not self.watched:
                self.watched = True
                self.clock.starved.append(self)
        elif self.crowded and held < self.content_limit - self.content_limit // 4:
            self.crowded = False
            withheld = self.withheld
            self.withheld = set()
            for connection in withheld:
                connection.grant_withheld()
                connection.room_again()
        return 0

    def check_starved(self):
        """For the event loop while the process holds all that it may: returns when (ms) to look again, 0: never. Where
        somebody has waited for room for STANDSTILL_MS, the link ends that holds most of what nobody takes. While others
        are served, and what is stuck is too little to matter, there will be room without that."""
        cdef ConnectionMemory connection
        cdef Survey held, queued
        cdef bint waited = False
        cdef size_t total
        if not self.crowded:
            self.watched = False
            return 0
        for connection in self.withheld:
            if not connection.content_full():
                waited = connection.stands_still() or waited
        memset(&held, 0, sizeof(Survey))
        self.survey(&held)
        if waited or self.content >= self.content_limit + self.content_limit // 4:
            # What came from other workers no window of ours holds back. Or the links are gone by which it came.
            self.survey_consumers(&queued, NULL)
            total = held.stuck + held.moving + queued.stuck + queued.moving
            if queued.most is not NULL and queued.stuck >= held.stuck and queued.stuck >= total // 4:
                self.end_most(&queued)
            elif waited and held.most is not NULL and held.stuck >= total // 4:
                self.end_most(&held)
        return self.clock.now + STANDSTILL_MS

    cdef void survey(self, Survey* found) noexcept:
        cdef ConnectionMemory connection
        found.now = self.clock.now
        for connection in self.connections:
            connection.survey(found)

    cdef void survey_consumers(self, Survey* found, const Meter* connection) noexcept:
        memset(found, 0, sizeof(Survey))
        found.consumers = True
        found.connection = connection
        found.budget = COPIES_A_LOOK
        self.survey(found)

    cdef int end_most(self, Survey* found) except -1:
        cdef Endpoint most = <Endpoint>found.most
        try:
            most.last_resort(found.most_held)
        except Exception as fault:
            most.end_by(fault)
        return 0

    def end_by(self, fault):
        """No connection is to blame for it."""
        raise fault


cdef class ConnectionMemory:
    def __dealloc__(self):
        if self.content is not NULL:
            self.content.owner = NULL
            meter_release(self.content)

    cdef Meter* content_meter(self) except NULL:
        if self.content is NULL:
            self.content = meter_new(<void*>self, connection_freed)
        return self.content

    cdef bint content_full(self) noexcept:
        """It holds all that it may."""
        return self.content is not NULL and self.content.held >= self.content_limit

    cdef bint full(self) noexcept:
        """It holds all that it may, or the process does."""
        return self.process.crowded or self.content_full()

    cdef void wait_for_room(self, Channel channel) noexcept:
        """The session's window is shut because of that. See to it that this does not last."""
        if self.shut is None:
            self.shut = set()
        self.shut.add(channel)
        if self.process.crowded:
            self.process.withheld.add(self)
        if not self.watched:
            self.watched = True
            self.process.clock.starved.append(self)

    cdef void room_again(self) noexcept:
        """It is not full any more."""
        cdef Channel channel
        cdef set shut = self.shut
        self.shut = None
        if shut is not None:
            for channel in shut:
                channel.room_again()

    def check_starved(self):
        """For the event loop while sessions wait for room: returns when (ms) to look again, 0: never. Where one has
        done so for STANDSTILL_MS, a link of the connection ends: of those of which nobody takes anything the one that
        holds most. Where links that are gone have left more, it is a consumer of that."""
        cdef Survey held, queued
        cdef ProcessMemory process = self.process
        cdef bint waited
        if not self.shut:
            self.watched = False
            return 0
        if not self.full():
            self.room_again()
        if not self.content_full():
            return process.clock.now + STANDSTILL_MS
        waited = self.stands_still()
        memset(&held, 0, sizeof(Survey))
        held.now = process.clock.now
        self.survey(&held)
        if self.content.held > 2 * held.stuck + held.moving:
            if process.clock.now - process.walked < WALK_MS:
                return process.clock.now + WALK_MS
            process.walked = process.clock.now
            process.survey_consumers(&queued, self.content)
            if queued.stuck + queued.moving > held.stuck:
                held = queued
        if waited and held.most is not NULL:
            process.end_most(&held)
        return process.clock.now + STANDSTILL_MS

    cdef bint stands_still(self) noexcept:
        """Some session has waited for room for STANDSTILL_MS."""
        cdef Channel channel
        cdef bint any = False
        if self.shut is None:
            return False
        for channel in self.shut:
            any = channel.stands_still(self.process.clock.now) or any
        return any

    cdef void survey(self, Survey* found) noexcept:
        """Add what its links hold."""
        cdef Channel channel
        for channel in self.local_channels.values():
            channel.survey(found)

    cdef void withhold(self, Endpoint link) noexcept:
        """The link's `grant` is to be called when the connection is not full any more. Once for each link."""
        if self.withheld is None:
            self.withheld = []
        self.withheld.append(link)
        if self.process.crowded:
            self.process.withheld.add(self)

    cdef void grant_withheld(self) noexcept:
        cdef Endpoint link
        cdef list withheld = self.withheld
        self.withheld = None
        if withheld is not None:
            for link in withheld:
                link.grant_again()

    cdef void let_go(self) noexcept:
        """Its sessions have ended: nothing of it waits for room any more."""
        self.withheld = None
        self.shut = None
        self.process.withheld.discard(self)
        self.process.connections.discard(self)


cdef void connection_freed(void* owner) noexcept:
    cdef ConnectionMemory connection = <ConnectionMemory>owner
    if not connection.withheld and not connection.shut:
        return
    if connection.process.crowded:
        connection.process.withheld.add(connection)
        return
    if connection.shut and not connection.content_full():
        connection.room_again()
    if connection.withheld and connection.content.held < connection.content_limit - connection.content_limit // 4:
        connection.grant_withheld()
