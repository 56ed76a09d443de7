"""Taps: copies of the messages of some addresses for another address (docs/user/tap.md, decision 0087)."""
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from sluice.router.amqp.meter cimport Meter
from sluice.router.delivery.delivery cimport InDelivery, OutDelivery
from sluice.router.message.content cimport Content
from sluice.router.ring.layout cimport AddressSlot
from sluice.router.table.table cimport AddressTap

cdef enum:
    # Cost units of a copy, charged to the producer's connection; in addition those in `Tap.copied`.
    TAP_UNITS = 5

# Tap of the configuration. It is the upstream node of its copies, which are deliveries of their own, and the downstream
# node of the legs by which deliveries of required taps wait for their copies. `key` of a copy: address of its leg, or
# its octets doubled plus 1 if no delivery waits for it. Owner: the table.
cdef class Tap(AddressTap):
    cdef uint64_t octets                   # of unsettled copies that no delivery waits for
    cdef uint64_t copied                   # cost units of the octets and sections of all copies
    cdef Meter* meter                      # counts stored octets of these copies
    # Counters. `ingress` counts messages that the tap selects; `egress` copies that were accepted, `redirected` those
    # that were rejected, `from_container` those that were released or modified. Messages without a copy: `transit`
    # counts those that no consumer could get, `to_container` those that found too many copies unsettled,
    # `ingress_container` those that are too long.
    cdef AddressSlot* counts
    # Make the copy of a message, as far as the bounds permit. Nothing waits for it. source: address that the message
    # was sent to, as an encoded string. producer: number of its link. now: ns.
    cdef int copy(self, bytes source, const Content* c, uint64_t producer, uint64_t now) except -1
    # Make the copy of a message and a leg of its delivery, which waits for the copy. meter: counts octets of the copy
    # that have to wait.
    cdef int require(self, InDelivery* d, bytes source, const Content* c, uint64_t producer, uint64_t now,
                     Meter* meter) except -1
    cdef int send(self, InDelivery* d, bytes source, const Content* c, uint64_t producer, Meter* meter) except -1
    cdef int ended(self, uint64_t key, uint8_t kind) except -1
    cdef int finish_leg(self, OutDelivery* leg, bint accepted) except -1

# Return True if one of these taps is required, and copies messages of this tenant.
cdef bint is_required(tuple taps, str tenant) noexcept
