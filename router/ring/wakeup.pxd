"""Sleeping and waking between workers, without a lost wake-up and without a system call to a worker that is awake.

Each worker has a word of doorbells, with one bit for each other worker. A worker that has put records into a ring, or
made room in a ring whose producer waits for it, publishes that (`head`, `tail`) and then sets its bit in the other's
doorbells. The other worker takes all bits at once in each wake, and reads only the rings of the workers that set them.
So a wake costs the same with any number of workers.

    writer:  publish;  fence;  set its own bit;  fence;  if the other sleeps: signal its eventfd
    reader:  take the doorbells;  fence;  read the rings of the workers that set them
             before it blocks: set_sleeping;  fence;  block unless a doorbell is set

Why no wake-up is lost. There are two races. In each, one side writes A, passes a full fence and reads B; the other
side writes B, passes a full fence and reads A. So at least one of them sees what the other has written.

1. A writer sets its bit only if it is clear. If it finds the bit set, it has published before (A) and then read the
   doorbells (B). The reader takes the doorbells (B) and then reads the ring (A). So either the writer sees that the
   doorbells were taken, and sets its bit again, or the reader sees what was published.
2. A writer that has set its bit (A) reads whether the other sleeps (B). The reader states that it sleeps (B) and then
reads
   the doorbells (A). So either the writer signals, or the reader does not block. A writer that finds its bit set need
   not check: only it sets that bit, and it checked then. A reader that blocks has seen no doorbell since it stated
   that it sleeps, or it was signalled for this one and is about to take it.

A writer may also set its bit and check later whether the other sleeps (`worker_sleeps`): see `Outbox.owed`.

A reader that stops in the middle of a ring, or whose port is not up yet, has taken the doorbell. It remembers that
(`PortWork.rung`), and does not block either.

The eventfd is watched for edges (EPOLLET) and never read: each signal is an edge, whatever the counter says. If a wait
that was not meant to block consumes an edge, its worker takes the doorbells afterwards.

Producer with a full ring: set_producer_waits; continue unless ring_reserve still finds no room; clear_producer_waits
once it has found some. Its consumer: publish room as often as needed; producer_is_waiting; set the doorbell as above.
Records reserved before are published by the end of the wake, so a consumer that sleeps is woken for them, and makes
room.
"""
from libc.stdint cimport uint64_t

from sluice.router.ring.atomics cimport (
    ACQUIRE, RELAXED, SEQUENTIAL, exchange64, fence, fetch_or64, load32, load64, store32
)
from sluice.router.ring.layout cimport RingHeader, WorkerSlot


cdef inline void set_sleeping(WorkerSlot* own) noexcept nogil:
    """Worker, before it blocks: state that it sleeps, so that others signal it.

    Check the doorbells once more afterwards.
    """
    store32(&own.sleeping, 1, RELAXED)
    fence(SEQUENTIAL)


cdef inline void clear_sleeping(WorkerSlot* own) noexcept nogil:
    """Worker, after it has woken up: state that it is awake. Take the doorbells afterwards."""
    store32(&own.sleeping, 0, RELAXED)


cdef inline bint worker_sleeps(WorkerSlot* peer) noexcept nogil:
    """Writer, after it has set its doorbell: return True if the other worker needs a signal."""
    fence(SEQUENTIAL)
    return load32(&peer.sleeping, RELAXED) != 0


cdef inline bint doorbell_is_set(WorkerSlot* peer, uint64_t bit) noexcept nogil:
    """Writer, after it has published: return True if the doorbell set before is not taken yet."""
    fence(SEQUENTIAL)
    return (load64(&peer.doorbells, RELAXED) & bit) != 0


cdef inline bint set_doorbell(WorkerSlot* peer, uint64_t bit) noexcept nogil:
    """Writer, after it has published: set the doorbell. True: the other worker sleeps, and needs a signal."""
    if doorbell_is_set(peer, bit):
        return False
    fetch_or64(&peer.doorbells, bit, SEQUENTIAL)
    return worker_sleeps(peer)


cdef inline bint any_doorbell(WorkerSlot* own) noexcept nogil:
    """Worker: return True if any doorbell is set. After set_sleeping: then it must not block."""
    return load64(&own.doorbells, RELAXED) != 0


cdef inline uint64_t take_doorbells(WorkerSlot* own) noexcept nogil:
    """Worker: take the doorbells. Read the rings of all workers in the result afterwards."""
    cdef uint64_t rung = exchange64(&own.doorbells, 0, ACQUIRE)
    fence(SEQUENTIAL)
    return rung


cdef inline void set_producer_waits(RingHeader* ring) noexcept nogil:
    """Producer without room: ask the consumer to set the doorbell when there is room.

    Try to reserve once more afterwards.
    """
    store32(&ring.producer_waits, 1, RELAXED)
    fence(SEQUENTIAL)


cdef inline void clear_producer_waits(RingHeader* ring) noexcept nogil:
    """Producer with room again: withdraw that request."""
    store32(&ring.producer_waits, 0, RELAXED)


cdef inline bint producer_is_waiting(RingHeader* ring) noexcept nogil:
    """Consumer, after it has published room: return True if the producer must be notified."""
    fence(SEQUENTIAL)
    return load32(&ring.producer_waits, RELAXED) != 0


# Make `eventfd` (EFD_NONBLOCK) readable. Returns 0, or the negative errno: the descriptor is not an eventfd of a
# worker.
cdef int wake(int eventfd) noexcept nogil
