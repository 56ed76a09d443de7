"""Forwarders: which consumers of an address get a delivery."""
from router.amqp.delivery cimport InDelivery
from router.amqp.message cimport Content
from router.routing.table cimport Address

# Offers d to consumers of the address as its treatment says; returns the number of copies, 0: nobody is there.
cdef int forward(Address address, InDelivery* d, Content* c) except -1
# The same for an exchange: to its address, the next hops of its bindings, or its alternate address.
cdef int forward_exchange(Address address, InDelivery* d, Content* c) except -1
# The same for those who stand in for consumers of the address, which has a fallback.
cdef int forward_fallback(Address address, InDelivery* d, Content* c) except -1
