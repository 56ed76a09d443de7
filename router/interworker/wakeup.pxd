"""Sleeping and waking between workers, without a lost wake-up and without a system call to one that is awake.

Who is about to block says so, passes a full fence, and looks once more for work; who makes work publishes it, passes a
full fence, and looks whether anybody says so. One of the two always sees the other.

Consumer: set_sleeping; block unless a ring has something (ring_empty is false for one of them); clear_sleeping.
Its producer: ring_commit as often as needed; worker_sleeps; wake.

Producer with a full ring: set_producer_waits; go on unless ring_reserve still finds no room; clear_producer_waits once
it has found some. Its consumer: ring_release as often as needed; producer_is_waiting; wake.
"""
from router.interworker.atomics cimport RELAXED, SEQUENTIAL, fence, load32, store32
from router.interworker.layout cimport RingHeader, WorkerSlot


cdef inline void set_sleeping(WorkerSlot* own) noexcept nogil:
    """Worker, before it blocks: from now on producers signal. Look at all rings once more after it."""
    store32(&own.sleeping, 1, RELAXED)
    fence(SEQUENTIAL)


cdef inline void clear_sleeping(WorkerSlot* own) noexcept nogil:
    """Worker, awake again. Look at all rings after it."""
    store32(&own.sleeping, 0, RELAXED)


cdef inline bint worker_sleeps(WorkerSlot* peer) noexcept nogil:
    """Producer, after it has committed: does the consumer need a wake?"""
    fence(SEQUENTIAL)
    return load32(&peer.sleeping, RELAXED) != 0


cdef inline void set_producer_waits(RingHeader* ring) noexcept nogil:
    """Producer without room: from now on the consumer signals. Try to reserve once more after it."""
    store32(&ring.producer_waits, 1, RELAXED)
    fence(SEQUENTIAL)


cdef inline void clear_producer_waits(RingHeader* ring) noexcept nogil:
    """Producer, with room again."""
    store32(&ring.producer_waits, 0, RELAXED)


cdef inline bint producer_is_waiting(RingHeader* ring) noexcept nogil:
    """Consumer, after it has released: does the producer need a wake?"""
    fence(SEQUENTIAL)
    return load32(&ring.producer_waits, RELAXED) != 0


# Make `eventfd` (EFD_NONBLOCK) readable. 0, or the negative errno: the descriptor is not an eventfd of a worker.
cdef int wake(int eventfd) noexcept nogil
