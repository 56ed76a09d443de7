"""Links on which the peer sends, and the credit granted to it (AMQP 1.0 part 2, 2.6.7).

routing-semantics.md 5. The credit of producers is one equation: credit = capacity - occupied. The capacity is that of
the listener or connector, or adapts. An unsettled delivery occupies a place until it is settled, a presettled one until
it has left an overfull queue, and a withheld one until its address is reachable again.
"""
from libc.stdint cimport uint32_t, uint64_t

from sluice.router.amqp.connection cimport Connection
from sluice.router.amqp.quota cimport Quota
from sluice.router.amqp.session cimport HOLD_OCTETS
from sluice.router.delivery.delivery cimport IN_CREDITED, OUT_QUEUED, InDelivery
from sluice.router.stats.counters cimport unblock


cdef uint64_t made = 0         # incoming links made so far


cdef uint64_t producers_made() noexcept:
    return made


cdef bint has_room(Connection connection) noexcept:
    """Return True while half of the connection's bound of memory, and of the process's, is free."""
    return (2 * connection.process.content <= connection.process.content_limit
            and (connection.content is NULL or 2 * connection.content.held <= connection.content_limit))


cdef class GrantingLink(DeliveryLink):
    """Base of ProducerLink. Owner: its session."""

    def __cinit__(self):
        global made
        made += 1
        self.number = made

    def limit_capacity(self, uint32_t capacity):
        """Limit the credit to less than the listener's capacity. To be called before any credit is granted."""
        self.least_capacity = self.largest_capacity = 0
        self.change_capacity(capacity)

    def adapt_capacity(self):
        """Let the capacity grow from its present value, and shrink back. To be called before any credit is granted."""
        self.least_capacity = self.capacity
        self.change_capacity(self.capacity)

    cdef void change_capacity(self, uint32_t capacity) noexcept:
        self.capacity = self.slot.capacity = capacity
        self.largest_capacity = max(self.largest_capacity, capacity)
        self.grow_at = self.slot.deliveries + capacity

    cdef void adapt(self) noexcept:
        """Adapt the capacity of a link whose producer has used up its credit (docs/internals/credit.md, "Capacity").

        Looks at three deliveries only, so that it costs the same for any capacity.
        """
        cdef const InDelivery* oldest = self.node.in_first
        cdef const InDelivery* newest = self.node.in_last
        cdef uint64_t age = self.age
        cdef uint32_t largest
        self.age = 0
        if newest is NULL or newest.copies is NULL or not newest.copies.flags & OUT_QUEUED:
            self.queued = 0
        elif self.queued < QUEUED_MOST:
            self.queued += 1
        if self.credit_on_forward:
            age = 0                        # deliveries of many producers, whose own routers adapt
        elif oldest is not NULL and oldest.since:
            age = max(age, self.session.connection.scheduler.now_ns - oldest.since)
        largest = self.session.connection.scheduler.capacity_share.of_link(
            &self.counted_in, &self.session.connection.limited, age)
        if age > LATE_NS:
            largest = min(largest, self.capacity // 2)
        elif self.queued == QUEUED_MOST:
            largest = min(largest, self.capacity - self.capacity // 4)
            self.crowded = True
        if not has_room(self.session.connection):
            self.change_capacity(self.least_capacity)
        elif self.capacity > largest:
            self.change_capacity(max(largest, self.least_capacity))
            if self.queued:
                self.grow_at = self.slot.deliveries + GROWS_AGAIN * self.capacity
        elif (age <= QUICK_NS and not self.queued and self.capacity < largest and self.slot.deliveries >= self.grow_at
                and 2 * self.capacity * self.slot.octets <= GROWN_OCTETS * self.slot.deliveries):
            self.change_capacity(min(self.capacity + (self.capacity // 4 if self.crowded else self.capacity), largest))

    cpdef set_flowing(self, bint flowing):
        """Start to grant credit (the address is reachable, or there is none), or stop."""
        self.flowing = flowing
        if flowing:
            self.occupied -= self.withheld
            self.withheld = 0
            self.draining = self.without_drain = False
            self.session.want_flow(self)

    cdef void take_back(self) noexcept:
        """Withdraw the credit of a peer that the router called: the address is unreachable.

        A client keeps its credit until it sends. A broker would have messages released and count them as tried.
        """
        if self.called:
            self.pause_credit()

    cdef void pause_credit(self) noexcept:
        """Take the credit of the peer back without a drain, and grant none until the address is reachable."""
        if self.flowing and not self.draining:
            self.draining = self.drain_due = self.without_drain = True
            self.session.want_flow(self)

    cdef bint asks_drain(self) noexcept:
        return self.draining and not (self.without_drain or self.called or self.withdrawn)

    cpdef withdraw_credit(self):
        """Withdraw the credit, and grant none until the link ends: the router is about to close the connection.

        Deliveries that the peer sends before it reads the flow are forwarded as usual.
        """
        self.withdrawn = True
        if self.credit:
            self.session.want_flow(self)

    def begin_at(self, uint32_t initial_delivery_count):
        """Set where the peer, which has answered our attach, starts its delivery-count."""
        self.delivery_count = initial_delivery_count
        self.called = True

    cdef int grant(self) except -1:
        cdef uint32_t free
        if self.withdrawn:
            # No drain: peers that ignore it, or end the session because of it, stop sending all the same.
            if self.credit == 0:
                return 0
            self.credit = 0
            self.note_credit()
            return self.send_state(0, False)
        if self.draining:
            if not self.drain_due:
                return 0
            self.drain_due = False
            if not self.asks_drain():
                # Withdraw credit instead of draining: brokers have queues behind their links, and RabbitMQ 3.10 ends
                # the session when such a link is drained. Deliveries sent before the broker sees this flow may still
                # arrive.
                self.credit = 0
        elif not self.flowing:
            return 0
        elif self.withholds_credit():
            if self.least_capacity:
                self.change_capacity(self.least_capacity)
            if self.credit == 0 or not self.credit_held:
                return 0
            self.credit = 0                # withdraw credit that is granted and not used yet
        else:
            if self.least_capacity and self.credit == 0 and self.used_up:
                self.adapt()
            free = self.capacity - self.occupied if self.capacity > self.occupied else 0
            if free:
                self.used_up = self.gave_back = False
            if self.session.connection.quota is not None:
                free = self.within_quota(free)
                if free == self.credit:
                    return 0
            self.credit = free
        self.note_credit()
        return self.send_state(self.credit, self.asks_drain())

    cdef uint32_t within_quota(self, uint32_t free) except? 0xFFFFFFFF:
        """Return the credit that the quota of the connection allows, at most `free`.

        Granted credit is not withdrawn.
        """
        cdef Quota quota = self.session.connection.quota
        cdef uint64_t mean = self.slot.octets // self.slot.deliveries if self.slot.deliveries else 0
        cdef uint32_t allowed = quota.deliveries(mean)
        if allowed >= free:
            return free
        quota.wait_link(self)
        return max(allowed, min(self.credit, free))

    cdef bint withholds_credit(self) noexcept:
        """Return True while more credit would only fill memory: credit waits until held octets are taken."""
        if self.credit_held:
            return True
        if not self.session.connection.full() or self.octets_held() + self.octets_awaited() < HOLD_OCTETS:
            return False
        if not self.credit_withheld:
            self.credit_withheld = True
            self.session.connection.withhold(self)
        return True

    cdef void forwarded(self, InDelivery* d) noexcept:
        """Give the credit of an unsettled delivery back: it has been forwarded."""
        d.flags |= IN_CREDITED
        self.occupied -= 1
        self.session.want_flow(self)

    cdef void note_credit(self) noexcept:
        self.slot.credit = self.credit
        if self.slot.blocked_since == 0:
            if self.credit == 0:
                self.slot.blocked_since = self.session.connection.scheduler.now_ns
        elif self.credit:
            unblock(self.slot)

    cdef int on_flow(self, const Flow* f) except -1:
        """Process the producer's flow, which may give credit back (drain)."""
        cdef uint32_t ahead
        if f.has_delivery_count:
            ahead = f.delivery_count - self.delivery_count
            if ahead <= 0x7FFFFFFF:
                # The producer may give back more than it has here: some was withdrawn meanwhile.
                self.delivery_count = f.delivery_count
                self.credit = self.credit - ahead if self.credit > ahead else 0
                self.note_credit()
                self.gave_back |= ahead != 0
                if ahead and not self.draining:
                    # Answer to a drain that was cancelled meanwhile: grant again what was given back.
                    self.session.want_flow(self)
        if f.echo:
            self.send_state(self.credit, self.asks_drain())
        return 0
