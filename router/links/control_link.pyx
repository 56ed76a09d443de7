"""Links between two routers for control messages of the inter-router protocol (inter-router.md 2.6, 2.7, 11.2)."""

from sluice.router.amqp.endpoint cimport OUTPUT_HIGH
from sluice.router.delivery.delivery cimport IN_COLLECT, InDelivery
from sluice.router.amqp.frames cimport Transfer
from sluice.router.links.producer_link cimport stored_content
from sluice.router.amqp.meter cimport meter_new
from sluice.router.message.content cimport Content, message_append, message_meter

# Octets of incomplete control messages in this process.
cdef Meter* collecting = meter_new(NULL, NULL)


cdef class ControlOut(ConsumerLink):
    """Outgoing control link: messages leave unchanged, before deliveries of other links of the connection.

    Owner: its session.
    """

    def __cinit__(self, **options):
        self.urgent = True
        self.output_high = 2 * OUTPUT_HIGH

    cdef bint holds(self) noexcept:
        return False                       # must not be ended at the memory bound


cdef class ControlIn(ProducerLink):
    """Incoming control link. Owner: its session."""

    def __cinit__(self):
        self.inter_router = True

    cdef bint holds(self) noexcept:
        return False                       # control messages must not be dropped at the memory bound

    cdef bint collect(self, InDelivery* d) except *:
        if not d.flags & IN_COLLECT:
            d.flags |= IN_COLLECT
            message_meter(d.message, collecting)
        return collecting.held <= CONTROL_HELD and d.message.size <= CONTROL_MOST

    cdef int collect_frame(self, InDelivery* d, const Transfer* t) except -1:
        cdef Content c
        message_append(d.message, t.payload.data, t.payload.size)
        d.message.complete = not t.more
        if t.more and d.message.size <= CONTROL_MOST and collecting.held <= CONTROL_HELD:
            return 0
        stored_content(d, &c)
        return self.route_stored(d, &c)
