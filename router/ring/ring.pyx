"""Single-producer single-consumer ring of variable records in shared memory.

A record is a header of eight octets (length, kind) and its payload, contiguous, rounded up to eight. Where a record
would pass the end of the data, a skip record fills the rest and the record starts at the beginning. Cursors count
octets for ever and never wrap. The producer publishes records by storing `head`, the consumer frees them by storing
`tail`. Both do so for many records at once, since each store takes a cache line from the other one.
"""


cdef void ring_open(Ring* ring, RingHeader* header, uint64_t size) noexcept nogil:
    ring.header = header
    ring.data = <uint8_t*>(header + 1)
    ring.size = size
    ring.position = load64(&header.tail, ACQUIRE)
    ring.published = ring.position
    ring.seen = ring.position  # the consumer has seen no record yet, and for the producer the ring is empty
    ring.reserved = ring.position


cdef uint8_t* ring_reserve_any(Ring* ring, uint32_t length) noexcept nogil:
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


cdef uint64_t ring_room(Ring* ring) noexcept nogil:
    ring.seen = load64(&ring.header.tail, ACQUIRE)
    return ring.size - (ring.position - ring.seen)


cdef uint8_t* ring_peek_any(Ring* ring, uint32_t* length) noexcept nogil:
    """Peek behind a skip record, which is published together with the record behind it.

    Anything else is malformed: the length is then one that no record has.
    """
    cdef RecordHeader* record = record_at(ring, ring.position)
    if record.kind != KIND_SKIP or ring.seen - ring.position < octets_to_wrap(ring, ring.position) + RECORD_HEADER:
        length[0] = 0xFFFFFFFF
        return <uint8_t*>(record + 1)
    ring.position += octets_to_wrap(ring, ring.position)
    record = record_at(ring, ring.position)
    length[0] = record.length
    return <uint8_t*>(record + 1)
