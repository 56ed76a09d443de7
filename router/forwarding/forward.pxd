"""Forwarders: which consumers of an address get a delivery."""
from router.delivery.delivery cimport InDelivery
from router.message.content cimport Content
from router.forwarding.table cimport Address

# Passes d to consumers of the address by its treatment; returns the number of copies, 0: there is no consumer.
cdef int forward(Address address, InDelivery* d, Content* c) except -1
# The same for an exchange: to its address, the next hops of its bindings, or its alternate address.
cdef int forward_exchange(Address address, InDelivery* d, Content* c) except -1
# The same for those who stand in for consumers of the address, which has a fallback.
cdef int forward_fallback(Address address, InDelivery* d, Content* c) except -1
