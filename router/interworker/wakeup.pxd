"""Sleeping and waking between workers, without a lost wake-up and without a system call to one that is awake.

Each worker has a word of doorbells, a bit for every other one. Who has put records into a ring, or has made room in one
whose producer waits for it, publishes that (`head`, `tail`), then rings. The other takes all bells at once, in every
wake, and looks only at the rings of those who rang: no wake costs more because there are more workers.

    writer:  publish;  fence;  ring (its own bit);  fence;  does the other sleep? then signal its eventfd
    reader:  take the bells;  fence;  look at those rings
             before it blocks: set_sleeping;  fence;  block unless a bell has rung

Why nothing is lost. There are two races, and each is between one who writes A, passes a full fence and reads B, and one
who writes B, passes a full fence and reads A: one of the two sees what the other has written.

1. To ring is to set the bit, unless it is set already. A writer that finds it set has published before (A) and reads
   the bells (B); the reader takes the bells (B) and reads the ring after it (A). So either the writer sees that the
   bells were taken, and rings, or the reader has what was published.
2. A writer that has set the bit (A) reads whether the other sleeps (B); the reader says that it sleeps (B) and reads
   the bells (A). So either the writer signals, or the reader does not block. Who finds its bit set need not ask: only
   it sets that bit, it has asked then, and a reader that blocks has seen no bell since it said that it sleeps, or it
   was signalled for this one and is about to take it.

A writer may also ring and leave it at that, if it asks (`worker_sleeps`) later: see `Outbox.owed`.

A reader that stops in the middle of a ring, or whose port is not up yet, has taken the bell: it keeps that in mind
(`PortWork.rung`), and does not block either.

The eventfd is watched for edges and never read: every signal is one, whatever its counter says. An edge that a wait
takes which was not meant to block is one of a reader that takes the bells after it.

Producer with a full ring: set_producer_waits; go on unless ring_reserve still finds no room; clear_producer_waits once
it has found some. Its consumer: publish the room as often as needed; producer_is_waiting; ring as above. What was
reserved before is published by the end of the wake: a consumer that sleeps hears of it, and makes room.
"""
from libc.stdint cimport uint64_t

from router.interworker.atomics cimport (
    ACQUIRE, RELAXED, SEQUENTIAL, exchange64, fence, fetch_or64, load32, load64, store32
)
from router.interworker.layout cimport RingHeader, WorkerSlot


cdef inline void set_sleeping(WorkerSlot* own) noexcept nogil:
    """Worker, before it blocks: from now on those who ring signal. Look at the bells once more after it."""
    store32(&own.sleeping, 1, RELAXED)
    fence(SEQUENTIAL)


cdef inline void clear_sleeping(WorkerSlot* own) noexcept nogil:
    """Worker, awake again. Take the bells after it."""
    store32(&own.sleeping, 0, RELAXED)


cdef inline bint worker_sleeps(WorkerSlot* peer) noexcept nogil:
    """Who has rung: does the other need a signal?"""
    fence(SEQUENTIAL)
    return load32(&peer.sleeping, RELAXED) != 0


cdef inline bint bell_rung(WorkerSlot* peer, uint64_t bit) noexcept nogil:
    """Who has published something: has the other not yet taken the bell that we rang before?"""
    fence(SEQUENTIAL)
    return (load64(&peer.doorbells, RELAXED) & bit) != 0


cdef inline bint ring_bell(WorkerSlot* peer, uint64_t bit) noexcept nogil:
    """Who has published something. True: the other sleeps, and needs a signal."""
    if bell_rung(peer, bit):
        return False
    fetch_or64(&peer.doorbells, bit, SEQUENTIAL)
    return worker_sleeps(peer)


cdef inline bint any_bell(WorkerSlot* own) noexcept nogil:
    """Worker: has anybody rung? After set_sleeping: it must not block then."""
    return load64(&own.doorbells, RELAXED) != 0


cdef inline uint64_t take_bells(WorkerSlot* own) noexcept nogil:
    """Worker: who has rung. Look at the rings of all of these after it."""
    cdef uint64_t rung = exchange64(&own.doorbells, 0, ACQUIRE)
    fence(SEQUENTIAL)
    return rung


cdef inline void set_producer_waits(RingHeader* ring) noexcept nogil:
    """Producer without room: from now on the consumer rings. Try to reserve once more after it."""
    store32(&ring.producer_waits, 1, RELAXED)
    fence(SEQUENTIAL)


cdef inline void clear_producer_waits(RingHeader* ring) noexcept nogil:
    """Producer, with room again."""
    store32(&ring.producer_waits, 0, RELAXED)


cdef inline bint producer_is_waiting(RingHeader* ring) noexcept nogil:
    """Consumer, after it has published room: is the producer to be told?"""
    fence(SEQUENTIAL)
    return load32(&ring.producer_waits, RELAXED) != 0


# Make `eventfd` (EFD_NONBLOCK) readable. 0, or the negative errno: the descriptor is not an eventfd of a worker.
cdef int wake(int eventfd) noexcept nogil
