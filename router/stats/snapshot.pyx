"""Changes in the slots of links, for a process that reads them every few seconds.

Slots are compared with their previous state as octets. Only changed slots become Python objects, so an idle link costs
one comparison.
"""
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy, memset

from sluice.router.ring.atomics cimport ACQUIRE, RELAXED, load32, load64
from sluice.router.ring.link_counts cimport link_unsettled
from sluice.router.ring.layout cimport LATENCY_BUCKETS, NO_TIME, SAMPLES, LinkSlot, Sample, SampleRing
from sluice.router.ring.region cimport Region

# Counters that never decrease while a slot belongs to the same link.
LINK_COUNTERS = (
    "deliveries", "accepted", "rejected", "released", "modified", "presettled", "dropped_presettled", "delayed_1s",
    "delayed_10s", "octets",
)

cdef enum:
    WORD = 8
    MOST_WORDS = 128               # words of one slot with MAX_WORKERS, rounded up


cdef list counters(const LinkSlot* slot):
    return [
        slot.deliveries, slot.accepted, slot.rejected, slot.released, slot.modified, slot.presettled,
        slot.dropped_presettled, slot.delayed_1s, slot.delayed_10s, slot.octets,
    ]


cdef class LinkReader:
    """Slots of the links of one worker as of the last call of `look`. Owner: the reading process."""
    cdef Region region
    cdef int worker
    cdef bytearray known           # copy of the slots, from the first one on

    def __init__(self, Region region not None, int worker, known=b""):
        """Create a reader; `known`: `state` of an earlier reader, to continue from. Raises IndexError, ValueError."""
        if region.base is NULL or not 0 <= worker < region.workers:
            raise IndexError(f"worker {worker}")
        if len(known) % region.link_stride or region.link_stride > MOST_WORDS * WORD:
            raise ValueError("the slots of another region")
        self.region, self.worker, self.known = region, worker, bytearray(known)

    @property
    def state(self):
        """Octets of all slots as of the last call of `look`."""
        return bytes(self.known)

    def look(self):
        """Return a list of tuples for the links that have changed since the last call, or have no credit.

        A tuple is (slot, generation, present, incoming, address id, capacity, credit, unsettled, undelivered, stuck,
        start of the time without credit (ns; 0: the link has credit), increase of LINK_COUNTERS, increase of `taken` by
        worker, increase of latencies by bucket, round trip of the link's connection (µs; 0: unknown)).
        `present` is False for a detached link whose counters are still in the slot.
        """
        cdef uint32_t used = load32(&self.region.worker_slot(self.worker).links_used_high, ACQUIRE)
        cdef size_t stride = self.region.link_stride
        cdef uint64_t[MOST_WORDS] words
        cdef uint32_t index
        cdef uint32_t generation
        cdef LinkSlot* now = <LinkSlot*>words
        cdef uint8_t* before
        cdef list found = []
        if len(self.known) < <Py_ssize_t>(used * stride):
            self.known.extend(bytes(used * stride - len(self.known)))
        cdef uint8_t* known = <uint8_t*>self.known
        # The slots from `used` on belonged to an earlier process of this worker, which exited.
        memset(known + used * stride, 0, len(self.known) - used * stride)
        for index in range(used):
            if not self.copy(index, words):
                continue
            before = known + index * stride
            if memcmp(before, words, stride) == 0:
                if now.generation and now.blocked_since:
                    found.append(self.row(index, now.generation, now, <LinkSlot*>before))
                continue
            generation = now.generation if now.generation else now.ended
            if generation == 0:
                memcpy(before, words, stride)
                continue
            if (<LinkSlot*>before).generation != generation and (<LinkSlot*>before).ended != generation:
                memset(before, 0, stride)
            found.append(self.row(index, generation, now, <LinkSlot*>before))
            memcpy(before, words, stride)
        return found

    cdef bint copy(self, uint32_t index, uint64_t* words) noexcept:
        """Copy a slot to `words`. Return False if the slot got another link meanwhile; the next call reads it."""
        cdef LinkSlot* slot = self.region.link_slot(self.worker, index)
        cdef uint32_t generation = load32(&slot.generation, ACQUIRE)
        cdef size_t i
        for i in range(self.region.link_stride // WORD):
            words[i] = load64(<uint64_t*>slot + i, RELAXED)
        return load32(&slot.generation, ACQUIRE) == generation == (<LinkSlot*>words).generation

    cdef tuple row(self, uint32_t index, uint32_t generation, LinkSlot* now, LinkSlot* before):
        cdef int i
        cdef list taken = [], latency = []
        cdef list grown = [a - b for a, b in zip(counters(now), counters(before), strict=True)]
        cdef uint32_t* taken_now = <uint32_t*>(now + 1)
        cdef uint32_t* taken_before = <uint32_t*>(before + 1)
        for i in range(self.region.workers):
            taken.append(<uint32_t>(taken_now[i] - taken_before[i]))
        for i in range(LATENCY_BUCKETS):
            latency.append(<uint32_t>(now.latency[i] - before.latency[i]))
        return (
            index, generation, now.generation != 0, now.direction == 1, now.address, now.capacity, now.credit,
            link_unsettled(now), now.undelivered, now.stuck, now.blocked_since, grown, taken, latency, now.round_trip,
        )


cdef class SampleReader:
    """Reader of one worker's samples. Owner: the reading process."""
    cdef Region region
    cdef int worker
    cdef readonly uint64_t seen    # samples that the worker had written at the last call of `look`

    def __init__(self, Region region not None, int worker, uint64_t seen=0):
        """Create a reader. `seen` is that of an earlier reader, to continue from. Raises IndexError."""
        if region.base is NULL or not 0 <= worker < region.workers:
            raise IndexError(f"worker {worker}")
        self.region, self.worker, self.seen = region, worker, seen

    def look(self):
        """Return the samples since the last call: tuples (time (ns), octets, slot, generation, latency, settle, kind,
        every).

        `latency` and `settle` are in µs, None if unknown. If more samples were written than the ring has room for, the
        oldest are missing.
        """
        cdef SampleRing* ring = self.region.sample_ring(self.worker)
        cdef uint64_t head = load64(&ring.head, ACQUIRE)
        cdef uint64_t number, first
        cdef Sample copy
        cdef size_t i
        cdef list found = []
        self.seen = max(min(self.seen, head), head - SAMPLES if head > SAMPLES else 0)
        first = self.seen
        for number in range(first, head):
            for i in range(sizeof(Sample) // WORD):
                (<uint64_t*>&copy)[i] = load64(<uint64_t*>&ring.samples[number % SAMPLES] + i, RELAXED)
            found.append((
                copy.at, copy.octets, copy.link, copy.generation, None if copy.latency == NO_TIME else copy.latency,
                None if copy.settle == NO_TIME else copy.settle, copy.kind, copy.every,
            ))
        self.seen = head
        # Drop the samples that were overwritten meanwhile, and the one that is being overwritten.
        head = load64(&ring.head, ACQUIRE)
        if head >= first + SAMPLES:
            del found[:head - SAMPLES - first + 1]
        return found
