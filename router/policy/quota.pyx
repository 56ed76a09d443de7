"""Quotas of a vhost and of one of its groups, shared by their connections on all workers.

A rate is a token bucket with a capacity of one second. It is stored as one word in shared memory: the time up to which
the rate is used ("theoretical arrival time" of the generic cell rate algorithm), advanced by each arriving message.
While that time is more than a second ahead, links get no credit and sessions no window. Messages that arrive on credit
granted before are accepted and delay the next grant. So no message is lost, and the rate holds over time. A link gets
an equal share of the remaining tokens, at least one delivery; otherwise idle links would hold tokens that others need.

Octets held are summed over all workers when a worker reads them, at most once every `LOOK_NS`.
"""
from libc.stdint cimport UINT32_MAX, uint32_t, uint64_t

from sluice.router.amqp.connection cimport Connection
from sluice.router.amqp.meter cimport Meter
from sluice.router.amqp.link cimport Link
from sluice.router.amqp.session cimport Session
from sluice.router.ring.atomics cimport RELAXED, compare_exchange64, fetch_add64, load64

cdef enum:
    SECOND = 1000000000        # ns
    LOOK_NS = 5000000          # least time between two reads of the octets held
    LOOK_MS = 10               # time between two calls of `look` while octets held block a grant or must be reported
    MILLISECOND = 1000000      # ns
    WAKE_MOST = 256            # sessions woken at once; also links woken beyond the number of available tokens


cdef inline void use_up(uint64_t* until, uint64_t cost, uint64_t now) noexcept nogil:
    """Advance the time up to which a rate is used. Unused time in the past expires."""
    cdef uint64_t seen = load64(until, RELAXED)
    if seen < now:
        # If the exchange fails, another worker has just done the same.
        compare_exchange64(until, &seen, now, False, RELAXED, RELAXED)
    fetch_add64(until, cost, RELAXED)


cdef class TenantQuota(Quota):
    def __init__(self, Region region not None, int worker, Clock clock not None, call_at, scopes):
        """Create a quota for the worker with index `worker`.

        `call_at(ms, function)` schedules a call. `scopes` has for each scope the slot, messages per second, octets per
        second and buffered octets; 0: no limit.
        """
        cdef Scope* scope
        self.region = region
        self.worker = worker
        self.clock = clock
        self.call_at = call_at
        self.connections = set()
        self.links = {}
        self.sessions = {}
        for slot, messages, octets, buffered in scopes:
            if self.count == SCOPES_MOST:
                raise ValueError(f"a connection has more than {SCOPES_MOST} quotas")
            scope = &self.scopes[self.count]
            scope.slot = region.quota_slot(slot)
            scope.message_ns = max(SECOND // <uint64_t>messages, 1) if messages else 0
            scope.octet_ns = <double>SECOND / octets if octets else 0.0
            scope.buffered_most = buffered
            scope.buffered = 0
            self.bounds_octets = self.bounds_octets or buffered != 0
            self.count += 1

    def join(self, Connection connection not None):
        """Add a connection that shares the quota."""
        self.connections.add(connection)

    def leave(self, Connection connection not None):
        """Remove a connection that is closed or has got another quota."""
        self.connections.discard(connection)
        self.note_buffered(self.clock.now_ns)

    cdef Meter* queued_meter(self) except NULL:
        if self.bounds_octets and not self.due:
            self.look_later()              # as for octets of `charge`
        return Quota.queued_meter(self)

    cdef void charge(self, uint64_t octets, bint first) noexcept:
        cdef uint64_t now = self.clock.now_ns
        cdef Scope* scope
        cdef int i
        for i in range(self.count):
            scope = &self.scopes[i]
            if first:
                fetch_add64(&scope.slot.messages, 1, RELAXED)
                if scope.message_ns:
                    use_up(&scope.slot.messages_until, scope.message_ns, now)
            fetch_add64(&scope.slot.octets, octets, RELAXED)
            if scope.octet_ns and octets:
                use_up(&scope.slot.octets_until, <uint64_t>(scope.octet_ns * octets + 0.5), now)
        if now - self.looked_at >= LOOK_NS:
            self.note_buffered(now)
        if self.bounds_octets and not self.due:
            # The octets of this message are stored after this call. Without a scheduled call they might never be
            # reported, if no further message arrives.
            self.look_later()

    cdef uint64_t tokens(self, uint64_t until, uint64_t cost_ns, uint64_t now) noexcept:
        """Return the remaining tokens of a rate that is used up to `until`; one token costs `cost_ns`."""
        cdef uint64_t burst = max(<uint64_t>SECOND, cost_ns)
        cdef uint64_t used = until - now if until > now else 0
        if used + cost_ns > burst:
            self.wanted = max(self.wanted, now + used + cost_ns - burst)
            return 0
        return (burst - used) // cost_ns

    cdef uint64_t messages_left(self) noexcept:
        """Return the messages that may be granted now to a link or session.

        If 0, `wanted` is set to the time of the next attempt.
        """
        cdef uint64_t now = self.clock.now_ns
        cdef uint64_t left = UINT32_MAX
        cdef uint64_t found
        cdef Scope* scope
        cdef int i
        self.wanted = 0
        if now - self.looked_at >= LOOK_NS:
            self.note_buffered(now)
        for i in range(self.count):
            scope = &self.scopes[i]
            if scope.buffered_most and scope.buffered >= scope.buffered_most:
                self.wanted = max(self.wanted, now + LOOK_MS * <uint64_t>MILLISECOND)
                left = 0
            if scope.message_ns:
                found = self.tokens(load64(&scope.slot.messages_until, RELAXED), scope.message_ns, now)
                left = min(left, max(found // max(load64(&scope.slot.links, RELAXED), 1), 1) if found else 0)
        return left

    cdef uint64_t octets_left(self) noexcept:
        """Return the octets that may be granted now to a link or session. If 0, `wanted` is set."""
        cdef uint64_t now = self.clock.now_ns
        cdef uint64_t left = <uint64_t>UINT32_MAX << 16
        cdef uint64_t until, used, found
        cdef Scope* scope
        cdef int i
        for i in range(self.count):
            scope = &self.scopes[i]
            if scope.octet_ns:
                until = load64(&scope.slot.octets_until, RELAXED)
                used = until - now if until > now else 0
                if used >= SECOND:
                    self.wanted = max(self.wanted, now + used - SECOND + MILLISECOND)
                    return 0
                found = <uint64_t>((SECOND - used) / scope.octet_ns)
                left = min(left, max(found // max(load64(&scope.slot.links, RELAXED), 1), 1))
            if scope.buffered_most and scope.buffered < scope.buffered_most:
                found = scope.buffered_most - scope.buffered
                left = min(left, max(found // max(load64(&scope.slot.links, RELAXED), 1), 1))
        return left

    cdef uint32_t units(self, uint64_t size) noexcept:
        """Return the number of messages of `size` octets that may be granted now to a link or session."""
        cdef uint64_t messages = self.messages_left()
        cdef uint64_t octets = self.octets_left()
        if messages == 0 or octets == 0:
            return 0
        return <uint32_t>max(min(messages, octets // max(size, 1), <uint64_t>UINT32_MAX), 1)

    cdef uint32_t deliveries(self, uint64_t mean) noexcept:
        return self.units(mean)

    cdef bint full(self) noexcept:
        cdef uint64_t most = self.clock.now_ns + SECOND
        cdef bint found = False
        cdef Scope* scope
        cdef int i
        for i in range(self.count):
            scope = &self.scopes[i]
            if load64(&scope.slot.octets_until, RELAXED) >= most \
                    or load64(&scope.slot.messages_until, RELAXED) + scope.message_ns > max(most, scope.message_ns):
                return False
            found = found or (scope.buffered_most and scope.buffered >= scope.buffered_most)
        return found

    cdef uint32_t frames(self, uint32_t size) noexcept:
        return self.units(size)

    cdef int wait_link(self, object link) except -1:
        return self.wait(self.links, link)

    cdef int wait_session(self, object session) except -1:
        return self.wait(self.sessions, session)

    cdef int wait(self, dict waiting, object waiter) except -1:
        if waiter in waiting:
            return 0
        waiting[waiter] = None
        return self.wake_at(self.wanted)

    cdef int wake_at(self, uint64_t ns) except -1:
        """Count a grant as held back, and schedule `look` for this time unless an earlier call is scheduled."""
        cdef uint64_t now = self.clock.now
        cdef uint64_t due = max(ns // MILLISECOND + 1, now + 1)
        cdef int i
        for i in range(self.count):
            fetch_add64(&self.scopes[i].slot.held_back, 1, RELAXED)
        if self.due and self.due <= due:
            return 0
        self.due = due
        self.call_at(due, self.look)
        return 0

    def look(self):
        """Wake waiting links and sessions in order of arrival, as far as tokens are left."""
        cdef uint64_t messages
        cdef uint64_t n
        cdef Link link
        cdef Session session
        if self.due > self.clock.now:
            return                         # outdated: an earlier call has run and has scheduled a later one
        self.due = 0
        self.note_buffered(self.clock.now_ns)
        messages = self.messages_left()
        if messages and self.octets_left():
            n = min(messages, WAKE_MOST) + WAKE_MOST
            while self.links and n:
                n -= 1
                link = next(iter(self.links))
                del self.links[link]
                link.grant_again()
            n = WAKE_MOST
            while self.sessions and n:
                n -= 1
                session = next(iter(self.sessions))
                del self.sessions[session]
                session.reopen_window()
        if (self.links or self.sessions or self.reported) and not self.due:
            self.due = max(self.wanted // MILLISECOND + 1, self.clock.now + LOOK_MS)
            self.call_at(self.due, self.look)

    cdef void note_buffered(self, uint64_t now) noexcept:
        """Report the octets held by this worker's connections, and read the sum over all workers."""
        cdef Connection connection
        cdef uint64_t held = 0
        cdef uint64_t all_held
        cdef Scope* scope
        cdef int i, worker
        self.looked_at = now
        if not self.bounds_octets:
            return
        for connection in self.connections:
            if connection.content is not NULL:
                held += connection.content.held
        if self.queued is not NULL:
            held += self.queued.held
        for i in range(self.count):
            scope = &self.scopes[i]
            if not scope.buffered_most:
                continue
            if held != self.reported:
                # Two's complement: the difference may be negative.
                fetch_add64(&scope.slot.held[self.worker], held - self.reported, RELAXED)
            all_held = 0
            for worker in range(self.region.workers):
                all_held += load64(&scope.slot.held[worker], RELAXED)
            scope.buffered = all_held
        self.reported = held
        if held and not self.due:
            # Links on other workers may wait for octets freed here, even if no further message arrives.
            self.look_later()

    cdef void look_later(self) noexcept:
        self.due = self.clock.now + LOOK_MS
        self.call_at(self.due, self.look)
