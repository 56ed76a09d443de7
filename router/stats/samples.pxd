"""Samples of single deliveries. Each worker writes its samples to shared memory; the telemetry process reads them."""
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from sluice.router.delivery.delivery cimport OUT_SAMPLED, OUT_TRACED, OutDelivery
from sluice.router.ring.layout cimport SAMPLE_EVERY, LinkSlot
from sluice.router.ring.region cimport Region
from sluice.router.amqp.spec cimport D_ACCEPTED

cdef enum:
    SLOW_NS = 1000000000       # age above which each delivery is a sample

# Write samples to the ring of this worker from now on. None as region: write no samples.
cdef void use_samples(Region region, int worker) noexcept

# Mark a copy as a sample. Its last octet was written at `now`.
cdef void mark_sample_sent(const LinkSlot* slot, OutDelivery* o, uint64_t now) noexcept nogil
# Write the sample of a copy that was sent settled. since: time in ns at which its first octet arrived. now: in ns.
cdef void write_settled_sample(const LinkSlot* slot, uint64_t octets, uint64_t since, uint64_t now) noexcept nogil
# Write the sample of a copy that was settled with the outcome `kind`, if `is_settled_sample`, and keep the outcome for
# its span, if it has one.
cdef void write_outcome_sample(const LinkSlot* slot, const OutDelivery* o, uint8_t kind, uint64_t now) noexcept nogil

# True if the delivery of this link that was counted last is a sample. One in SAMPLE_EVERY deliveries of a link is a
# sample; the offset differs between links.
cdef inline bint is_sample(const LinkSlot* slot) noexcept nogil:
    return (<uint32_t>slot.deliveries ^ slot.generation) % SAMPLE_EVERY == 0

# True if a copy that was settled with the outcome `kind`, `age` ns after it arrived, is a sample or has a span.
cdef inline bint is_settled_sample(const OutDelivery* o, uint8_t kind, uint64_t age) noexcept nogil:
    return o.flags & (OUT_SAMPLED | OUT_TRACED) or kind != D_ACCEPTED or age > SLOW_NS
