"""Move of the copies that wait for a lost consumer to a consumer of another worker (docs/internals/links.md).

A copy stays the same object: its source finds it as before, but the port to the other worker is its downstream.
"""
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from sluice.router.amqp.id_map cimport map_put, map_reserve
from sluice.router.amqp.zero cimport zero
from sluice.router.delivery.delivery cimport (
    IN_OWN, IN_PRESETTLED, OUT_CHECK, OUT_REPORT, OUT_ROUTED, OUT_SETTLED, OUT_STUCK, InDelivery, OutDelivery,
)
from sluice.router.links.consumer_link cimport OVERFLOW_BLOCK, ConsumerLink
from sluice.router.message.content cimport (
    Content, Message, content_store, counts_copies, cursor_close, cursor_read, message_meter, message_release,
    message_routed,
)
from sluice.router.message.sections cimport scan
from sluice.router.ring.port_out cimport PortOut
from sluice.router.ring.records cimport DeliveryHead, TransferRecord, encode_transfer, transfer_octets
from sluice.router.ring.ring cimport ring_longest

cdef enum:
    OCTETS_MOST = 1048576      # of the messages moved in one call, which copies each of them twice


def move_waiting(ConsumerLink link not None, PortOut port not None, uint32_t slot, uint32_t generation, uint32_t most):
    """Move up to `most` copies of a suspended link, of about OCTETS_MOST, to the consumer with this slot of the port's
    worker.

    All copies are whole and have not started (`ConsumerLink.may_wait`). One whose sections fit into no ring is
    released. True: none is left.
    """
    cdef uint64_t octets = 0
    while link.node.queue_first is not NULL and most and octets < OCTETS_MOST:
        most -= 1
        octets += link.node.queue_first.message.size
        move_copy(link, port, link.node.queue_first, slot, generation)
    return link.release_suspended(0)


cdef int move_copy(ConsumerLink link, PortOut port, OutDelivery* o, uint32_t slot, uint32_t generation) except -1:
    """Move the first copy of a link's queue into the queue of a port."""
    cdef Content c
    cdef size_t octets = o.prefix_size + <size_t>(o.message.size - o.taken)
    cdef uint8_t* whole = <uint8_t*>malloc(octets + 1)
    if whole is NULL:
        raise MemoryError("a message for another worker")
    try:
        if o.prefix_size:
            memcpy(whole, o.prefix, o.prefix_size)
        cursor_read(&o.cursor, whole + o.prefix_size, octets - o.prefix_size)
        zero(&c, sizeof(Content))
        c.data = whole
        c.size = octets
        c.format = o.message.format
        c.complete = c.whole = True
        # The octets are those for the next router: what its annotations say must survive the way through this one.
        c.honour = True
        scan(c.data, c.size, False, True, &c.sections)
        c.to = c.sections.to_override
        c.phase = c.sections.phase
        c.state.data = o.message.state
        c.state.size = o.message.state_size
        c.checkpoint = o.flags & OUT_CHECK
        if o.flags & OUT_CHECK and not o.flags & OUT_SETTLED:
            c.settled = o.source is NULL or o.source.flags & IN_PRESETTLED
        else:
            c.settled = o.flags & OUT_SETTLED and not o.flags & OUT_REPORT
        if transfer_octets(1, c.to.size, 0, c.state.size) + c.sections.end > ring_longest(&port.outbox.ring):
            return link.release_queued(o)
        return put_into_port(link, port, o, &c, slot, generation)
    finally:
        free(whole)


cdef int put_into_port(ConsumerLink link, PortOut port, OutDelivery* o, Content* c, uint32_t slot,
                       uint32_t generation) except -1:
    """Make a copy one of the port, with the content that it has there."""
    cdef TransferRecord record
    cdef DeliveryHead head
    cdef InDelivery about
    cdef size_t size = transfer_octets(1, c.to.size, 0, c.state.size)
    cdef uint8_t* first
    cdef Message* before = o.message
    cdef Message* m
    map_reserve(&port.sent)
    first = <uint8_t*>malloc(size)
    if first is NULL:
        raise MemoryError("a message for another worker")
    try:
        m = content_store(c)
        if counts_copies(before.meter):
            message_meter(m, before.meter)
        zero(&about, sizeof(InDelivery))
        about.flags = o.source.flags & IN_OWN if o.source is not NULL else 0
        port.add_target(slot, generation)
        port.fill_record(&record, &head, &about, c, 1, OVERFLOW_BLOCK)
        port.target_count = 0
    except BaseException:
        free(first)
        raise
    encode_transfer(first, &record)
    if o.flags & OUT_STUCK:
        link.slot.stuck -= 1
    link.unqueue(o)
    cursor_close(&o.cursor)
    message_release(before)
    free(o.prefix)
    o.prefix = NULL
    o.flags &= ~(OUT_SETTLED | OUT_REPORT | OUT_CHECK | OUT_ROUTED | OUT_STUCK)
    if c.settled:
        o.flags |= OUT_SETTLED
    o.taken = o.acknowledged = 0
    o.octets = 0
    o.downstream = &port.node
    o.tag_octets = port.next_key
    map_put(&port.sent, port.next_key, o)
    port.next_key += 1
    port.queue_first_part(o, m, first, size, <uint32_t>c.sections.end)
    message_routed(m)
    return 0
