"""Bounds of memory: octets of messages and deliveries that a connection, and the process, may hold
(docs/internals/credit.md).

At a bound, links and sessions that hold something get no credit and no window. If the shortage lasts while somebody
waits for room, the link that holds most octets that nobody takes is evicted.
"""
from libc.string cimport memset

from sluice.router.amqp.meter cimport meter_new, meter_release
from sluice.router.amqp.survey cimport STANDSTILL_MS

cdef enum:
    WALK_MS = 100              # time between surveys of all links of the process on behalf of one connection
    COPIES_PER_SURVEY = 100000     # most messages in consumers' queues that one check of the bound counts


cdef class ProcessMemory:
    def __cinit__(self, Clock clock not None):
        self.clock = clock
        self.withheld = set()
        self.connections = set()
        self.content_limit = PROCESS_CONTENT
        self.windows_to_shorten = []

    cdef int note_content(self, uint64_t stored, uint64_t deliveries) except -1:
        """Update the octets held by messages and deliveries, and enter or leave the crowded state.

        The process becomes crowded at its limit and stays so until a quarter is free, so that the state does not flip
        with each message.
        """
        cdef ConnectionMemory connection
        cdef uint64_t held = stored + deliveries
        self.content = held
        self.deliveries = deliveries
        if is_short(held, self.content_limit):
            if held >= self.withdraw_at:
                self.withdraw_at = next_withdrawal(held, self.content_limit)
                self.windows_to_shorten = list(self.connections)
        else:
            self.withdraw_at = 0
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
                connection.reopen_window()
        return 0

    cdef uint64_t guaranteed_octets(self) noexcept:
        """Return the octets that each connection may hold, whatever others hold, so that connections whose messages
        pass make progress."""
        return min(self.content_limit // (LEAST_SHARE * max(len(self.connections), 1)), LEAST_MOST)

    cdef uint64_t window_octets(self) noexcept:
        """Return the octets that the windows of one connection may promise. While half of the bound is used, all
        connections share what is free."""
        if not is_short(self.content, self.content_limit):
            return NO_BOUND
        self.withdraw_at = min(self.withdraw_at, next_withdrawal(self.content, self.content_limit))
        return max(free_of(self.content, self.content_limit) // max(len(self.connections), 1), self.guaranteed_octets())

    cdef void shorten_some_windows(self) noexcept:
        """Shorten the windows of up to SHORTENED_CONNECTIONS_PER_WAKE connections."""
        cdef ConnectionMemory connection
        for connection in self.windows_to_shorten[-SHORTENED_CONNECTIONS_PER_WAKE:]:
            connection.shorten_windows()
        del self.windows_to_shorten[-SHORTENED_CONNECTIONS_PER_WAKE:]

    def check_starved(self):
        """Check the bound while the process is crowded; return the time in ms of the next check, 0: none.

        If somebody has waited for room for STANDSTILL_MS, evict the link that holds most octets that nobody takes. If
        other links are served and the stuck octets are too few to matter, room becomes free without that.
        """
        cdef ConnectionMemory connection
        cdef Survey held, queued
        cdef bint waited = False
        cdef LastResort ended = ENDED_NOTHING
        cdef size_t total
        if not self.crowded:
            self.watched = False
            return 0
        if self.clock.now < self.look_at:
            if is_exceeded(self.content, self.content_limit):
                # No window limits what other workers and routers send.
                self.survey_consumers(&queued, NULL, 0)
                self.end_awaited(&queued)
            return self.clock.now + WALK_MS
        for connection in self.withheld:
            if not connection.content_full():
                waited = connection.has_waited_too_long() or waited
        memset(&held, 0, sizeof(Survey))
        self.survey(&held)
        if waited or is_exceeded(self.content, self.content_limit):
            # No window here limits what other workers send, and the links by which messages came may have ended.
            self.survey_consumers(&queued, NULL, COPIES_PER_SURVEY)
            total = held.stuck + held.moving + held.unrouted + queued.stuck + queued.moving + self.deliveries
            ended = self.end_awaited(&queued)
            if ended == ENDED_NOTHING and queued.stuck >= held.stuck:
                ended = self.end_most(&queued, total)
            if waited and ended == ENDED_NOTHING:
                ended = self.end_most(&held, total)
        # Check again soon after these evictions. Thousands of links may hold a little of an unrouted message each, and
        # nobody can take any of it, so there is no progress to wait for. Likewise many connections may have deliveries
        # that they do not settle.
        self.look_at = self.clock.now + (WALK_MS if ended >= ENDED_UNROUTED else STANDSTILL_MS)
        return self.clock.now + WALK_MS

    cdef void survey(self, Survey* found) noexcept:
        """Add the octets held by the links of all connections. The candidate for unrouted messages is a link of the
        connection that holds most of them, so that spreading them over many links does not protect from eviction."""
        cdef ConnectionMemory connection
        cdef void* link = NULL
        cdef size_t held = 0
        cdef size_t most = 0
        cdef size_t before, awaited
        found.now = self.clock.now
        for connection in self.connections:
            before = found.unrouted
            awaited = found.awaited
            found.unrouted_link = NULL
            found.unrouted_held = 0
            connection.survey(found)
            if found.unrouted_link is not NULL and found.unrouted - before > most:
                most = found.unrouted - before
                link = found.unrouted_link
                held = found.unrouted_held
            if found.awaited - awaited > found.largest_awaited:
                found.largest_awaited = found.awaited - awaited
                found.awaited_by = <void*>connection
        found.unrouted_link = link
        found.unrouted_held = held

    cdef void survey_consumers(self, Survey* found, const Meter* connection, uint32_t copies) noexcept:
        memset(found, 0, sizeof(Survey))
        found.consumers = True
        found.connection = connection
        found.budget = copies
        self.survey(found)

    cdef LastResort end_most(self, Survey* found, size_t total) except *:
        """Evict the stuck link that holds most, if stuck links hold a quarter of `total`; otherwise the link with most
        octets of an unrouted message, if unrouted messages are a quarter."""
        cdef Endpoint most
        cdef LastResort ended
        cdef size_t held
        if found.most is not NULL and found.stuck >= total // 4:
            most = <Endpoint>found.most
            held = found.most_held
            ended = ENDED_STUCK
        elif found.unrouted_link is not NULL and found.unrouted >= total // 4:
            most = <Endpoint>found.unrouted_link
            held = found.unrouted_held
            ended = ENDED_UNROUTED
        else:
            return ENDED_NOTHING
        try:
            most.last_resort(held)
        except Exception as fault:
            most.end_by(fault)
        return ended

    cdef LastResort end_awaited(self, Survey* consumers) except *:
        """Close the connection whose peer has most unsettled deliveries, if the unsettled deliveries of all clients
        and brokers are a quarter of what the process holds."""
        cdef ConnectionMemory connection
        if consumers.awaited_by is NULL or consumers.awaited < self.content // 4 \
                or consumers.largest_awaited < self.guaranteed_octets():
            return ENDED_NOTHING
        connection = <ConnectionMemory>consumers.awaited_by
        connection.close_for_awaited(consumers.largest_awaited)
        return ENDED_AWAITED

    def end_by(self, fault):
        """Raise the fault again: it belongs to no connection."""
        raise fault


cdef class ConnectionMemory:
    def __dealloc__(self):
        if self.crossed is not NULL:
            meter_release(self.crossed)
        if self.content is not NULL:
            self.content.owner = NULL
            meter_release(self.content)

    cdef Meter* content_meter(self) except NULL:
        if self.content is NULL:
            self.content = meter_new(<void*>self, connection_freed)
            self.content.awaited = True
        return self.content

    cdef Meter* crossed_meter(self) except NULL:
        if self.crossed is NULL:
            self.crossed = meter_new(NULL, NULL, self.content_meter())
        return self.crossed

    cdef bint content_full(self) noexcept:
        """True if the connection holds all octets that it may."""
        return self.content is not NULL and self.content.held >= self.content_limit

    cdef bint full(self) noexcept:
        """True if the connection or the process holds all octets that it may."""
        return self.process.crowded or self.content_full()

    cdef bint must_defer_transfer(self, bint promised) noexcept:
        """True if a transfer has to wait in the socket. promised: the current window covers the transfer.

        That is so if the connection exceeds its bound by a quarter, or if the process does, the connection holds more
        than its least part and the transfer is not promised.
        """
        cdef uint64_t held = self.content.held if self.content is not NULL else 0
        return is_exceeded(held, self.content_limit) \
            or (not promised and is_exceeded(self.process.content, self.process.content_limit)
                and held - (self.crossed.held if self.crossed is not NULL else 0) >= self.process.guaranteed_octets())

    cdef uint64_t window_octets(self) noexcept:
        """Return the octets that the window of one session may promise. All sessions together get 1/FREE_PROMISED of
        what is free."""
        cdef uint64_t held = self.content.held if self.content is not NULL else 0
        cdef uint64_t octets = min(free_of(held, self.content_limit) // FREE_PROMISED, self.process.window_octets())
        if is_short(held, self.content_limit):
            self.withdraw_at = min(self.withdraw_at, next_withdrawal(held, self.content_limit))
        else:
            self.withdraw_at = 0
        return octets // max(self.local_channels.count, 1)

    cdef void withdraw_windows(self) noexcept:
        """Shorten the windows of all sessions if half of what was free when they were opened is used."""
        if is_short(self.content.held, self.content_limit) and self.content.held >= self.withdraw_at:
            self.withdraw_at = next_withdrawal(self.content.held, self.content_limit)
            self.shorten_windows()

    cdef void shorten_windows(self) noexcept:
        """Take back the part of each session's window that exceeds `window_octets`."""
        cdef Channel channel
        for channel in self.local_channels.values():
            channel.shorten_window()

    cdef void wait_for_room(self, Channel channel) noexcept:
        """List a session whose window is shut for lack of memory, and have the shortage checked."""
        if self.shut is None:
            self.shut = set()
        self.shut.add(channel)
        self.watch_meter()
        if self.process.crowded:
            self.process.withheld.add(self)
        if not self.watched:
            self.watched = True
            self.process.clock.starved.append(self)

    cdef void watch_meter(self) noexcept:
        if self.content is not NULL:
            self.content.awaited = True

    cdef void reopen_window(self) noexcept:
        """Reopen the windows of sessions that waited for room."""
        cdef Channel channel
        cdef set shut = self.shut
        self.shut = None
        if shut is not None:
            for channel in shut:
                channel.reopen_window()

    def check_starved(self):
        """Check the bound while sessions wait for room; return the time in ms of the next check, 0: none.

        If a session has waited for STANDSTILL_MS, evict the stuck link of the connection that holds most. If ended
        links have left more in consumers' queues, evict a consumer of those messages instead.
        """
        cdef Survey held, queued
        cdef ProcessMemory process = self.process
        cdef bint waited
        cdef size_t awaited
        if not self.shut:
            self.watched = False
            return 0
        if not self.full():
            self.reopen_window()
        if not self.content_full():
            return process.clock.now + STANDSTILL_MS
        waited = self.has_waited_too_long()
        memset(&held, 0, sizeof(Survey))
        held.now = process.clock.now
        self.survey(&held)
        # Unsettled deliveries count, but no link is evicted for them here: their producer waits until the consumers
        # settle them. So do messages that other workers have.
        awaited = held.awaited + (self.crossed.held if self.crossed is not NULL else 0)
        if self.content.held > 2 * held.stuck + held.moving + held.unrouted + awaited:
            if process.clock.now - process.surveyed_at < WALK_MS:
                return process.clock.now + WALK_MS
            process.surveyed_at = process.clock.now
            process.survey_consumers(&queued, self.content, COPIES_PER_SURVEY)
            if queued.stuck + queued.moving > held.stuck:
                held = queued
        if waited:
            process.end_most(&held, held.stuck + held.unrouted + awaited)
        return process.clock.now + STANDSTILL_MS

    cdef bint has_waited_too_long(self) noexcept:
        """True if some session has waited for room for STANDSTILL_MS."""
        cdef Channel channel
        cdef bint any = False
        if self.shut is None:
            return False
        for channel in self.shut:
            any = channel.has_waited_too_long(self.process.clock.now) or any
        return any

    cdef void survey(self, Survey* found) noexcept:
        """Add the octets held by the links of the connection."""
        cdef Channel channel
        for channel in self.local_channels.values():
            channel.survey(found)

    cdef void withhold(self, Endpoint link) noexcept:
        """Have the link's `grant` called when the connection is no longer full. To be called once for each link."""
        if self.withheld is None:
            self.withheld = []
        self.withheld.append(link)
        self.watch_meter()
        if self.process.crowded:
            self.process.withheld.add(self)

    cdef void grant_withheld(self) noexcept:
        cdef Endpoint link
        cdef list withheld = self.withheld
        self.withheld = None
        if withheld is not None:
            for link in withheld:
                link.grant_again()

    cdef int close_for_awaited(self, size_t octets) except -1:
        raise NotImplementedError

    cdef void let_go(self) noexcept:
        """Remove the connection from all lists of those that wait for room, after its sessions have ended."""
        self.withheld = None
        self.shut = None
        self.process.withheld.discard(self)
        self.process.connections.discard(self)


cdef void connection_freed(void* owner) noexcept:
    cdef ConnectionMemory connection = <ConnectionMemory>owner
    if not connection.withheld and not connection.shut:
        connection.content.awaited = False
        return
    if connection.process.crowded:
        connection.process.withheld.add(connection)
        return
    if connection.shut and not connection.content_full():
        connection.reopen_window()
    if connection.withheld and connection.content.held < connection.content_limit - connection.content_limit // 4:
        connection.grant_withheld()
