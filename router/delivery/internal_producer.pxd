"""The router as producer of its own messages."""
from router.amqp.scheduler cimport Scheduler
from router.delivery.delivery cimport NodeOwner
from router.amqp.meter cimport Meter
from router.table.table cimport ForwardingAddress

# Producer of the router's own messages in this process. Owner: the worker.
cdef class InternalProducer(NodeOwner):
    cdef Scheduler scheduler
    cdef Meter* meter                      # counts octets of own messages that this process holds
