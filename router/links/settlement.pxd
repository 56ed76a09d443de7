"""Settlement by runs: the short way of a disposition (docs/internals/engine.md, "The short way").

A run are copies that one consumer has settled together, with one outcome, whose delivery-ids follow each other, and
whose deliveries came by one link. It is what a disposition for a range is about, nearly always: it is counted, taken
out of lists and reported once.
"""
from libc.stdint cimport uint8_t, uint32_t

from router.amqp.codec cimport Slice
from router.amqp.id_map cimport IdMap
from router.delivery.delivery cimport (
    IN_COMPLETE, IN_CREDITED, IN_ROUTED, OUT_STARTED, InDelivery, OutDelivery,
)
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
# The deliveries of a run, in `sources`; neither refers to the other any more.
cdef void cut_sources(OutDelivery** run, uint32_t n, InDelivery** sources) noexcept nogil
# They end, and leave this map by their keys. Returns how many had their credit still.
cdef uint32_t free_sources(IdMap* received, InDelivery** sources, uint32_t n) noexcept
# For tests: everything takes the general way.
cdef void use_runs(bint on) noexcept
cdef bint runs_used() noexcept


cdef inline bint usual(const OutDelivery* o, const InDelivery* d) noexcept nogil:
    """o may be of a run, d is its source."""
    return (o.flags == OUT_STARTED and d is not NULL and d.flags & ~IN_CREDITED == IN_ROUTED | IN_COMPLETE
            and d.kind == 0 and d.message is NULL and d.since != 0)
