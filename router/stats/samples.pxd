"""Samples of single deliveries. A worker writes its own into shared memory, for the telemetry process."""
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from router.delivery.delivery cimport OUT_SAMPLED, OutDelivery
from router.interworker.layout cimport SAMPLE_EVERY, LinkSlot
from router.interworker.region cimport Region
from router.amqp.spec cimport D_ACCEPTED

cdef enum:
    SLOW_NS = 1000000000       # a delivery that takes longer is a sample

# From now on this process writes the samples of that worker. NULL: of none.
cdef void use_samples(Region region, int worker) noexcept

# The last octet of a copy has been written at `now`, and it is one of those to look at.
cdef void sample_left(const LinkSlot* slot, OutDelivery* o, uint64_t now) noexcept nogil
# It has left settled.
cdef void sample_left_settled(const LinkSlot* slot, uint64_t octets, uint64_t since, uint64_t now) noexcept nogil
# It was settled with this outcome.
cdef void sample_settled(const LinkSlot* slot, const OutDelivery* o, uint8_t kind, uint64_t now) noexcept nogil

# Whether the delivery just counted is one of those to look at: one of SAMPLE_EVERY of a link, and for each link another
# one.
cdef inline bint is_sample(const LinkSlot* slot) noexcept nogil:
    return (<uint32_t>slot.deliveries ^ slot.generation) % SAMPLE_EVERY == 0

# Whether a copy that was settled with this outcome, so long (ns) after it came, is a sample.
cdef inline bint is_settled_sample(const OutDelivery* o, uint8_t kind, uint64_t age) noexcept nogil:
    return o.flags & OUT_SAMPLED or kind != D_ACCEPTED or age > SLOW_NS
