"""Routing of messages on a control link: each goes, whole, to the supervisor (inter-router.md 11.2)."""
from cpython.bytes cimport PyBytes_FromStringAndSize

from sluice.router.links.control_link cimport CONTROL_MOST
from sluice.router.delivery.delivery cimport IN_ACCEPT, InDelivery
from sluice.router.links.producer_link cimport ROUTED, WANTS_MORE, DeliveryHandler, ProducerLink
from sluice.router.message.content cimport Content
from sluice.router.amqp.spec cimport D_REJECTED, D_RELEASED
from sluice.router.table.table cimport Table

from sluice.router.amqp import codec

cdef bytes TOO_LONG = codec.encode_described(D_REJECTED, [codec.encode_error(
    "amqp:link:message-size-exceeded", f"the control message has more than {CONTROL_MOST} octets")])


cdef class ControlHandler(DeliveryHandler):
    """Handler that collects each message of a control link and passes it to the supervisor. Owner: the link."""
    cdef Table table
    cdef str key
    cdef object too_long

    def __cinit__(self, Table table not None, str key not None, too_long not None):
        """key: address key of such messages at the supervisor.

        too_long: called when a message is refused for its length.
        """
        self.table = table
        self.key = key
        self.too_long = too_long

    cdef int route(self, ProducerLink link, InDelivery* d, Content* c) except -1:
        if (c.stored.size if c.stored is not NULL else c.size) > CONTROL_MOST:
            link.refuse(d, D_REJECTED, TOO_LONG, True)
            self.too_long()
            return ROUTED
        if not c.whole:
            if c.complete or link.collect(d):
                return WANTS_MORE
            link.refuse(d, D_RELEASED, None, True)
            return ROUTED
        if not self.table.on_local(link, self.key, PyBytes_FromStringAndSize(<const char*>c.data, c.size)):
            link.refuse(d, D_RELEASED, None, True)
            return ROUTED
        d.flags |= IN_ACCEPT
        return ROUTED
