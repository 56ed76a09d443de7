"""Consumers that refuse messages above some length (max-message-size of their attach, AMQP 1.0 part 2, 2.7.3).

routing-semantics.md 8.11; decision 0062.
"""
from libc.stdint cimport UINT64_MAX, uint8_t
from libc.stdlib cimport free, malloc

from sluice.router.table.consumer cimport Consumer
from sluice.router.message.annotations cimport compose, compose_room


cdef uint64_t octets_to_consumer(const Content* c) except? 0xFFFFFFFFFFFFFFFF:
    cdef uint64_t octets = c.stored.size if c.stored is not NULL else c.size
    cdef uint8_t* room
    if not c.sections.rewrite:
        return octets
    room = <uint8_t*>malloc(compose_room(c))
    if room is NULL:
        raise MemoryError("annotations")
    octets += compose(room, c, False)
    octets -= c.sections.end - c.sections.at
    free(room)
    return octets


cdef list consumers_for(ForwardingAddress address, uint64_t octets):
    cdef Consumer consumer
    cdef list found
    cdef uint64_t above = 0
    cdef uint64_t most = UINT64_MAX
    if address.fitting is not None and address.fits_from < octets <= address.fits_to:
        return address.fitting
    found = []
    for consumer in address.consumers:
        if consumer.message_limit and consumer.message_limit < octets:
            above = max(above, consumer.message_limit)
            continue
        found.append(consumer)
        if consumer.message_limit:
            most = min(most, consumer.message_limit)
    address.fitting = found
    address.fits_from = above
    address.fits_to = most
    address.fitting_start = 0
    return found
