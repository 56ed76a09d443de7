"""Settlement by runs: the short way of a disposition (docs/internals/engine.md, "The short way").

A run are copies that one consumer has settled together, with one outcome, whose delivery-ids follow each other, and
whose deliveries came by one link. It is what a disposition for a range is about, nearly always: it is counted, taken
out of lists and reported once.
"""
from libc.stdint cimport uint8_t, uint32_t

from router.amqp.codec cimport Slice
from router.delivery.delivery cimport OutDelivery
from router.links.delivery_link cimport DeliveryLink

cdef enum:
    RUN_MOST = 64              # copies of a run; more are several

# The peer of `link` has settled copy o, and those with the next ids, `most` together. Returns how many were settled
# here; 0: o is in some way unusual.
cdef uint32_t settle_copies(DeliveryLink link, OutDelivery* o, uint32_t most, uint8_t kind,
                            const Slice* state) except 0xFFFFFFFF
# NodeCalls.settled of `link`, by which the sources of a run came, but for its credit. client: it is none of a router.
# Returns how many of them had their credit still.
cdef uint32_t settle_sources(DeliveryLink link, OutDelivery** run, uint32_t n, uint8_t kind, const Slice* state,
                             bint client) except 0xFFFFFFFF
# For tests: everything takes the general way.
cdef void use_runs(bint on) noexcept
