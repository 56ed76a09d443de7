"""The router as producer of its own messages."""
from sluice.router.amqp.scheduler cimport Scheduler
from sluice.router.delivery.delivery cimport NodeOwner
from sluice.router.amqp.meter cimport Meter
from sluice.router.table.table cimport ForwardingAddress

# Producer of the router's own messages in this process. Owner: the worker.
cdef class InternalProducer(NodeOwner):
    cdef Scheduler scheduler
    cdef Meter* meter                      # counts octets of own messages that this process holds
