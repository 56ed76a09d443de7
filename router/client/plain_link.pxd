"""Links whose deliveries are Python objects: base class of Sender and Receiver."""
from libc.stdint cimport uint8_t, uint32_t

from sluice.router.amqp.id_map cimport IdMap
from sluice.router.amqp.endpoint cimport DeliveryEntryOwner
from sluice.router.amqp.link cimport Link

# Unsettled delivery in the map of its session. Owner: its link.
cdef struct UnsettledEntry:
    DeliveryEntryOwner* owner
    uint32_t id

# Base class of Sender and Receiver. Owner: its session.
cdef class PlainLink(Link):
    cdef DeliveryEntryOwner entry_owner
    cdef public object handler             # see sender.pyx, receiver.pyx
    cdef readonly dict unsettled           # delivery-id -> delivery
    cdef readonly uint32_t delivery_count
    cdef readonly uint32_t credit
    cdef readonly tuple reason             # condition and description with which this side has detached; or None
    cdef int remember(self, IdMap* entries, uint32_t id, object delivery) except -1
    cdef int forget(self, IdMap* entries, uint32_t id) except -1
    cdef int forget_all(self) except -1
