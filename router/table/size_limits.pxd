"""Consumers that refuse messages above some length (max-message-size of their attach, AMQP 1.0 part 2, 2.7.3)."""
from libc.stdint cimport uint64_t

from sluice.router.table.table cimport ForwardingAddress
from sluice.router.message.content cimport Content

# Length in octets of a message as a consumer gets it, without router annotations. Of a message that is still arriving:
# of the octets that have arrived.
cdef uint64_t octets_to_consumer(const Content* c) except? 0xFFFFFFFFFFFFFFFF
# Consumers of an address that take a message of `octets` octets, in their order. The list is borrowed:
# `ForwardingAddress.fitting`.
cdef list consumers_for(ForwardingAddress address, uint64_t octets)


cdef inline bint exceeds_some(ForwardingAddress address, const Content* c) noexcept:
    """Return True if a message may be longer than some consumer of the address takes."""
    return address.limits and (c.stored.size if c.stored is not NULL else c.size) > address.least_limit
