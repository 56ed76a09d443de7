"""Fast paths of deliveries to other workers, and of deliveries from or to other routers: see fast_path.pxd.

`forward_to_ring` does for a ring what `first_frame`, `give` and `offer_one` do on the slow path. The delivery keeps its
place until the other worker reports its outcome. The other worker continues it in `PortIn.pass_on`.

Deliveries from or to other routers leave with other annotations than they arrived with. All messages of one producer
have the same annotations. So the decision is made once, and the outgoing annotations are composed once; both are
cached with the octets that arrived (`CachedPrefix`), and used for every message with the same octets.
"""
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memset

from router.amqp.codec cimport Slice
from router.amqp.frames cimport Transfer
from router.amqp.id_map cimport map_reserve
from router.amqp.items cimport item_at, items_in
from router.delivery.delivery cimport (
    IN_COMPLETE, IN_CREDITED, IN_ROUTED, InDelivery, OutDelivery, deliveries_reserve, out_make,
)
from router.forwarding.consumer cimport Consumer
from router.forwarding.forward cimport (
    FEW_CONSUMERS, NextHopChoice, choose_next_hop, least_loaded, rotate_consumers, rotate_nearest_routers,
)
from router.forwarding.table cimport BALANCED, CLOSEST, ForwardingAddress
from router.interworker.port_out cimport PortOut, room_for_whole, write_whole
from router.interworker.records cimport F_HONOUR, F_PRESETTLED, K_AS_IS, K_CHECKPOINT
from router.links.consumer_link cimport ConsumerLink, AnnotationsEdit, can_send_now, may_queue_edited, write_replaced
from router.links.delivery_link cimport delivery_begins
from router.links.producer_link cimport ProducerLink, count_presettled, is_checkpoint, spend_credit
from router.message.annotations cimport ComposedAnnotations, composed_keep
from router.message.content cimport STREAM_AT, Content, Cursor, Message, message_whole
from router.stats.counters cimport totals


cdef bint forward_to_ring(ForwardingAddress address, ProducerLink link, Consumer consumer, const Transfer* t,
                          const Slice* to,
                          int phase, bint honour) except -1:
    cdef void* port = <void*>consumer.port.outgoing
    cdef InDelivery* d
    cdef OutDelivery* o
    cdef uint8_t kind = <uint8_t>address.overflow | K_AS_IS
    cdef uint8_t* room = room_for_whole(<PortOut>port, to.size, t.payload.size)
    if room is NULL:
        return False
    link.session.expected_delivery_id += 1
    spend_credit(link)
    link.occupied += 1
    link.slot.unsettled += 1
    d = delivery_begins(link, t, IN_COMPLETE)
    if t.settled and is_checkpoint(link, t.payload.size):
        kind |= K_CHECKPOINT
    map_reserve(&(<PortOut>port).sent)
    o = out_make(&(<PortOut>port).node, d, t.settled, True)
    write_whole(<PortOut>port, room, o, (F_PRESETTLED if t.settled else 0) | (F_HONOUR if honour else 0), kind, phase,
                t.message_format, consumer.slot_index, consumer.generation, to, t.payload.data, t.payload.size)
    d.flags |= IN_ROUTED
    consumer.sent += 1
    link.slot.deliveries += 1
    if t.settled:
        count_presettled(link)
    return True


cdef inline bint choose_leg(ForwardingAddress address, uint32_t came_by, const LeadingSections* said,
                            uint64_t producer, ForwardingLeg* way) noexcept:
    """Choose the consumer of this worker that gets the next delivery, as `deliver` and `forward` do.

    Returns False if the address needs the slow path, or the consumer is on another worker.
    """
    cdef void* consumers = <void*>address.consumers
    cdef void* chosen
    cdef NextHopChoice step
    way.remote = address.remotes is not None
    way.turns = False
    way.alone = True
    way.outstanding = NULL
    if address.exchange is not None or address.special or address.treatment > CLOSEST:
        return False
    if way.remote:
        choose_next_hop(address, said.priority, said.sections, producer, &step)
        chosen = step.link
        way.outstanding = step.outstanding
        way.alone = step.alone
        way.turns = address.treatment == CLOSEST
    elif items_in(consumers) == 1:
        chosen = item_at(consumers, 0)
        if came_by and (<Consumer>chosen).edge == came_by:
            return False
    elif address.treatment == BALANCED and address.served is None and items_in(consumers) <= FEW_CONSUMERS:
        chosen = least_loaded(address, came_by, &way.turns)
        way.alone = False
    else:
        return False
    if chosen is NULL or (<Consumer>chosen).link is None:
        return False
    way.container = (<Consumer>chosen).container
    way.consumer = <void*>(<Consumer>chosen).link
    return True


cdef bint keep_composed_annotations(ComposedAnnotations* kept, const LeadingSections* said, const Slice* to,
                                    int phase) noexcept:
    """Compose the annotations for router links and keep them."""
    cdef Content c
    memset(&c, 0, sizeof(Content))
    if said.sections is not NULL:
        c.sections = said.sections[0]
    c.to = to[0]
    c.phase = phase
    return composed_keep(kept, &c)


cdef inline bint choose_annotations_edit(void* consumer, const LeadingSections* said, ComposedAnnotations* kept,
                                         const Slice* to, int phase,
                                         AnnotationsEdit* other) noexcept:
    """Set the edit that gives the message the consumer's annotations.

    Returns False if they must be composed for each message.
    """
    other.at = other.end = said.at
    other.octets = NULL
    other.size = 0
    if (<ConsumerLink>consumer).annotations:
        if not (<ConsumerLink>consumer).plain and not (<ConsumerLink>consumer).routed:
            return False
        if kept.octets is NULL and not keep_composed_annotations(kept, said, to, phase):
            return False
        other.octets = kept.octets
        other.size = kept.size
    elif not (<ConsumerLink>consumer).plain:
        return False
    if said.sections is not NULL and ((<ConsumerLink>consumer).annotations or said.sections.rewrite):
        if not (<ConsumerLink>consumer).annotations and said.sections.pairs:
            return False                   # users' annotations stay
        other.end = said.sections.end
    return True


cdef bint make_forwarding_decision(ForwardingDecision* answer, ForwardingAddress address, uint64_t version,
                                   uint32_t came_by, uint64_t producer,
                                   const LeadingSections* said, const Slice* to, int phase) noexcept:
    answer.version = 0
    if (said.sections is not NULL and said.sections.hops > address.network.hop_limit) \
            or not choose_leg(address, came_by, said, producer, &answer.way) \
            or not choose_annotations_edit(answer.way.consumer, said, &answer.composed, to, phase, &answer.other):
        return False
    answer.at = said.at
    answer.priority = said.priority
    if answer.way.alone:
        answer.version = version
    return True


cdef inline bint is_usual(ProducerLink link, const Transfer* t) noexcept nogil:
    """Return False for a stream, and for a settled delivery that is tracked between routers (Content.checkpoint)."""
    if t.settled and is_checkpoint(link, t.payload.size):
        return False
    return t.payload.size < STREAM_AT


cdef inline size_t size_out(const Transfer* t, const ForwardingDecision* answer) noexcept nogil:
    """Return the octets of the message as it leaves."""
    return t.payload.size - (answer.other.end - answer.other.at) + answer.other.size


cdef inline void count_leg(void* address, const ForwardingDecision* answer) noexcept:
    """Count the delivery and rotate lists, as `forward` and `forward_network` do."""
    if answer.way.remote:
        (<ForwardingAddress>address).slot.transit += 1
        totals.transit += 1
        if answer.way.turns:
            rotate_nearest_routers(<ForwardingAddress>address)
    else:
        (<ForwardingAddress>address).slot.egress += 1
        totals.egress += 1
        if answer.way.container:
            count_to_container(address)
        if answer.way.turns:
            rotate_consumers(<ForwardingAddress>address)


cdef bint forward_edited_now(void* address, ProducerLink link, const Transfer* t,
                             const ForwardingDecision* answer) except -1:
    if not is_usual(link, t) or not can_send_now(<ConsumerLink>answer.way.consumer, size_out(t, answer), t.settled):
        return False
    forward_now(link, <ConsumerLink>answer.way.consumer, t, &answer.other, answer.way.outstanding,
                link.credit_on_forward)
    count_leg(address, answer)
    return True


cdef bint queue_edited(void* address, ProducerLink link, const Transfer* t, const ForwardingDecision* answer) except -1:
    cdef ConsumerLink consumer = <ConsumerLink>answer.way.consumer
    cdef Cursor cursor
    cdef InDelivery* d
    cdef Message* m
    if t.settled or not is_usual(link, t) or not may_queue_edited(consumer):
        return False
    # Reserve everything first: nothing may fail once the message exists.
    deliveries_reserve()
    map_reserve(&link.session.received)
    m = message_whole(t.message_format, size_out(t, answer), link.whole_meter(), &cursor)
    write_replaced(&cursor.chunk.data[0], t.payload.data, t.payload.size, &answer.other)
    # As ProducerLink.first_frame does.
    link.session.expected_delivery_id += 1
    spend_credit(link)
    link.slot.unsettled += 1
    d = delivery_begins(link, t, IN_COMPLETE)
    if link.credit_on_forward:
        d.flags |= IN_CREDITED
        if not link.needs_flow:
            link.session.want_flow(link)
    else:
        link.occupied += 1
    consumer.queue_whole(d, m, &cursor, answer.way.outstanding)
    # As ProducerLink.route_content does.
    link.slot.deliveries += 1
    d.flags |= IN_ROUTED
    count_leg(address, answer)
    return True
