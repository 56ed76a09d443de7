"""Links between two routers for control messages."""
from sluice.router.links.producer_link cimport ProducerLink
from sluice.router.amqp.meter cimport Meter
from sluice.router.links.consumer_link cimport ConsumerLink

cdef enum:
    # Octets of the longest control message (Limits.message_octets of the supervisor). A router of 1.19 sends all its
    # addresses in one message: 600,000 of 50 characters fit.
    CONTROL_MOST = 33554432
    # Octets of incomplete control messages that this process may hold, over all links.
    CONTROL_HELD = 67108864

# Outgoing control link. Owner: its session.
cdef class ControlOut(ConsumerLink):
    pass

# Incoming control link: each message is collected whole before it is routed. Owner: its session.
cdef class ControlIn(ProducerLink):
    pass
