"""A link on which the peer sends, and the credit that it is granted (AMQP 1.0 part 2, 2.6.7).

routing-semantics.md 5. Credit to producers is one equation: credit = capacity - occupied, where a delivery occupies its
place until it is settled (unsettled), has left an overfull queue (presettled) or, withheld, until its address is
reachable again.
"""
from libc.stdint cimport uint32_t, uint64_t

from router.amqp.quota cimport Quota
from router.amqp.session cimport HOLD_OCTETS
from router.delivery.delivery cimport IN_CREDITED
from router.stats.counters cimport unblock


cdef class GrantingLink(DeliveryLink):
    """Base of ProducerLink. Owner: its session."""

    def limit_capacity(self, uint32_t capacity):
        """It gets this credit at most, not its listener's; before it gets any."""
        self.capacity = capacity
        self.slot.capacity = capacity

    cpdef set_flowing(self, bint flowing):
        """Grant credit (the address is reachable, or there is none) or not yet."""
        self.flowing = flowing
        if flowing:
            self.occupied -= self.withheld
            self.withheld = 0
            self.draining = False
            self.session.want_flow(self)

    cdef void take_back(self) noexcept:
        """The address is unreachable. A client keeps its credit until it sends; a broker that the router called would
        have messages released and count them as tried."""
        if self.called and self.flowing and not self.draining:
            self.draining = self.drain_due = True
            self.session.want_flow(self)

    def begin_at(self, uint32_t initial_delivery_count):
        """The peer has answered our attach: this is where it begins to count."""
        self.delivery_count = initial_delivery_count
        self.called = True

    cdef int grant(self) except -1:
        cdef uint32_t free
        if self.draining:
            if not self.drain_due:
                return 0
            self.drain_due = False
            if self.called:
                # Brokers have queues behind their links, and RabbitMQ 3.10 ends the session when such a link is
                # drained. What it sent before it sees this may still come.
                self.credit = 0
        elif not self.flowing:
            return 0
        elif self.holds_back():
            if self.credit == 0 or not self.credit_held:
                return 0
            self.credit = 0                # what it was granted and has not used yet is taken back
        else:
            free = self.capacity - self.occupied if self.capacity > self.occupied else 0
            if self.session.connection.quota is not None:
                free = self.within_quota(free)
                if free == self.credit:
                    return 0
            self.credit = free
        self.note_credit()
        return self.send_state(self.credit, self.draining and not self.called)

    cdef uint32_t within_quota(self, uint32_t free) except? 0xFFFFFFFF:
        """Return the credit that the quota of the connection allows, `free` at the most. What was granted stays."""
        cdef Quota quota = self.session.connection.quota
        cdef uint64_t mean = self.slot.octets // self.slot.deliveries if self.slot.deliveries else 0
        cdef uint32_t allowed = quota.deliveries(mean)
        if allowed >= free:
            return free
        quota.wait_link(self)
        return max(allowed, min(self.credit, free))

    cdef bint holds_back(self) noexcept:
        """Credit for more would only fill memory: it comes when what is held has been taken."""
        if self.credit_held:
            return True
        if not self.session.connection.full() or self.octets_held() + self.octets_awaited() < HOLD_OCTETS:
            return False
        if not self.credit_withheld:
            self.credit_withheld = True
            self.session.connection.withhold(self)
        return True

    cdef void forwarded(self, InDelivery* d) noexcept:
        """An unsettled delivery is on its way: the producer may send the next one."""
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
        """The producer's view: it may have given credit back (drain)."""
        cdef uint32_t ahead
        if f.has_delivery_count:
            ahead = f.delivery_count - self.delivery_count
            if ahead <= 0x7FFFFFFF:
                # It may give back more than it has here: some was taken back meanwhile.
                self.delivery_count = f.delivery_count
                self.credit = self.credit - ahead if self.credit > ahead else 0
                self.note_credit()
                if ahead and not self.draining:
                    # The answer to a drain that was called off meanwhile: what it gave back is granted again.
                    self.session.want_flow(self)
        if f.echo:
            self.send_state(self.credit, self.draining and not self.called)
        return 0
