"""Ends of a copy that are not inline: the ring to another worker, and the queue of a consumer (carry.pxd)."""
from libc.stdint cimport uint8_t, uint32_t

from sluice.router.amqp.frames cimport Transfer
from sluice.router.amqp.id_map cimport map_reserve
from sluice.router.amqp.meter cimport Meter
from sluice.router.delivery.delivery cimport (
    IN_COMPLETE, IN_CREDITED, IN_ROUTED, InDelivery, OutDelivery, deliveries_reserve, out_charge, out_count,
    out_make,
)
from sluice.router.delivery.plan cimport Plan
from sluice.router.ring.port_out cimport PortOut, room_for_whole, write_whole
from sluice.router.ring.records cimport F_HONOUR, F_PRESETTLED, K_CHARGED, K_CHECKPOINT
from sluice.router.links.consumer_link cimport ConsumerLink, may_queue_edited, write_replaced
from sluice.router.links.delivery_link cimport delivery_begins
from sluice.router.links.granting_link cimport GrantingLink, count_presettled, is_checkpoint, spend_credit
from sluice.router.message.content cimport STREAM_AT, Cursor, Message, message_whole
from sluice.router.table.consumer cimport Consumer


cdef inline InDelivery* begin_delivery(GrantingLink link, const Transfer* t) except NULL:
    """Number the delivery, spend credit and make its struct, as `first_frame` and `route_content` do."""
    cdef InDelivery* d
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
    return d


cdef bint put_in_ring(GrantingLink link, const Transfer* t, const Plan* plan) except -1:
    cdef void* consumer = plan.choice.consumer
    cdef void* port = <void*>(<Consumer>consumer).port.outgoing
    cdef InDelivery* d
    cdef OutDelivery* o
    cdef uint8_t kind = plan.overflow
    cdef uint8_t* room
    cdef Meter* meter = NULL
    if t.settled and plan.came_by_router:
        return False                       # another overflow policy applies, see `overflow_of`
    room = room_for_whole(<PortOut>port, plan.to.size, t.payload.size)
    if room is NULL:
        return False
    # Reserve everything first: nothing may fail once the delivery exists.
    deliveries_reserve()
    map_reserve(&link.session.received)
    map_reserve(&(<PortOut>port).sent)
    if link.node.meter is not NULL:
        meter = link.session.crossed
        if meter is NULL:
            meter = link.session.crossed_meter()
        kind |= K_CHARGED
    if t.settled and is_checkpoint(link, t.payload.size):
        kind |= K_CHECKPOINT
    d = begin_delivery(link, t)
    o = out_make(&(<PortOut>port).node, d, t.settled, True)
    if plan.choice.outstanding is not NULL and not t.settled:
        out_count(o, plan.choice.outstanding)
    if meter is not NULL:
        out_charge(o, meter, <uint32_t>t.payload.size)
    write_whole(<PortOut>port, room, o, (F_PRESETTLED if t.settled else 0) | (F_HONOUR if plan.honour else 0), kind,
                plan.phase, t.message_format, (<Consumer>consumer).slot_index, (<Consumer>consumer).generation,
                &plan.to, t.payload.data, t.payload.size)
    d.flags |= IN_ROUTED
    (<Consumer>consumer).sent += 1
    link.slot.deliveries += 1
    if t.settled:
        count_presettled(link)
    return True


cdef bint put_in_queue(GrantingLink link, const Transfer* t, const Plan* plan) except -1:
    cdef ConsumerLink consumer = <ConsumerLink>plan.leg.link
    cdef Cursor cursor
    cdef InDelivery* d
    cdef Message* m
    if t.settled or t.payload.size >= STREAM_AT or not may_queue_edited(consumer):
        return False
    # Reserve everything first: nothing may fail once the message exists.
    deliveries_reserve()
    map_reserve(&link.session.received)
    m = message_whole(t.message_format, octets_out(t, &plan.leg), link.whole_meter(), &cursor)
    write_replaced(&cursor.chunk.data[0], t.payload.data, t.payload.size, &plan.leg.edit)
    d = begin_delivery(link, t)
    consumer.queue_whole(d, m, &cursor, plan.choice.outstanding)
    link.slot.deliveries += 1
    d.flags |= IN_ROUTED
    return True
