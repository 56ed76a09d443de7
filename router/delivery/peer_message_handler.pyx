"""Routing of messages that two routers exchange on a link of an edge connection: each is taken whole
(inter-router.md 14)."""
from cpython.bytes cimport PyBytes_FromStringAndSize

from sluice.router.delivery.delivery cimport IN_ACCEPT, InDelivery
from sluice.router.links.producer_link cimport COLLECT_MOST, ROUTED, WANTS_MORE, DeliveryHandler, ProducerLink
from sluice.router.message.content cimport Content
from sluice.router.amqp.spec cimport D_REJECTED, D_RELEASED

from sluice.router.amqp import codec

cdef bytes TOO_LONG = codec.encode_described(D_REJECTED, [codec.encode_error(
    "amqp:link:message-size-exceeded", f"the message for the router itself has more than {COLLECT_MOST} octets")])


def refuse_message(octets):
    """Refuse a message: `PeerMessageHandler.take` of a link that has ended."""
    return False


cdef class PeerMessageHandler(DeliveryHandler):
    """Handler that collects each message of a link and passes it to a callable. Owner: the link."""
    cdef object take

    def __cinit__(self, take not None):
        """take(octets): accepts a message; False: it is released."""
        self.take = take

    def drop(self):
        """Release all further messages: the link has ended. Breaks a reference cycle."""
        self.take = refuse_message

    cdef int route(self, ProducerLink link, InDelivery* d, Content* c) except -1:
        if (c.stored.size if c.stored is not NULL else c.size) > COLLECT_MOST:
            link.refuse(d, D_REJECTED, TOO_LONG, True)
            return ROUTED
        if not c.whole:
            if c.complete or link.collect(d):
                return WANTS_MORE
            link.refuse(d, D_RELEASED, None, True)
            return ROUTED
        if not self.take(PyBytes_FromStringAndSize(<const char*>c.data, c.size)):
            link.refuse(d, D_RELEASED, None, True)
            return ROUTED
        d.flags |= IN_ACCEPT
        return ROUTED
