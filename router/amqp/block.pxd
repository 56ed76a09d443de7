"""Large blocks of memory, for frames of megabytes."""
from libc.stdint cimport uint8_t

cdef enum:
    # Least octets of a large block. `malloc` maps such blocks and unmaps them when they are freed, so that each new
    # one costs a page fault for every 4 KiB written. A few blocks are therefore kept for the next frame, until the
    # worker is quiet.
    BLOCK_LEAST = 1048576
    BLOCKS_KEPT = 67108864     # octets kept by this process

# Header of an unused block.
cdef struct Block:
    Block* next
    size_t room

# Unused blocks of this process. A worker has one thread.
cdef struct Blocks:
    Block* first
    size_t octets
    bint grew                  # a block was kept since the last call of `blocks_grew`

cdef Blocks blocks

# Return a block of at least `size` octets, or NULL if there is none. It has at most twice as many, so that its user
# holds little more than it needs. room: its number of octets. The caller frees the block, or gives it back.
cdef uint8_t* block_take(size_t size, size_t* room) noexcept
# Give a block back. data: `room` octets from `malloc`.
cdef void block_give(uint8_t* data, size_t room) noexcept
cdef void blocks_drop() noexcept


cdef inline bint blocks_grew() noexcept:
    """True if a block was kept since the last call, and memory is to be returned to the system later."""
    cdef bint grew = blocks.grew
    blocks.grew = False
    return grew
