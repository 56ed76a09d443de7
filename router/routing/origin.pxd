"""Where messages of the router itself come from."""
from router.amqp.connection cimport Scheduler
from router.amqp.delivery cimport Party
from router.amqp.message cimport Meter
from router.routing.table cimport Address

# Owner: the worker.
cdef class Origin(Party):
    cdef Scheduler scheduler
    cdef Meter* meter                      # octets of own messages held in this process
