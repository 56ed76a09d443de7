"""Content of messages: octets in chunks that deliveries share by reference, and readers of them."""
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from router.amqp.codec cimport Slice
from router.amqp.meter cimport Meter, meter_add, meter_subtract
from router.message.sections cimport Sections
from router.stats.counters cimport Tally

cdef enum:
    # A message that is not complete when it has this many octets is streamed; a smaller one is forwarded whole
    # (Dispatch's Q2: 256 buffers of 512 octets).
    STREAM_AT = 131072
    STATE_IN_TRANSFER = 8192   # octets of a delivery state that go on with a message; of a longer one its kind does
    # What a queued copy counts, beside annotations of its own: its OutDelivery, and what the heap adds.
    COPY_OCTETS = 256
    CHUNK_OCTETS = 65400       # of a chunk behind the first: below malloc's mmap threshold, header included

# Octets of a message. A chunk holds a reference to the next one, so that a reader that moves on frees what is behind.
cdef struct Chunk:
    Chunk* next
    Meter* meter               # NULL: not metered
    uint32_t refs
    uint32_t size              # octets filled
    uint32_t room
    uint32_t passed            # octets that the meter does not count any more: all readers have passed them
    uint32_t at_end            # cursors that have read all there is
    uint8_t[1] data

# A message that could not leave at once, or that came in several frames. References: deliveries.
cdef struct Message:
    uint32_t refs
    uint32_t format            # message-format of the first transfer
    bint complete
    bint aborted
    uint64_t size              # octets received so far
    Chunk* head                # first octet; dropped by `message_routed` (then readers keep what they need)
    Chunk* tail
    Meter* meter
    size_t copies              # octets of queued copies of a multicast delivery, which the meter counts as well
    uint8_t* state             # delivery state that its first transfer says, encoded (owned), or NULL
    uint32_t state_size
    Message* next_spare        # while nobody uses it

# Where a reader of a message is.
cdef struct Cursor:
    Chunk* chunk               # holds a reference; NULL before the first octet came
    uint32_t offset

# What forwarders route: the octets known so far and what was found in them. Lives on the stack.
cdef struct Content:
    const uint8_t* data        # contiguous: the whole message, or the first chunk of a stored one
    size_t size
    Message* stored            # NULL while the message is only in the input buffer
    bint complete
    bint whole                 # data holds every octet of a complete message
    bint settled
    bint honour                # router annotations that came with it count
    uint32_t format
    Sections sections
    Slice to                   # encoded string for x-opt-qd.to, data NULL: none
    int phase                  # for x-opt-qd.phase, 0: none
    bint at_hand               # what is not here yet is with the worker that sent it, complete
    uint64_t producer          # number of the link that it came by, in the order of their making; 0: the router itself
    # A settled delivery of which the routers on the way hear when it has left its last queue, so that its producer can
    # be slowed. It comes from a producer settled, and from a router unsettled.
    bint checkpoint
    bint checking              # … and goes to a router that knows of this, unsettled
    bint unbounded             # presettled, and nobody who sent it here can be slowed
    uint32_t came_by           # the inter-router or edge connection that it came by, 0: none
    bint own                   # the router itself has made it
    bint anonymous             # it came from a client by a link without an address
    Slice served               # encoded list for x-opt-sluice.served, data NULL: what came with the message
    Slice state                # delivery state that the producer put into the transfer; data NULL: none
    Tally* outstanding         # where unsettled copies are counted while they are, or NULL

cdef Message* message_new(uint32_t format) except NULL
# A whole message of so many octets, metered, routed, with one reference: that of its one reader, whose cursor is at its
# beginning. The caller writes the octets to `cursor.chunk.data`.
cdef Message* message_whole(uint32_t format, size_t size, Meter* meter, Cursor* cursor) except NULL
cdef int message_meter(Message* m, Meter* meter) except -1
cdef int message_append(Message* m, const uint8_t* data, size_t size) except -1
cdef int message_linearise(Message* m, size_t room) except -1
# The producer put this delivery state into a transfer: the first one of each copy says it.
cdef int message_state(Message* m, const Slice* state) except -1
cdef void message_routed(Message* m) noexcept
cdef void message_release(Message* m) noexcept
cdef Message* content_store(Content* c) except NULL

cdef void cursor_open(Cursor* cursor, Message* m, size_t offset) noexcept
cdef size_t cursor_ready(Cursor* cursor) noexcept nogil
cdef size_t cursor_read(Cursor* cursor, uint8_t* w, size_t size) noexcept
cdef void cursor_close(Cursor* cursor) noexcept
# Some reader of an incomplete message has read all there is: it waits for more. Or there is none any more.
cdef bint message_awaited(const Message* m) noexcept nogil

cdef inline bint counts_copies(const Meter* meter) noexcept:
    """True for a meter that bounds what its producer may hold. The meter of a stream from another worker, which stands
    alone, opens the stream's window by the octets that were read: a copy is none of them."""
    return meter is not NULL and meter.parent is not NULL


# Octets of queued copies that no meter of a producer counts: their messages came from other workers.
cdef uint64_t uncharged

cdef inline void copy_queued(Message* m, size_t octets) noexcept:
    """A copy of a multicast delivery waits: one message may have as many as there are consumers."""
    global uncharged
    m.copies += octets
    if counts_copies(m.meter):
        meter_add(m.meter, octets)
    else:
        uncharged += octets


cdef inline void copy_left(Message* m, size_t octets) noexcept:
    """The copy has left its queue."""
    global uncharged
    m.copies -= octets
    if counts_copies(m.meter):
        meter_subtract(m.meter, octets)
    else:
        uncharged -= octets


cdef uint64_t stored_octets() noexcept
# Octets that message_linearise has copied in this process, for tests.
cdef uint64_t linearised_octets() noexcept
# Free some of the chunks and messages that nobody uses. False: there may be more.
cdef bint chunks_drop() noexcept
