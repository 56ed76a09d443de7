"""Content of messages: octets in chunks that the copies of a message share, and cursors of their readers."""
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from sluice.router.amqp.codec cimport Slice
from sluice.router.amqp.meter cimport Meter, meter_add, meter_subtract
from sluice.router.message.sections cimport Sections
from sluice.router.stats.counters cimport Tally

cdef enum:
    # A message that is incomplete when this many octets have arrived is streamed; a smaller one is forwarded whole
    # (Dispatch's Q2: 256 buffers of 512 octets).
    STREAM_AT = 131072
    # Octets of the longest delivery state that is relayed in a transfer. Of a longer one only the kind is.
    STATE_IN_TRANSFER = 8192
    # Octets that a queued copy counts beside its own annotations: its OutDelivery, and the overhead of the heap.
    COPY_OCTETS = 256
    CHUNK_OCTETS = 65400       # of a chunk behind the first: with its header, below malloc's mmap threshold

# Octets of a message. A chunk holds a reference to the next one. So chunks are freed as the last reader moves on.
cdef struct Chunk:
    Chunk* next
    Meter* meter               # counts its octets; NULL: not metered
    uint32_t refs              # references: `next` of the chunk before, cursors, the message's `head` and `tail`
    uint32_t size              # octets filled
    uint32_t room              # octets that fit
    uint32_t passed            # octets that all readers have passed, so that the meter counts them no more
    uint32_t at_end            # cursors at the end of the filled octets
    uint8_t[1] data

# Stored message: it could not leave at once, or came in several frames. References are held by deliveries.
cdef struct Message:
    uint32_t refs
    uint32_t format            # message-format of the first transfer
    bint complete              # the last octet has arrived
    bint aborted
    uint64_t size              # octets received so far
    Chunk* head                # first chunk; NULL after `message_routed`, when readers keep what they need
    Chunk* tail                # chunk of the last octet
    Meter* meter
    size_t copies              # octets of queued copies of a multicast delivery, which the meter counts as well
    uint8_t* state             # delivery state for the first transfer of each copy, encoded (owned), or NULL
    uint32_t state_size
    Message* next_spare        # while the struct is unused

# Position of one reader in a message.
cdef struct Cursor:
    Chunk* chunk               # counted reference; NULL until the first octet has arrived
    uint32_t offset            # octets of this chunk that were read

# Input of forwarders: the octets known so far and the sections found in them. Lives on the stack.
cdef struct Content:
    const uint8_t* data        # contiguous: the whole message, or the first chunk of a stored one
    size_t size
    Message* stored            # NULL while the message is only in the read buffer
    bint complete              # the last octet has arrived
    bint whole                 # `data` holds every octet of a complete message
    bint settled
    bint honour                # incoming router annotations are used
    uint32_t format            # message-format
    Sections sections
    Slice to                   # encoded string for x-opt-qd.to; data NULL: none
    int phase                  # for x-opt-qd.phase; 0: none
    bint complete_at_sender               # from another worker, which has all of the message
    uint64_t producer          # number of the incoming link, in order of creation; 0: the router itself
    # Checkpoint: a settled delivery of which the routers on its path are notified when it has left its last queue, so
    # that its producer can be slowed. It arrives settled from a producer, and unsettled from a router.
    bint checkpoint
    bint checking              # a checkpoint on its way to a router that supports this: sent unsettled
    bint unbounded             # presettled, and no router it came from can slow its producer
    uint32_t came_by           # number of the inter-router or edge connection it arrived by; 0: none
    bint own                   # made by the router itself
    bint anonymous             # arrived from a client by a link without a target
    Slice served               # encoded list for x-opt-sluice.served; data NULL: the incoming one
    Slice state                # delivery state in the producer's transfer; data NULL: none
    Tally* outstanding         # counts unsettled copies while they are, or NULL

cdef Message* message_new(uint32_t format) except NULL
# Make a whole message of `size` octets: metered, routed, with one reference for its only reader, whose cursor is at
# its start. The caller writes the octets to `cursor.chunk.data`.
cdef Message* message_whole(uint32_t format, size_t size, Meter* meter, Cursor* cursor) except NULL
cdef int message_meter(Message* m, Meter* meter) except -1
cdef int message_append(Message* m, const uint8_t* data, size_t size) except -1
cdef int message_linearise(Message* m, size_t room) except -1
# Keep a delivery state from a producer's transfer: the first transfer of each copy carries it.
cdef int message_state(Message* m, const Slice* state) except -1
cdef void message_routed(Message* m) noexcept
cdef void message_release(Message* m) noexcept
cdef Message* content_store(Content* c) except NULL

cdef void cursor_open(Cursor* cursor, Message* m, size_t offset) noexcept
cdef size_t cursor_read(Cursor* cursor, uint8_t* w, size_t size) noexcept
cdef void cursor_close(Cursor* cursor) noexcept
# Return True if some reader of an incomplete message waits for more octets, or if there is no reader any more.
cdef bint message_awaited(const Message* m) noexcept nogil

cdef inline bint counts_copies(const Meter* meter) noexcept:
    """Return True for a meter that bounds what a producer may hold.

    The meter of a stream from another worker has no parent, and does not: it opens the window of the stream by the
    octets that were read, and a copy is none of these.
    """
    return meter is not NULL and meter.parent is not NULL


# Octets of queued copies that no producer's meter counts: their messages came from other workers.
cdef uint64_t uncharged

cdef inline void copy_queued(Message* m, size_t octets) noexcept:
    """Count a queued copy of a multicast delivery: a message may have as many as there are consumers."""
    global uncharged
    m.copies += octets
    if counts_copies(m.meter):
        meter_add(m.meter, octets)
    else:
        uncharged += octets


cdef inline void copy_left(Message* m, size_t octets) noexcept:
    """Uncount a copy that has left its queue."""
    global uncharged
    m.copies -= octets
    if counts_copies(m.meter):
        meter_subtract(m.meter, octets)
    else:
        uncharged -= octets


cdef uint64_t stored_octets() noexcept
# Return the octets that message_linearise has copied in this process, for tests.
cdef uint64_t linearised_octets() noexcept
# Free some of the unused chunks and messages. False: there may be more.
cdef bint chunks_drop() noexcept
