"""Links on which the router sends numbered messages, as many as the peer grants credit for (option -T).

management.md 3.2.

    link.produce(settled)     start, once the attach is answered; until then it behaves like any consumer's link
"""
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memset

from sluice.router.amqp.codec cimport Slice
from sluice.router.amqp.endpoint cimport TURN_MORE, is_detached, is_open
from sluice.router.stats.counters cimport totals
from sluice.router.delivery.delivery cimport IN_COMPLETE, IN_OWN, IN_PRESETTLED, InDelivery, in_free, in_new
from sluice.router.delivery.outcome cimport in_routed
from sluice.router.amqp.frames cimport Flow
from sluice.router.message.content cimport Content, message_release, message_routed
from sluice.router.links.consumer_link cimport OVERFLOW_BLOCK, ConsumerLink

from sluice.router.amqp import codec

cdef enum:
    MADE_A_TURN = 64           # messages made in a turn of the link
    UNSETTLED_MOST = 10000     # unsettled messages beyond which no more are made

cdef uint64_t numbers = 0      # messages made by this process so far


cdef bytes next_message():
    global numbers
    numbers += 1
    properties = codec.encode_described(0x73, [codec.encode_ulong(numbers)])
    return properties + b"\x00\x53\x77" + codec.encode_string(f"Sequence: {numbers}")


cdef class SourceLink(ConsumerLink):
    """Link on which the peer receives messages made by the router. Owner: its session."""

    cdef bint producing
    cdef bint presettled

    def produce(self, bint settled):
        """Make messages from now on, as far as the peer's credit allows."""
        self.producing = True
        self.presettled = settled
        self.mark_ready()

    cdef int on_flow(self, const Flow* f) except -1:
        ConsumerLink.on_flow(self, f)
        if self.producing and self.credit:
            self.mark_ready()
        return 0

    cdef int pump(self, size_t budget) except -1:
        cdef uint32_t made = 0
        cdef int more
        cdef bint drain = self.drain
        if not self.producing or not is_open(self) or self.session.ended:
            return ConsumerLink.pump(self, budget)
        while True:
            if self.node.queue_first is not NULL:
                self.drain = False         # not before the further messages are made
                more = ConsumerLink.pump(self, budget)
                self.drain = drain
                if more or self.node.queue_first is not NULL:
                    return more
            if not self.credit or self.node.in_count >= UNSETTLED_MOST:
                return ConsumerLink.pump(self, budget)
            if made == MADE_A_TURN:
                return TURN_MORE
            made += 1
            self.make()

    cdef int make(self) except -1:
        """Make one message for this link."""
        cdef Content c
        cdef InDelivery* d
        cdef bytes octets = next_message()
        memset(&c, 0, sizeof(Content))
        c.data = octets
        c.size = len(octets)
        c.complete = c.whole = True
        c.settled = self.presettled
        d = in_new(&self.node, 0, self.session.connection.scheduler.now_ns,
                   IN_COMPLETE | IN_OWN | (IN_PRESETTLED if self.presettled else 0))
        totals.from_container += 1
        totals.egress += 1
        self.offer(d, &c, OVERFLOW_BLOCK)
        if c.stored is not NULL:
            message_routed(c.stored)
            message_release(c.stored)
        in_routed(d)
        if self.presettled and d.live == 0:
            in_free(d)
        return 0

    cdef int outcome(self, InDelivery* d, uint8_t kind, const Slice* state, bint settled) except -1:
        if settled:
            in_free(d)
            if self.credit and not is_detached(self):
                self.mark_ready()
        return 0

    cdef int returned(self, InDelivery* d) except -1:
        in_free(d)
        return 0
