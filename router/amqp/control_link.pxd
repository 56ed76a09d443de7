"""The links between two routers that carry what routers say to each other."""
from router.amqp.incoming_link cimport IncomingLink
from router.amqp.message cimport Meter
from router.amqp.outgoing_link cimport OutgoingLink

cdef enum:
    # Octets of one control message (Limits.message_octets of the supervisor). All addresses of a router of 1.19 are in
    # one, 600,000 of 50 characters.
    CONTROL_MOST = 33554432
    # Octets of incomplete control messages of all links of this process together.
    CONTROL_HELD = 67108864

cdef class ControlOut(OutgoingLink):
    pass

# Collects each message whole before it is routed.
cdef class ControlIn(IncomingLink):
    pass
