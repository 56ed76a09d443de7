"""The links between two routers that carry what routers say to each other."""
from router.amqp.incoming_link cimport IncomingLink
from router.amqp.message cimport Meter
from router.amqp.outgoing_link cimport OutgoingLink

cdef enum:
    # Octets of one control message: an absolute MAU of 100,000 addresses is about 4 MiB.
    CONTROL_MOST = 8388608
    # Octets of incomplete control messages of all links of this process together.
    CONTROL_HELD = 67108864

cdef class ControlOut(OutgoingLink):
    pass

# Collects each message whole before it is routed.
cdef class ControlIn(IncomingLink):
    pass
