"""Large blocks of memory: a short list of unused ones."""
from libc.stdlib cimport free


cdef uint8_t* block_take(size_t size, size_t* room) noexcept:
    cdef Block** at = &blocks.first
    cdef Block* found
    while at[0] is not NULL and (at[0].room < size or at[0].room > 2 * size):
        at = &at[0].next
    found = at[0]
    if found is NULL:
        return NULL
    at[0] = found.next
    blocks.octets -= found.room
    room[0] = found.room
    return <uint8_t*>found


cdef void block_give(uint8_t* data, size_t room) noexcept:
    cdef Block* block = <Block*>data
    if room < BLOCK_LEAST or room > BLOCKS_KEPT:
        free(data)
        return
    while blocks.octets + room > BLOCKS_KEPT:
        forget_first()             # makes room for a block of the size that is wanted now
    block.room = room
    block.next = blocks.first
    blocks.first = block
    blocks.octets += room
    blocks.grew = True


cdef void forget_first() noexcept:
    cdef Block* block = blocks.first
    if block is not NULL:
        blocks.first = block.next
        blocks.octets -= block.room
        free(block)


cdef void blocks_drop() noexcept:
    """Return all unused blocks to the system."""
    while blocks.first is not NULL:
        forget_first()
