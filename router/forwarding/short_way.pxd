"""The short way of a delivery: from the frame that it comes in into its consumer's write buffer, or into the ring to
its worker, in one place.

docs/internals/engine.md, "The short way", says what the general way does for such a delivery, step by step. `short_way`
only looks: when it finds a consumer, everything that the general way would do for this delivery is known, and `pass_on`
(to another worker: `pass_over`) does it, counter by counter. Whoever changes one of the two ways changes the other;
random scenarios go through both and are compared (tests/unit/workers/test_short_ways.py).
"""
from libc.stdint cimport uint8_t, uint64_t

from router.amqp.codec cimport Slice
from router.amqp.frames cimport Transfer
from router.amqp.items cimport item_at, items_in
from router.amqp.spec cimport (
    S_HEADER, S_PROPERTIES, T_FALSE, T_LIST0, T_LIST8, T_NULL, T_SMALLULONG, T_TRUE, T_UBYTE,
)
from router.delivery.delivery cimport IN_COMPLETE, IN_ROUTED, InDelivery
from router.forwarding.consumer cimport Consumer
from router.forwarding.forward cimport FEW_CONSUMERS, least_loaded
from router.forwarding.table cimport BALANCED, CLOSEST, Address
from router.links.consumer_link cimport ConsumerLink, send_plain, takes_now
from router.links.delivery_link cimport delivery_begins
from router.links.granting_link cimport place_free
from router.links.producer_link cimport ProducerLink, count_presettled, spend_credit
from router.stats.counters cimport totals

# The same as `pass_on` for a consumer of another worker: into the ring to it. False, and nothing is done: there is no
# room, or something waits already. to, phase, honour: of the link's handler.
cdef bint pass_over(Address address, ProducerLink link, Consumer consumer, const Transfer* t, const Slice* to,
                    int phase, bint honour) except -1


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


cdef inline void* next_consumer(void* address, bint* turns) noexcept:
    """The consumer that gets the next delivery for an address: what `deliver` and `forward` find. turns: the list of
    consumers turns, too. NULL: the address is in some way unusual. address, and what is returned: borrowed."""
    cdef void* consumers = <void*>(<Address>address).consumers
    cdef void* chosen
    if (<Address>address).remotes is not None or (<Address>address).exchange is not None \
            or (<Address>address).inproc or (<Address>address).uplink or (<Address>address).treatment > CLOSEST:
        return NULL
    if items_in(consumers) == 1:
        chosen = item_at(consumers, 0)
    elif (<Address>address).treatment == BALANCED and (<Address>address).served is None \
            and items_in(consumers) <= FEW_CONSUMERS:
        chosen = least_loaded(<Address>address, 0, turns)
        if chosen is NULL:
            return NULL
    else:
        return NULL
    return NULL if (<Consumer>chosen).container else chosen


cdef inline void* short_way(void* address, ProducerLink link, const Transfer* t, bint* turns) noexcept:
    """The consumer to which the delivery of this frame may go on at once; whether there is room in the ring to one of
    another worker is for `pass_over` to say. NULL: it takes the general way.

    address: of the link. turns: its list of consumers turns. Nothing is changed, and what is returned is borrowed.
    """
    cdef void* consumer
    cdef void* near
    if t.more or t.aborted or t.state.size or not t.has_delivery_id or not link.credit or link.logged \
            or link.credit_on_forward or t.delivery_id != link.session.expected_delivery_id \
            or not link.session.any_delivery or not says_nothing(t.payload.data, t.payload.size):
        return NULL
    consumer = next_consumer(address, turns)
    if consumer is NULL:
        return NULL
    near = <void*>(<Consumer>consumer).link
    if near is not <void*>None and (not (<ConsumerLink>near).plain
                                    or not takes_now(<ConsumerLink>near, t.payload.size, t.settled)):
        return NULL
    return consumer


cdef inline void count_forwarded(Address address, ProducerLink link, const Transfer* t) noexcept:
    """As forward, deliver and route_content."""
    address.slot.ingress += 1
    address.slot.egress += 1
    totals.ingress += 1
    totals.egress += 1
    link.slot.deliveries += 1
    if t.settled:
        count_presettled(link)


cdef inline InDelivery* take_in(ProducerLink link, const Transfer* t) except NULL:
    """As first_frame, for a delivery that needs to be known."""
    link.occupied += 1
    link.slot.unsettled += 1
    return delivery_begins(link, t, IN_COMPLETE)


cdef inline int pass_on(Address address, ProducerLink link, ConsumerLink consumer, const Transfer* t) except -1:
    """Do for this delivery all that the general way does."""
    cdef uint64_t now = link.session.connection.scheduler.now_ns
    cdef InDelivery* d
    link.session.expected_delivery_id += 1
    spend_credit(link)
    if t.settled:
        link.delivery_count += 1
        link.slot.last_delivery = now
        send_plain(consumer, NULL, t.payload.data, t.payload.size, t.message_format, now)
    else:
        d = take_in(link, t)
        send_plain(consumer, d, t.payload.data, t.payload.size, t.message_format, now)
        d.flags |= IN_ROUTED
    count_forwarded(address, link, t)
    if t.settled:
        place_free(link)
    return 0
