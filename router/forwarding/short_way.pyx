"""The short way of a delivery into the ring to another worker: as `first_frame`, `give` and `offer_one`.

The delivery holds its place until that worker says what became of it. What it does there: `PortIn.pass_on`.
"""
from libc.stdint cimport uint8_t

from router.amqp.id_map cimport map_reserve
from router.delivery.delivery cimport OutDelivery, out_make
from router.interworker.port_out cimport PortOut, room_for_whole, write_whole
from router.interworker.records cimport F_HONOUR, F_PRESETTLED, K_AS_IS, K_CHECKPOINT
from router.links.producer_link cimport is_checkpoint


cdef bint pass_over(Address address, ProducerLink link, Consumer consumer, const Transfer* t, const Slice* to,
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
    d = take_in(link, t)
    if t.settled and is_checkpoint(link):
        kind |= K_CHECKPOINT
    map_reserve(&(<PortOut>port).sent)
    o = out_make(&(<PortOut>port).node, d, t.settled, True)
    write_whole(<PortOut>port, room, o, (F_PRESETTLED if t.settled else 0) | (F_HONOUR if honour else 0), kind, phase,
                t.message_format, consumer.slot_index, consumer.generation, to, t.payload.data, t.payload.size)
    d.flags |= IN_ROUTED
    consumer.sent += 1
    count_forwarded(address, link, t)
    return True
