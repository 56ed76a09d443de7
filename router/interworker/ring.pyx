"""Single-producer single-consumer ring of variable records in shared memory.

A record is a header of eight octets (length, kind) and its payload, contiguous, rounded up to eight. Where a record
would pass the end of the data, a skip record stands instead and the record begins at the start. Cursors count octets
for ever and never wrap; the producer publishes records by storing `head`, the consumer frees them by storing `tail`.
"""
from router.interworker.atomics cimport ACQUIRE, RELEASE, load64, store64

cdef enum:
    KIND_RECORD = 0
    KIND_SKIP = 1              # nothing up to the end of the data

cdef struct RecordHeader:
    uint32_t length            # octets of payload
    uint32_t kind


cdef inline uint64_t record_octets(uint32_t length) noexcept nogil:
    """Octets that a record takes in the ring."""
    return RECORD_HEADER + ((<uint64_t>length + RECORD_HEADER - 1) & ~<uint64_t>(RECORD_HEADER - 1))


cdef inline RecordHeader* record_at(Ring* ring, uint64_t position) noexcept nogil:
    return <RecordHeader*>(ring.data + (position & (ring.size - 1)))


cdef inline uint64_t octets_to_wrap(Ring* ring, uint64_t position) noexcept nogil:
    return ring.size - (position & (ring.size - 1))


cdef void ring_open(Ring* ring, RingHeader* header, uint64_t size) noexcept nogil:
    ring.header = header
    ring.data = <uint8_t*>(header + 1)
    ring.size = size
    ring.position = load64(&header.tail, ACQUIRE)
    ring.seen = ring.position  # the consumer has seen nothing yet, the producer nothing unread
    ring.reserved = ring.position


cdef uint8_t* ring_reserve(Ring* ring, uint32_t length) noexcept nogil:
    cdef uint64_t needed = record_octets(length)
    cdef uint64_t skipped = octets_to_wrap(ring, ring.position)
    cdef RecordHeader* skip
    if length > ring_longest(ring):
        return NULL
    if needed <= skipped:
        skipped = 0
    if ring.position + skipped + needed - ring.seen > ring.size:
        ring.seen = load64(&ring.header.tail, ACQUIRE)
        if ring.position + skipped + needed - ring.seen > ring.size:
            return NULL
    if skipped:
        skip = record_at(ring, ring.position)
        skip.length = 0
        skip.kind = KIND_SKIP
    ring.reserved = ring.position + skipped
    return <uint8_t*>(record_at(ring, ring.reserved) + 1)


cdef void ring_commit(Ring* ring, uint32_t length) noexcept nogil:
    cdef RecordHeader* record = record_at(ring, ring.reserved)
    record.length = length
    record.kind = KIND_RECORD
    ring.position = ring.reserved + record_octets(length)
    store64(&ring.header.head, ring.position, RELEASE)


cdef uint64_t ring_room(Ring* ring) noexcept nogil:
    ring.seen = load64(&ring.header.tail, ACQUIRE)
    return ring.size - (ring.position - ring.seen)


cdef uint8_t* ring_peek(Ring* ring, uint32_t* length) noexcept nogil:
    cdef RecordHeader* record
    if ring_empty(ring):
        return NULL
    record = record_at(ring, ring.position)
    if record.kind == KIND_SKIP:  # published together with the record behind it
        ring.position += octets_to_wrap(ring, ring.position)
        record = record_at(ring, ring.position)
    length[0] = record.length
    return <uint8_t*>(record + 1)


cdef void ring_release(Ring* ring) noexcept nogil:
    ring.position += record_octets(record_at(ring, ring.position).length)
    store64(&ring.header.tail, ring.position, RELEASE)


cdef bint ring_empty(Ring* ring) noexcept nogil:
    if ring.position == ring.seen:
        ring.seen = load64(&ring.header.head, ACQUIRE)
    return ring.position == ring.seen
