"""Links on which the peer receives and takes no message above some length (max-message-size of its attach).

routing-semantics.md 8.11. Lengths of whole messages are compared when a consumer is chosen
(router/table/size_limits.pyx). The length of a streamed message is known later: its copy here is aborted once it
is too long.
"""
from libc.stdint cimport uint32_t, uint64_t

from sluice.router.amqp.codec cimport Slice
from sluice.router.amqp.id_map cimport map_take
from sluice.router.amqp.spec cimport D_REJECTED
from sluice.router.delivery.delivery cimport (
    OUT_ABORT, OUT_CHECK, OUT_REPORT, OUT_SETTLED, OUT_STARTED, OutDelivery, out_free,
)
from sluice.router.delivery.outcome cimport out_left, out_update
from sluice.router.ring.layout cimport DROP_REJECTED
from sluice.router.links.consumer_link cimport ConsumerLink
from sluice.router.message.content cimport cursor_close
from sluice.router.stats.counters cimport count_drop, count_presettled_delivery

from sluice.router.amqp import codec
from sluice.router.amqp.errors import MESSAGE_SIZE_EXCEEDED

cdef bytes SIZE_EXCEEDED = codec.encode_described(
    D_REJECTED, [codec.encode_error(MESSAGE_SIZE_EXCEEDED, "The message is longer than its receiver accepts")])


cdef class LimitedConsumerLink(ConsumerLink):
    """Link on which the peer receives messages up to some length. Owner: its session."""

    cdef uint64_t message_limit            # octets; 0: any length
    cdef bint exceeded                     # some queued copy may be too long

    def __cinit__(self):
        self.plain = True

    def limit_messages(self, uint64_t octets):
        """Set the longest message that the peer takes, in octets; 0: any length.

        The slot announces the limit to other workers, so this must be called before the link is bound to an address.
        """
        self.message_limit = octets
        self.slot.message_limit = octets

    cdef bint exceeds(self, const OutDelivery* o) noexcept:
        """Return True if the known octets of a copy's message are more than the peer takes."""
        # Octets at the start of the message that the prefix replaces: fewer than 2**32.
        cdef uint32_t replaced = <uint32_t>(o.taken + o.prefix_at) - o.octets
        return o.message is not NULL and not o.flags & OUT_ABORT \
            and o.prefix_size + o.message.size - replaced > self.message_limit

    cdef int more(self, OutDelivery* o) except -1:
        if self.message_limit and self.exceeds(o):
            # Only noted here: the caller goes on to use the delivery, which must not end now.
            self.exceeded = True
        return ConsumerLink.more(self, o)

    def take_over(self, ConsumerLink old not None):
        self.exceeded = self.message_limit != 0    # the limit of the other link may have been longer
        return ConsumerLink.take_over(self, old)

    cdef int pump(self, size_t budget) except -1:
        if self.exceeded:
            self.refuse_exceeding()
        return ConsumerLink.pump(self, budget)

    cdef int refuse_exceeding(self) except -1:
        cdef OutDelivery* o = self.node.queue_first
        cdef OutDelivery* following
        self.exceeded = False
        while o is not NULL:
            following = o.next
            if self.exceeds(o):
                self.refuse(o)
            o = following
        return 0

    cdef int refuse(self, OutDelivery* o) except -1:
        """Reject a copy that is too long, and end it."""
        cdef Slice state
        state.data = SIZE_EXCEEDED
        state.size = len(SIZE_EXCEEDED)
        if not o.message.complete:
            self.slot.busy -= 1
        if o.flags & OUT_SETTLED and (not o.flags & OUT_REPORT or o.flags & OUT_CHECK):
            count_presettled_delivery(self.slot, self.session.connection.scheduler.second)
            count_drop(self.slot, DROP_REJECTED)
            if o.flags & OUT_REPORT:
                out_update(o, D_REJECTED, &state, True)
            else:
                out_left(o)
        else:
            self.count_settled(D_REJECTED)
            out_update(o, D_REJECTED, &state, True)
        if o.flags & OUT_STARTED:
            map_take(&self.session.sent, o.id)
            o.flags |= OUT_ABORT | OUT_SETTLED
            cursor_close(&o.cursor)        # `pump` writes the abort
            return 0
        self.unqueue(o)
        out_free(o)
        return 0
