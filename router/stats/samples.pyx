"""Samples of single deliveries: one of SAMPLE_EVERY, and each that was rejected, modified or slow.

The consumer's worker writes a sample, so its times start with the delivery's arrival at this worker. While telemetry is
off, no samples are written.
"""
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from sluice.router.amqp.spec cimport D_MODIFIED, D_REJECTED
from sluice.router.ring.atomics cimport RELAXED, RELEASE, load64, store64
from sluice.router.ring.layout cimport NO_TIME, SAMPLES, LinkSlot, RegionHeader, Sample, SampleRing
from sluice.router.ring.region cimport Region
from sluice.router.tracing.tracer cimport note_span_outcome

cdef enum:
    # Samples of rejected, modified and slow deliveries per second. A consumer that rejects everything must not push all
    # other samples out of the ring.
    MOST_BAD = 100
    NS_A_US = 1000
    NS_A_SECOND = 1000000000

cdef object owner = None       # reference to the region that the following pointers point into
cdef SampleRing* ring = NULL
cdef const uint64_t* kept      # RegionHeader.kept; 0: telemetry is off
cdef const uint8_t* links      # slots of this worker's links
cdef uint64_t links_end, stride
cdef uint64_t bad_second = 0
cdef uint32_t bad = 0          # samples counted for MOST_BAD in `bad_second`


cdef void use_samples(Region region, int worker) noexcept:
    global owner, ring, kept, links, links_end, stride
    owner = region
    ring = NULL
    if region is None:
        return
    kept = &(<RegionHeader*>region.base).kept
    links = <const uint8_t*>region.link_slot(worker, 0)
    stride = region.link_stride
    links_end = stride * <uint64_t>region.links_per_worker
    ring = region.sample_ring(worker)


cdef inline uint32_t micros(uint64_t ns) noexcept nogil:
    ns //= NS_A_US
    return <uint32_t>ns if ns < NO_TIME else NO_TIME - 1


cdef void write(const LinkSlot* slot, uint64_t now, uint64_t octets, uint32_t latency, uint32_t settle, uint8_t kind,
                uint32_t every) noexcept nogil:
    cdef Sample* sample = &ring.samples[ring.head % SAMPLES]
    cdef uint64_t at = <const uint8_t*>slot - links
    if at >= links_end:
        return                 # a link with private counters
    sample.at = now
    sample.octets = octets
    sample.link = <uint32_t>(at // stride)
    sample.generation = slot.generation
    sample.latency = latency
    sample.settle = settle
    sample.kind = kind
    sample.every = every
    store64(&ring.head, ring.head + 1, RELEASE)


cdef bint is_telemetry_on() noexcept nogil:
    return ring is not NULL and load64(kept, RELAXED)


cdef void mark_sample_sent(const LinkSlot* slot, OutDelivery* o, uint64_t now) noexcept nogil:
    if is_telemetry_on():
        o.flags |= OUT_SAMPLED
        o.sent = now


cdef void write_settled_sample(const LinkSlot* slot, uint64_t octets, uint64_t since, uint64_t now) noexcept nogil:
    if is_telemetry_on():
        write(slot, now, octets, micros(now - since), NO_TIME, 0, SAMPLE_EVERY)


cdef void write_outcome_sample(const LinkSlot* slot, const OutDelivery* o, uint8_t kind, uint64_t now) noexcept nogil:
    global bad_second, bad
    cdef uint32_t latency = micros(o.sent - o.since) if o.flags & OUT_SAMPLED else NO_TIME
    cdef uint64_t age = now - o.since
    cdef uint32_t every = SAMPLE_EVERY
    if o.flags & OUT_TRACED and kind:
        note_span_outcome(o, kind)
    if not is_telemetry_on():
        return
    if kind == D_REJECTED or kind == D_MODIFIED or age > SLOW_NS:
        if now // NS_A_SECOND != bad_second:
            bad_second = now // NS_A_SECOND
            bad = 0
        if bad < MOST_BAD:
            bad += 1
            every = 1
    if every == 1 or o.flags & OUT_SAMPLED:
        write(slot, now, o.octets, latency, micros(age), kind, every)
