"""Settlement of runs: the end of a disposition's range (docs/internals/life-of-a-message.md, "Settlement").

A run is a number of copies with consecutive delivery-ids, which one consumer has settled together with one outcome,
and whose deliveries arrived by one link. A disposition for a range is nearly always one run. A run is counted, removed
from lists and reported once.
"""
from libc.stdint cimport uint8_t, uint32_t

from sluice.router.amqp.codec cimport Slice
from sluice.router.amqp.id_map cimport IdMap
from sluice.router.delivery.delivery cimport (
    IN_COMPLETE, IN_CREDITED, IN_ROUTED, OUT_STARTED, InDelivery, OutDelivery,
)
from sluice.router.links.delivery_link cimport DeliveryLink

cdef enum:
    RUN_MOST = 64              # copies in a run; longer ones are split

# Settle a run of `link`'s copies that starts with o, of `most` copies at most, all settled by the peer. Returns the
# number of copies settled; 0: o needs the slow path.
cdef uint32_t settle_copies(DeliveryLink link, OutDelivery* o, uint32_t most, uint8_t kind,
                            const Slice* state) except 0xFFFFFFFF
# Finish the deliveries of a run, which arrived by `link`, except for credit: NodeCalls.settled of a link. client: the
# link is not another router's. Returns how many of them still occupied a place.
cdef uint32_t settle_sources(DeliveryLink link, OutDelivery** run, uint32_t n, uint8_t kind, const Slice* state,
                             bint client) except 0xFFFFFFFF
# Put the deliveries of a run into `sources`, and cut deliveries and copies from each other.
cdef void cut_sources(OutDelivery** run, uint32_t n, InDelivery** sources) noexcept nogil
# Release the deliveries in `sources` and remove their keys from the map. Returns how many still occupied a place.
cdef uint32_t free_sources(IdMap* received, InDelivery** sources, uint32_t n) noexcept
# Switch runs on or off. For tests: off, every settlement takes the slow path.
cdef void use_runs(bint on) noexcept
cdef bint runs_used() noexcept


cdef inline bint can_join_run(const OutDelivery* o, const InDelivery* d) noexcept nogil:
    """Return True if copy o, whose delivery is d, may be part of a run: written whole, unsettled, the only copy of a
    complete delivery of which nothing has been reported."""
    return (o.flags == OUT_STARTED and d is not NULL and d.flags & ~IN_CREDITED == IN_ROUTED | IN_COMPLETE
            and d.kind == 0 and d.message is NULL and d.since != 0)
