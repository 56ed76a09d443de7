"""The router as producer of its own messages, such as replies of its management agent (routing-semantics.md 10).

Own messages are presettled, and no producer's credit bounds how many are queued. Octets bound them instead: OWN_QUEUED
in each queue, and OWN_HELD in the process. Messages beyond these bounds are dropped, and counted as dropped presettled
deliveries.
"""
from libc.string cimport memset

from sluice.router.amqp.endpoint cimport is_over
from sluice.router.amqp.scheduler cimport Scheduler
from sluice.router.stats.counters cimport totals
from sluice.router.delivery.delivery cimport IN_COMPLETE, IN_OWN, IN_PRESETTLED, IN_ROUTED, InDelivery, in_free, in_new
from sluice.router.amqp.meter cimport meter_new, meter_release
from sluice.router.message.content cimport (
    Content, message_append, message_meter, message_new, message_release, message_routed,
)
from sluice.router.message.sections cimport SCAN_MORE, scan
from sluice.router.links.consumer_link cimport OVERFLOW_BLOCK, OVERFLOW_DROP_OLDEST, ConsumerLink
from sluice.router.ring.layout cimport DROP_OVERFLOW
from sluice.router.table.forward cimport forward, forward_exchange, forward_fallback

cdef enum:
    # Octets of the router's own messages that this process may hold, including those that wait for other workers.
    OWN_HELD = 134217728


cdef class InternalProducer(NodeOwner):
    """Producer of the router's own messages. Owner: the worker."""

    def __cinit__(self, Scheduler scheduler not None):
        self.scheduler = scheduler
        self.meter = meter_new(NULL, NULL)

    def __dealloc__(self):
        meter_release(self.meter)

    def send(self, ForwardingAddress address not None, bytes octets not None):
        """Forward a whole message, presettled, to consumers of an address; return the number of copies.

        Raises ValueError when its leading sections are malformed.
        """
        cdef Content c
        cdef int copies
        cdef InDelivery* d
        cdef bint properties = address.exchange is not None
        memset(&c, 0, sizeof(Content))
        if scan(octets, len(octets), properties, False, &c.sections) > SCAN_MORE:
            raise ValueError(f"malformed message for {address.key}")
        address.slot.from_container += 1
        totals.from_container += 1
        if self.meter.held and self.meter.held + len(octets) > OWN_HELD:
            totals.dropped_presettled += 1
            totals.dropped[DROP_OVERFLOW] += 1
            return 0
        c.stored = message_new(0)
        c.stored.complete = c.complete = c.whole = c.settled = c.own = True
        message_meter(c.stored, self.meter)
        message_append(c.stored, octets, len(octets))
        c.data = &c.stored.head.data[0]
        c.size = len(octets)
        # The scan's results must point into the stored octets, which outlive the call.
        scan(c.data, c.size, properties, False, &c.sections)
        d = in_new(&self.node, 0, self.scheduler.now_ns, IN_PRESETTLED | IN_COMPLETE | IN_OWN)
        if address.exchange is not None:
            copies = forward_exchange(address, d, &c)
        else:
            copies = forward(address, d, &c)
            if copies == 0 and address.fallback is not None:
                copies = forward_fallback(address, d, &c)
        message_routed(c.stored)
        message_release(c.stored)
        d.flags |= IN_ROUTED
        if d.live == 0:
            in_free(d)
        return copies

    def send_on(self, ConsumerLink link not None, bytes octets not None):
        """Send a whole message on one link, presettled and unchanged.

        If too many messages wait on the link, older ones are dropped. Returns False if the link has ended, or if the
        process holds too many octets of own messages.
        """
        cdef Content c
        cdef InDelivery* d
        if is_over(link) or self.meter.held and self.meter.held + len(octets) > OWN_HELD:
            return False
        memset(&c, 0, sizeof(Content))
        c.stored = message_new(0)
        c.stored.complete = c.complete = c.whole = c.settled = c.own = True
        message_meter(c.stored, self.meter)
        message_append(c.stored, octets, len(octets))
        c.data = &c.stored.head.data[0]
        c.size = len(octets)
        d = in_new(&self.node, 0, self.scheduler.now_ns, IN_PRESETTLED | IN_COMPLETE | IN_OWN)
        link.offer(d, &c, OVERFLOW_DROP_OLDEST)
        message_routed(c.stored)
        message_release(c.stored)
        d.flags |= IN_ROUTED
        if d.live == 0:
            in_free(d)
        return True

    def send_by(self, ConsumerLink link not None, bytes octets not None):
        """Send a whole message on one link, presettled, with router annotations if the link carries them.

        The message is dropped if too many wait on the link. Returns False if the link has ended, or if the process
        holds too many octets of own messages. Raises ValueError if the leading sections are malformed.
        """
        cdef Content c
        cdef InDelivery* d
        if is_over(link) or self.meter.held and self.meter.held + len(octets) > OWN_HELD:
            return False
        memset(&c, 0, sizeof(Content))
        c.stored = message_new(0)
        c.stored.complete = c.complete = c.whole = c.settled = c.own = True
        message_meter(c.stored, self.meter)
        message_append(c.stored, octets, len(octets))
        c.data = &c.stored.head.data[0]
        c.size = len(octets)
        d = in_new(&self.node, 0, self.scheduler.now_ns, IN_PRESETTLED | IN_COMPLETE | IN_OWN)
        try:
            if scan(c.data, c.size, False, False, &c.sections) > SCAN_MORE:
                raise ValueError("malformed message")
            link.offer(d, &c, OVERFLOW_BLOCK)
        finally:
            message_routed(c.stored)
            message_release(c.stored)
            d.flags |= IN_ROUTED
            if d.live == 0:
                in_free(d)
        return True

    cdef int returned(self, InDelivery* d) except -1:
        in_free(d)
        return 0

    def held(self):
        """Return (messages whose end is not known yet, octets held), for tests."""
        return self.node.in_count, self.meter.held
