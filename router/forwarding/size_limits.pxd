"""Consumers that take no message above some length (max-message-size of their attach, AMQP 1.0 part 2, 2.7.3)."""
from libc.stdint cimport uint64_t

from router.forwarding.table cimport Address
from router.message.content cimport Content

# Octets of a message as a consumer gets it, without annotations of routers: all, or as many as are known of one that is
# still coming in.
cdef uint64_t octets_to_consumer(const Content* c) except? 0xFFFFFFFFFFFFFFFF
# The consumers of an address that take a message of so many octets, in their order. Borrowed: `Address.fitting`.
cdef list consumers_for(Address address, uint64_t octets)


cdef inline bint exceeds_some(Address address, const Content* c) noexcept:
    """True if a message may be longer than some consumer of the address takes."""
    return address.limits and (c.stored.size if c.stored is not NULL else c.size) > address.least_limit
