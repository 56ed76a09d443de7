"""Single-producer single-consumer ring of variable records in shared memory."""
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from router.interworker.layout cimport RingHeader

# One end of a ring. Plain struct: embedded by value in its user.
cdef struct Ring:
    RingHeader* header
    uint8_t* data
    uint64_t size              # octets, a power of two
    uint64_t position          # own cursor: head for the producer, tail for the consumer
    uint64_t seen              # the other end's cursor as last read
    uint64_t reserved          # producer: where the reserved record begins (behind a skip, if one is needed)

cdef enum:
    RECORD_HEADER = 8          # octets before each record, and the unit that records are rounded up to

# Either end. The consumer goes on where the ring was read last; a producer must open an empty ring. Both ends of a ring
# must be opened again after the supervisor has reset it, and not used between the reset and that.
cdef void ring_open(Ring* ring, RingHeader* header, uint64_t size) noexcept nogil
# Producer. Largest record is size // 4 octets of payload. reserve returns NULL when there is no room for it now, or it
# is larger than that, so that there never will be; the room is contiguous and 8-aligned, and forgotten by the next
# reserve; commit makes it (its first `length` octets, at most those reserved) visible to the consumer.
# Octets of the longest record: one that is longer finds no room, ever.
cdef inline uint64_t ring_longest(const Ring* ring) noexcept nogil:
    return ring.size // 4

cdef uint8_t* ring_reserve(Ring* ring, uint32_t length) noexcept nogil
cdef void ring_commit(Ring* ring, uint32_t length) noexcept nogil
# Producer. Octets free now, headers of records included. A record of `length` fits for certain in
# 2 * (length + 2 * RECORD_HEADER): where the ring wraps, as much again may have to be skipped.
cdef uint64_t ring_room(Ring* ring) noexcept nogil
# Consumer. peek returns NULL when empty, and the same record until release, which frees the record last peeked.
cdef uint8_t* ring_peek(Ring* ring, uint32_t* length) noexcept nogil
cdef void ring_release(Ring* ring) noexcept nogil
cdef bint ring_empty(Ring* ring) noexcept nogil
