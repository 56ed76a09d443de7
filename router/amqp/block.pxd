"""Large blocks of memory, for frames of megabytes."""
from libc.stdint cimport uint8_t

cdef enum:
    # Octets of a large block: `malloc` takes those from the system and returns them at once, and each 4 KiB that are
    # written costs a page fault then. So a few are kept for the next frame, until it is quiet.
    BLOCK_LEAST = 1048576
    BLOCKS_KEPT = 67108864     # octets, of this process

# A block without a user begins with this.
cdef struct Block:
    Block* next
    size_t room

# A worker has one thread: each process has one of these.
cdef struct Blocks:
    Block* first
    size_t octets
    bint grew                  # one was kept since `blocks_grew`

cdef Blocks blocks

# One of at least `size` octets, and at most twice as many, so that who takes it holds little more than it asked for.
# room: how many it has. NULL: there is none. The caller frees it, or gives it back.
cdef uint8_t* block_take(size_t size, size_t* room) noexcept
# Its user needs it no more. data: of `malloc`, `room` octets.
cdef void block_give(uint8_t* data, size_t room) noexcept
cdef void blocks_drop() noexcept


cdef inline bint blocks_grew() noexcept:
    """One was kept since the call before: it is to be returned to the system one day."""
    cdef bint grew = blocks.grew
    blocks.grew = False
    return grew
