"""Links between routers (inter-router.md 2.6 to 2.9): data links by priority, and streaming links.

A link between routers carries deliveries of any address, with annotations that record their path so far. It differs
from a client's link as follows:

* RouterIn gives the credit of an unsettled delivery back when it has been forwarded, even if it is not settled yet.
  Unsettled deliveries between routers are bounded by the credit of the producers that sent them into the network.
  Settled deliveries that wait at a consumer have a bound in octets instead (docs/internals/credit.md, "Presettled
  deliveries to a full queue"). Without it, all users of the connection would wait for the producers of that consumer.
* RouterOut writes annotations, and forwards streams by links of their own: messages that are incomplete, and those
  that are longer than any message that is forwarded whole (STREAM_AT). So no message waits for more than STREAM_AT
  octets of another one. Order is kept among the smaller messages of a producer that have the same priority.

Use by workers/:

    out = RouterOut(capacity=250)          data link, in or out, of some priority; give it a slot, and its `pool`
    in_ = RouterIn(capacity=250, initial_delivery_count=n)
    in_.use(RouterHandler(table, conn))      data link, streaming or not: conn is the number of its connection
    in_.decided(); in_.set_flowing(True)   once attached: credit is granted
    pool = StreamPool(make, most)          one for each connection, for all its RouterOuts; make() attaches another
                                           streaming link and returns it: a RouterOut with a slot whose attach is not
                                           answered yet; None: it cannot be made
    pool.trim()                            at intervals: close idle links until `most` are left
    pool.close()                           when the connection is lost
"""
from libc.stdint cimport uint32_t

from sluice.router.amqp.endpoint cimport is_detached
from sluice.router.delivery.delivery cimport OutDelivery
from sluice.router.message.content cimport STREAM_AT, Content


cdef class RouterIn(ProducerLink):
    """Link by which another router sends. Owner: its session."""

    def __cinit__(self):
        self.credit_on_forward = self.inter_router = True

    cdef int grant(self) except -1:
        """Grant credit in quarters of the capacity: a flow for each delivery would double the number of frames."""
        if (self.flowing and not self.draining and not self.withdrawn
                and self.credit >= self.capacity - self.capacity // 4):
            return 0
        return ProducerLink.grant(self)


cdef class RouterOut(ConsumerLink):
    """Link by which another router receives. Owner: its session."""

    def __cinit__(self):
        self.annotations = self.routed = True

    def enable_tracking(self):
        """Send tracked deliveries to this peer, which reports when they have left their last queue
        (Content.checkpoint; inter-router-protocol.md 6.3)."""
        self.checks = True

    cdef int offer(self, InDelivery* d, Content* c, int overflow) except -1:
        cdef bint settled = c.settled
        if not self.checks or not c.checkpoint:
            return self.send(d, c, overflow)
        c.settled = False
        c.checking = True
        try:
            return self.send(d, c, overflow)
        finally:
            c.settled = settled
            c.checking = False

    cdef int send(self, InDelivery* d, Content* c, int overflow) except -1:
        cdef RouterOut link
        if self.pool is not None and is_stream(c):
            link = self.pool.take()
            if link is not None:
                ConsumerLink.offer(link, d, c, overflow)
                return link.rest()
        return ConsumerLink.offer(self, d, c, overflow)

    cdef int pump(self, size_t budget) except -1:
        cdef int more = ConsumerLink.pump(self, budget)
        self.rest()
        return more

    cdef int more(self, OutDelivery* o) except -1:
        ConsumerLink.more(self, o)
        return self.rest()

    cdef int abandon(self, OutDelivery* o) except -1:
        ConsumerLink.abandon(self, o)
        return self.rest()

    cdef str give_up(self):
        """Release the waiting messages but keep the link: everybody uses it."""
        self.release_waiting()
        self.rest()
        return "its waiting messages were released"

    cdef int rest(self) except -1:
        """Return a streaming link that has nothing to send to its pool."""
        if self.busy and self.node.queue_first is NULL and not is_detached(self):
            self.home.put(self)
        return 0


cdef inline bint is_stream(const Content* c) noexcept:
    """Return True for a message that goes by a streaming link."""
    if c.complete_at_sender:
        return False
    return not c.complete or (c.stored.size if c.stored is not NULL else c.size) >= STREAM_AT


cdef class StreamPool:
    """Idle streaming links of a connection. Owner: the handler of the connection."""

    def __cinit__(self, make not None, uint32_t most):
        self.make = make
        self.most = most
        self.idle = []

    cdef RouterOut take(self):
        """Return a link for one stream, idle or new; None: none can be made."""
        cdef RouterOut link
        while self.idle:
            link = self.idle.pop()
            if not is_detached(link):
                link.busy = True
                return link
        link = None if self.closed else self.make()
        if link is not None:
            link.home = self
            link.busy = True
        return link

    cdef int put(self, RouterOut link) except -1:
        link.busy = False
        if not self.closed:
            self.idle.append(link)
        return 0

    def trim(self):
        """Close some links of a pool that is too large: those idle longest that have nothing unsettled.

        Outcomes of unsettled deliveries would be lost with their link.
        """
        cdef RouterOut link
        cdef list kept = []
        cdef list closed = []
        cdef Py_ssize_t many = min(POOL_STEP, max(len(self.idle) - <int>self.most, 0))
        for link in self.idle:
            if len(closed) < many and link.node.sent_first is NULL:
                closed.append(link)
            else:
                kept.append(link)
        self.idle = kept
        for link in closed:
            link.close_with(None, None)

    def close(self):
        """Stop handing out links: the connection is lost."""
        self.closed = True
        self.idle = []
