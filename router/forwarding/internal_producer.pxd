"""Where messages of the router itself come from."""
from router.amqp.scheduler cimport Scheduler
from router.delivery.delivery cimport NodeOwner
from router.amqp.meter cimport Meter
from router.forwarding.table cimport Address

# Owner: the worker.
cdef class InternalProducer(NodeOwner):
    cdef Scheduler scheduler
    cdef Meter* meter                      # octets of own messages held in this process
