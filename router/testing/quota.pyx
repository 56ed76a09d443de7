"""Model of a worker for tests of quotas: a clock, connections that hold octets, and links that wait."""
from libc.stdint cimport uint32_t, uint64_t

from sluice.router.amqp.connection cimport Connection
from sluice.router.amqp.link cimport Link
from sluice.router.amqp.scheduler cimport Scheduler
from sluice.router.policy.quota cimport TenantQuota

from sluice.router.policy.quota import TenantQuota as make

cdef enum:
    MILLISECOND = 1000000      # ns


cdef class WaitingLink(Link):
    """Link that counts the calls of `grant_again`."""
    cdef readonly int woken

    cdef void grant_again(self) noexcept:
        self.woken += 1


cdef class QuotaWorker:
    """Worker with one quota. `scopes` are those of TenantQuota; `now` in ns."""
    cdef Scheduler scheduler
    cdef TenantQuota quota
    cdef Connection connection
    cdef list timers

    def __init__(self, region, int index, scopes, uint64_t now):
        self.scheduler = Scheduler()
        self.scheduler.set_clock(now)
        self.timers = []
        self.quota = make(region, index, self.scheduler, lambda due, what: self.timers.append((due, what)), scopes)
        self.connection = Connection(self.scheduler, None)
        self.quota.join(self.connection)

    @property
    def wanted(self):
        """Time in ns at which the quota can grant the last refused request."""
        return self.quota.wanted

    @property
    def due(self):
        """Time of the next call of `look` in ms."""
        return self.quota.due

    def charge(self, uint64_t octets, bint first=True):
        self.quota.charge(octets, first)

    def deliveries(self, uint64_t mean=0):
        return self.quota.deliveries(mean)

    def frames(self, uint32_t size):
        return self.quota.frames(size)

    def pass_time(self, uint64_t ns):
        self.scheduler.set_clock(self.scheduler.now_ns + ns)

    def hold(self, size_t octets):
        """Set the octets held by the connection, and report them immediately."""
        self.connection.content_meter().held = octets
        self.quota.note_buffered(self.scheduler.now_ns)

    def wait(self):
        """Return a new link that waits for credit."""
        cdef WaitingLink link = WaitingLink()
        self.quota.wait_link(link)
        return link

    def run_timers(self):
        """Let time pass until no link waits, at most ten seconds."""
        cdef uint64_t until = self.scheduler.now_ns + 10000 * <uint64_t>MILLISECOND
        while self.quota.links and self.scheduler.now_ns < until:
            self.pass_time(MILLISECOND)
            due, self.timers = [each for each in self.timers if each[0] <= self.scheduler.now], \
                [each for each in self.timers if each[0] > self.scheduler.now]
            for _, what in due:
                what()
