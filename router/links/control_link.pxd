"""The links between two routers for control messages."""
from router.links.producer_link cimport ProducerLink
from router.amqp.meter cimport Meter
from router.links.consumer_link cimport ConsumerLink

cdef enum:
    # Octets of one control message (Limits.message_octets of the supervisor). All addresses of a router of 1.19 are in
    # one, 600,000 of 50 characters.
    CONTROL_MOST = 33554432
    # Octets of incomplete control messages of all links of this process together.
    CONTROL_HELD = 67108864

cdef class ControlOut(ConsumerLink):
    pass

# Collects each message whole before it is routed.
cdef class ControlIn(ProducerLink):
    pass
