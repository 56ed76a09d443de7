"""Growth of the write buffer, and the pool of unused buffers."""
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memmove

from sluice.router.amqp.block cimport BLOCK_LEAST, block_give, block_take, blocks_drop

# Header of a pooled buffer.
cdef struct SpareBuffer:
    SpareBuffer* next
    size_t room

cdef SpareBuffer* pool = NULL
cdef size_t pooled = 0         # octets in the pool


cdef uint8_t* buffer_grow(WriteBuffer* b, size_t n) except NULL:
    global pool, pooled
    cdef size_t used = b.end - b.start
    cdef size_t room = b.room
    cdef uint8_t* data
    if b.data is NULL and pool is not NULL and pool.room >= n:
        data = <uint8_t*>pool
        b.room = pool.room
        pooled -= pool.room
        pool = pool.next
        b.data = data
        return data
    if b.start and b.start >= used and b.room - used >= n:
        memmove(b.data, b.data + b.start, used)
        b.start = 0
        b.end = used
        return b.data + used
    if room < WRITE_BUFFER_FIRST:
        room = WRITE_BUFFER_FIRST
    while room - used < n:
        room *= 2
    data = block_take(room, &room) if room > BLOCK_LEAST else NULL
    if data is NULL:
        data = <uint8_t*>malloc(room)
    if data is NULL:
        raise MemoryError(f"write buffer of {room} octets")
    if used:
        memcpy(data, b.data + b.start, used)
    buffer_release(b)
    b.data = data
    b.room = room
    b.end = used
    return data + used


cdef void buffer_release(WriteBuffer* b) noexcept:
    global pool, pooled
    cdef SpareBuffer* spare = <SpareBuffer*>b.data
    if spare is not NULL:
        if b.room > BLOCK_LEAST:
            block_give(b.data, b.room)
        elif pooled + b.room <= WRITE_BUFFERS_KEPT:
            spare.room = b.room
            spare.next = pool
            pool = spare
            pooled += b.room
        else:
            free(spare)
    b.data = NULL
    b.start = b.end = b.room = 0


cdef void buffers_drop() noexcept:
    """Free all unused buffers."""
    global pool, pooled
    cdef SpareBuffer* spare
    while pool is not NULL:
        spare = pool
        pool = spare.next
        free(spare)
    pooled = 0
    blocks_drop()
