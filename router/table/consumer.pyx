"""Outgoing links of any worker, as forwarders see them."""
from sluice.router.amqp import codec


cdef class Consumer:
    pass


cdef Consumer find_consumer(Region region, int worker, list ports, dict links, int owner, uint32_t slot_index,
                            uint32_t generation, uint32_t capacity, uint32_t edge, uint32_t cost, str peer):
    cdef Consumer consumer = Consumer()
    consumer.worker = owner
    consumer.slot_index = slot_index
    consumer.generation = generation
    consumer.capacity = capacity or 1
    consumer.edge = edge
    consumer.cost = cost
    consumer.peer = codec.encode_string(peer) if peer else None
    consumer.slot = region.link_slot(owner, slot_index)
    consumer.container = consumer.slot.container != 0
    consumer.message_limit = consumer.slot.message_limit
    if owner == worker:
        consumer.link = links.get(slot_index)
        if consumer.link is None or consumer.link.slot.generation != generation:
            return None
    else:
        consumer.port = ports[owner]
        consumer.taken = &region.link_taken(consumer.slot)[worker]
        consumer.sent = consumer.taken[0]
    return consumer
