"""The short way of a delivery: from the frame that it comes in into its consumer's write buffer, in one place.

docs/internals/engine.md, "The short way", says what the general way does for such a delivery, step by step. `short_way`
only looks: when it finds a consumer, everything that the general way would do for this delivery is known, and `pass_on`
does it, counter by counter. Whoever changes one of the two ways changes the other; random scenarios go through both and
are compared (tests/unit/workers/test_short_ways.py).
"""
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from router.amqp.buffer cimport buffer_room
from router.amqp.connection cimport Connection
from router.amqp.frames cimport TRANSFER_ROOM, Transfer, write_short_transfer
from router.amqp.id_map cimport map_reserve
from router.amqp.items cimport item_at, items_in
from router.amqp.session cimport Session
from router.amqp.spec cimport (
    S_HEADER, S_PROPERTIES, T_FALSE, T_LIST0, T_LIST8, T_NULL, T_SMALLULONG, T_TRUE, T_UBYTE,
)
from router.delivery.delivery cimport IN_COMPLETE, IN_ROUTED, InDelivery, OutDelivery, out_make
from router.forwarding.consumer cimport Consumer
from router.forwarding.table cimport CLOSEST, Address
from router.links.consumer_link cimport ConsumerLink, keep_sent, note_written, tags
from router.links.delivery_link cimport delivery_begins, goes_now
from router.links.granting_link cimport place_free
from router.links.producer_link cimport ProducerLink, count_presettled, spend_credit
from router.stats.counters cimport note_presettled, totals
from router.stats.samples cimport is_sample, sample_left, sample_left_settled


cdef inline bint is_section(const uint8_t* p) noexcept nogil:
    """Of three octets: the descriptor of a section."""
    return p[0] == 0 and p[1] == T_SMALLULONG


cdef inline bint says_nothing(const uint8_t* p, size_t size) noexcept nogil:
    """Nothing in the message says where it goes: it begins with its properties or body, maybe behind a header whose
    durable and priority are plain. (Properties matter where the address or its consumers ask for them.)"""
    cdef size_t header
    if size < 8 or not is_section(p):
        return False
    if p[2] >= S_PROPERTIES:
        return True
    if p[2] != S_HEADER:
        return False
    if p[3] == T_LIST0:
        header = 4
    elif p[3] != T_LIST8 or p[4] < 1:
        return False
    else:
        header = 5 + p[4]
        if p[5] and p[6] != T_TRUE and p[6] != T_FALSE and p[6] != T_NULL:
            return False
        if p[5] > p[4] - 1 or (p[5] > 1 and p[7] != T_NULL and (p[7] != T_UBYTE or p[4] < 4)):
            return False
    return header + 3 <= size and is_section(p + header) and p[header + 2] >= S_PROPERTIES


cdef inline void* only_consumer(void* address) noexcept:
    """The link of the only consumer of an address, if it is of this worker: what `deliver` and `forward` find. NULL:
    the address is in some way other than that. address, and what is returned: borrowed."""
    cdef void* consumers = <void*>(<Address>address).consumers
    cdef void* only
    if items_in(consumers) != 1 or (<Address>address).treatment > CLOSEST or (<Address>address).remotes is not None \
            or (<Address>address).exchange is not None or (<Address>address).inproc or (<Address>address).uplink:
        return NULL
    only = item_at(consumers, 0)
    if (<Consumer>only).link is None or (<Consumer>only).container:
        return NULL
    return <void*>(<Consumer>only).link


cdef inline bint takes_now(ConsumerLink link, const Transfer* t) noexcept:
    """What `offer` looks at, for a message that goes on as it is."""
    return (link.plain and goes_now(link) and link.credit and not link.pending and not link.annotations and not link.logged
            and (t.settled or not link.settles)
            and t.payload.size + TRANSFER_ROOM <= link.session.connection.remote_max_frame)


cdef inline void* short_way(void* address, ProducerLink link, const Transfer* t) noexcept:
    """The consumer's link by which the delivery of this frame may go on at once. NULL: it takes the general way.

    address: of the link. Nothing is changed, and what is returned is borrowed.
    """
    cdef void* consumer
    if t.more or t.aborted or t.state.size or not t.has_delivery_id or not link.credit or link.logged \
            or link.credit_on_forward or t.delivery_id != link.session.expected_delivery_id \
            or not link.session.any_delivery or not says_nothing(t.payload.data, t.payload.size):
        return NULL
    consumer = only_consumer(address)
    return consumer if consumer is not NULL and takes_now(<ConsumerLink>consumer, t) else NULL


cdef inline int pass_on(Address address, ProducerLink link, ConsumerLink consumer, const Transfer* t) except -1:
    """Do for this delivery all that the general way does. What can fail comes before what is counted."""
    cdef Session session = consumer.session
    cdef Connection connection = session.connection
    cdef uint64_t now = connection.scheduler.now_ns
    cdef size_t size = t.payload.size
    cdef uint8_t* w = buffer_room(&connection.out, TRANSFER_ROOM + size)
    cdef InDelivery* d
    cdef OutDelivery* o = NULL
    # As first_frame.
    link.session.expected_delivery_id += 1
    spend_credit(link)
    if t.settled:
        link.delivery_count += 1
        link.slot.last_delivery = now
    else:
        map_reserve(&session.sent)
        link.occupied += 1
        link.slot.unsettled += 1
        d = delivery_begins(link, t, IN_COMPLETE)
        o = out_make(&consumer.node, d, False, True)
        keep_sent(consumer, session, o)
        d.flags |= IN_ROUTED
    # As send_now.
    w += write_short_transfer(w, session.local_channel, consumer.handle, session.next_delivery_id,
                              <uint8_t*>&tags.next, t.message_format, t.settled, size)
    memcpy(w, t.payload.data, size)
    connection.out.end = w + size - connection.out.data
    tags.next += 1
    note_written(consumer, session, size, now)
    if not connection.dirty:
        connection.mark_dirty()
    if is_sample(consumer.slot):
        if t.settled:
            sample_left_settled(consumer.slot, size, now, now)
        else:
            o.octets = <uint32_t>size
            sample_left(consumer.slot, o, now)
    # As forward, deliver and route_content.
    address.slot.ingress += 1
    address.slot.egress += 1
    totals.ingress += 1
    totals.egress += 1
    link.slot.deliveries += 1
    if t.settled:
        note_presettled(consumer.slot, connection.scheduler.second)
        count_presettled(link)
        place_free(link)
    return 0
