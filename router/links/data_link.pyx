"""Links between routers (inter-router.md 2.6 to 2.9): data links by priority, and streaming links.

A router link carries deliveries of any address, with annotations that say what became of them so far. What is
different from a client's link:

* RouterIn gives credit back when an unsettled delivery has been forwarded, settled or not: what is unsettled between
  routers is bounded by the credit of those who sent it into the network. Settled deliveries that wait at a consumer
  have a bound in octets instead (docs/internals/credit.md, "Presettled deliveries to a full queue"), since all who use
  the connection would wait for that consumer's producers otherwise.
* RouterOut writes annotations, and gives streams to links of their own: messages that are not complete yet, and those
  that are larger than what is ever forwarded as one piece (STREAM_AT). So no message waits for more than STREAM_AT
  octets of another one. Order is kept among the smaller messages of a producer that have the same priority.

How they are made, for workers/:

    out = RouterOut(capacity=250)          data link, in or out, of some priority; give it a slot, and its `pool`
    in_ = RouterIn(capacity=250, initial_delivery_count=n)
    in_.use(RouterHandler(table, conn))      data link, streaming or not: conn is its connection's number
    in_.decided(); in_.set_flowing(True)   once attached: credit is granted
    pool = StreamPool(make, most)          one a connection, for all its RouterOuts; make() attaches another streaming
                                           link: a RouterOut that has a slot and is not answered yet, or None
    pool.trim()                            from time to time: of its idle links, `most` stay
    pool.close()                           the connection is gone
"""
from libc.stdint cimport uint32_t

from router.amqp.endpoint cimport is_detached
from router.delivery.delivery cimport OutDelivery
from router.message.content cimport STREAM_AT, Content


cdef class RouterIn(ProducerLink):
    """A link by which another router sends. Owner: its session."""

    def __cinit__(self):
        self.credit_on_forward = self.inter_router = True

    cdef int grant(self) except -1:
        """Credit for a quarter of the capacity at a time: one flow for each delivery would be as many frames again."""
        if self.flowing and not self.draining and self.credit >= self.capacity - self.capacity // 4:
            return 0
        return ProducerLink.grant(self)


cdef class RouterOut(ConsumerLink):
    """A link by which another router receives. Owner: its session."""

    def __cinit__(self):
        self.annotations = self.routed = True

    def use_checks(self):
        """The peer follows settled deliveries for us (Content.checkpoint)."""
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
        """The link is everybody's."""
        self.release_waiting()
        self.rest()
        return "its messages that wait were released"

    cdef int rest(self) except -1:
        """A streaming link that has nothing to send goes back to its pool."""
        if self.busy and self.node.queue_first is NULL and not is_detached(self):
            self.home.put(self)
        return 0

    def stream_of(self, StreamPool pool not None):
        """It is a streaming link, of this pool."""
        self.home = pool


cdef inline bint is_stream(const Content* c) noexcept:
    if c.at_hand:
        return False
    return not c.complete or (c.stored.size if c.stored is not NULL else c.size) >= STREAM_AT


cdef class StreamPool:
    """Streaming links of a connection that are idle. Owner: what handles the connection."""

    def __cinit__(self, make not None, uint32_t most):
        self.make = make
        self.most = most
        self.idle = []

    cdef RouterOut take(self):
        """A link for one stream, or None when none can be made."""
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
        """Close some links of a pool that is too large: those that were idle longest and have nothing unsettled, whose
        outcome would be lost with the link."""
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
        """The connection is gone: nothing more is sent there."""
        self.closed = True
        self.idle = []

    def size(self):
        """Idle links, for tests."""
        return len(self.idle)
