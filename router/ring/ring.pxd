"""Single-producer single-consumer ring of variable records in shared memory."""
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from sluice.router.ring.atomics cimport ACQUIRE, RELEASE, load64, store64
from sluice.router.ring.layout cimport RingHeader

# End of a ring. Plain struct: embedded by value in its user.
cdef struct Ring:
    RingHeader* header
    uint8_t* data
    uint64_t size              # octets, a power of two
    uint64_t position          # own cursor: head of the producer, tail of the consumer
    uint64_t published         # own cursor as the other end may see it
    uint64_t seen              # the other end's cursor as last read
    uint64_t reserved          # producer: start of the reserved record (behind a skip, if one is needed)

cdef enum:
    RECORD_HEADER = 8          # octets before each record, and the unit that records are rounded up to
    KIND_RECORD = 0
    KIND_SKIP = 1              # fills the rest of the data

cdef struct RecordHeader:
    uint32_t length            # octets of payload
    uint32_t kind

# Open either end. The consumer continues where the ring was read last; a producer must open an empty ring. After the
# supervisor has reset a ring, both ends must be opened again before they are used.
cdef void ring_open(Ring* ring, RingHeader* header, uint64_t size) noexcept nogil
# Rare cases of the inline functions below: a record that wraps, a ring that seems full, a skip.
cdef uint8_t* ring_reserve_any(Ring* ring, uint32_t length) noexcept nogil
cdef uint8_t* ring_peek_any(Ring* ring, uint32_t* length) noexcept nogil
# Producer: return the free octets, headers of records included. A record of `length` is certain to fit into
# 2 * (length + 2 * RECORD_HEADER) octets: where the ring wraps, as much again may have to be skipped.
cdef uint64_t ring_room(Ring* ring) noexcept nogil


cdef inline uint64_t record_octets(uint32_t length) noexcept nogil:
    """Return the octets that a record takes in the ring."""
    return RECORD_HEADER + ((<uint64_t>length + RECORD_HEADER - 1) & ~<uint64_t>(RECORD_HEADER - 1))


cdef inline RecordHeader* record_at(Ring* ring, uint64_t position) noexcept nogil:
    return <RecordHeader*>(ring.data + (position & (ring.size - 1)))


cdef inline uint64_t octets_to_wrap(Ring* ring, uint64_t position) noexcept nogil:
    return ring.size - (position & (ring.size - 1))


cdef inline uint64_t ring_longest(const Ring* ring) noexcept nogil:
    """Return the octets of the longest record: one that is longer never finds room."""
    return ring.size // 4


cdef inline uint8_t* ring_reserve(Ring* ring, uint32_t length) noexcept nogil:
    """Producer: reserve contiguous room, 8-aligned, which is valid until the next call.

    NULL: there is none now, or, for more than `ring_longest` octets, there never will be.
    """
    cdef uint64_t needed = record_octets(length)
    if ring.position + needed - ring.seen > ring.size or needed > octets_to_wrap(ring, ring.position) \
            or length > ring_longest(ring):
        return ring_reserve_any(ring, length)
    ring.reserved = ring.position
    return <uint8_t*>(record_at(ring, ring.position) + 1)


cdef inline void ring_commit(Ring* ring, uint32_t length) noexcept nogil:
    """Producer: complete a record in the first `length` octets of the reserved room.

    The consumer sees it when it is published.
    """
    cdef RecordHeader* record = record_at(ring, ring.reserved)
    record.length = length
    record.kind = KIND_RECORD
    ring.position = ring.reserved + record_octets(length)


cdef inline uint64_t ring_unpublished(const Ring* ring) noexcept nogil:
    """Return the octets of records committed, or released, since the last publication."""
    return ring.position - ring.published


cdef inline void ring_publish(Ring* ring) noexcept nogil:
    """Producer: publish all committed records."""
    ring.published = ring.position
    store64(&ring.header.head, ring.position, RELEASE)


cdef inline bint ring_empty(Ring* ring) noexcept nogil:
    """Consumer: return True if there is no record."""
    if ring.position == ring.seen:
        ring.seen = load64(&ring.header.head, ACQUIRE)
    return ring.position == ring.seen


cdef inline uint8_t* ring_peek(Ring* ring, uint32_t* length) noexcept nogil:
    """Consumer: return the next record, the same one until it is released; NULL: there is none."""
    cdef RecordHeader* record
    if ring_empty(ring):
        return NULL
    record = record_at(ring, ring.position)
    if record.kind != KIND_RECORD:
        return ring_peek_any(ring, length)
    length[0] = record.length
    return <uint8_t*>(record + 1)


cdef inline void ring_release(Ring* ring) noexcept nogil:
    """Consumer: release the record last peeked. The producer gets its room when that is published."""
    ring.position += record_octets(record_at(ring, ring.position).length)


cdef inline void ring_release_octets(Ring* ring, uint64_t octets) noexcept nogil:
    """Consumer: release a record, given the `record_octets` of the length that `ring_peek` returned."""
    ring.position += octets


cdef inline void ring_give_back(Ring* ring) noexcept nogil:
    """Consumer: publish the room of all released records."""
    ring.published = ring.position
    store64(&ring.header.tail, ring.position, RELEASE)
