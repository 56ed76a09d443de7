"""Content of messages: octets in chunks that the copies of a message share, and cursors of their readers."""
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from sluice.router.amqp.zero cimport zero
from sluice.router.amqp.meter cimport Meter, meter_add, meter_changed, meter_release, meter_subtract

cdef enum:
    CHUNKS_KEPT = 64           # unused chunks of CHUNK_OCTETS kept for further messages: 4 MiB
    # Small chunks have room for a multiple of SMALL_STEP octets, up to 1,024. Unused ones are kept by size, up to
    # SMALL_KEPT octets in all.
    SMALL_STEP = 64
    SMALL_SIZES = 17
    SMALL_KEPT = 16777216
    MESSAGES_KEPT = 65536      # most unused Message structs kept: enough for the queues of a few busy links
    ROOM_FOR_ONE = 4           # most octets of room, in a chunk behind the first, for each octet received
    DROPS = 8192               # chunks and messages that one call of chunks_drop frees, at most: a fraction of a ms

cdef uint64_t stored = 0       # octets in chunks of this process
uncharged = 0
cdef uint64_t linearised = 0   # octets that message_linearise has copied
cdef Chunk* spare_chunks = NULL  # unused chunks of CHUNK_OCTETS
cdef int spares = 0
cdef Chunk* small_chunks[SMALL_SIZES]   # unused small chunks, by room / SMALL_STEP
cdef size_t small_kept = 0
cdef Message* spare_messages = NULL      # unused structs, linked by `next_spare`
cdef int messages_kept = 0


cdef uint64_t stored_octets() noexcept:
    """Return the octets of message content that this process holds in chunks."""
    return stored


cdef uint64_t linearised_octets() noexcept:
    return linearised


cdef Chunk* chunk_new(size_t room, Meter* meter) except NULL:
    global stored, spare_chunks, spares, small_kept
    cdef Chunk* c
    if room <= (SMALL_SIZES - 1) * SMALL_STEP:
        room = (room + SMALL_STEP - 1) & ~<size_t>(SMALL_STEP - 1)
        c = small_chunks[room // SMALL_STEP]
        if c is not NULL:
            small_chunks[room // SMALL_STEP] = c.next
            small_kept -= room
    else:
        c = NULL
    if c is not NULL:
        pass
    elif room == CHUNK_OCTETS and spare_chunks is not NULL:
        c = spare_chunks
        spare_chunks = c.next
        spares -= 1
    else:
        c = <Chunk*>malloc(sizeof(Chunk) + room)
        if c is NULL:
            raise MemoryError(f"message content of {room} octets")
    c.next = NULL
    c.refs = 1
    c.size = c.passed = c.at_end = 0
    c.room = <uint32_t>room
    c.meter = meter
    stored += room
    if meter is not NULL:
        meter.refs += 1
    return c


cdef inline void chunk_filled(Chunk* c, size_t size) noexcept nogil:
    c.size += <uint32_t>size
    c.at_end = 0
    if c.meter is not NULL:
        meter_add(c.meter, size)


cdef inline void chunk_passed(Chunk* c) noexcept:
    """Stop metering the octets of the last chunk if all readers are at its end, or gone.

    A reader that is not there yet holds a reference to the chunk, or to an earlier one. One reference is the
    message's.
    """
    cdef Meter* meter = c.meter
    cdef uint32_t octets = c.size - c.passed
    if c.refs == 1 + c.at_end and octets and meter is not NULL and c.next is NULL:
        c.passed = c.size
        meter.refs += 1
        meter_subtract(meter, octets)
        meter_release(meter)


cdef inline void chunk_read(Chunk* c) noexcept:
    """Note that a reader has reached the end of the last chunk."""
    c.at_end += 1
    if c.refs != 1 + c.at_end and c.at_end == 1 and c.meter is not NULL:
        meter_changed(c.meter)         # a reader that waits for more, although others are behind
    chunk_passed(c)


cdef void chunk_release(Chunk* c) noexcept:
    """Release one reference; free the chain of chunks as far as it has no other references."""
    global stored, spare_chunks, spares, small_kept
    cdef Chunk* following
    cdef Meter* meter
    while c is not NULL:
        c.refs -= 1
        if c.refs:
            chunk_passed(c)
            return
        following = c.next
        stored -= c.room
        meter = c.meter
        if meter is not NULL:
            if c.size > c.passed:
                meter_subtract(meter, c.size - c.passed)
            meter_release(meter)
        if c.room == CHUNK_OCTETS and spares < CHUNKS_KEPT:
            c.next = spare_chunks
            spare_chunks = c
            spares += 1
        elif c.room <= (SMALL_SIZES - 1) * SMALL_STEP and small_kept < SMALL_KEPT:
            c.next = small_chunks[c.room // SMALL_STEP]
            small_chunks[c.room // SMALL_STEP] = c
            small_kept += c.room
        else:
            free(c)
        c = following


cdef bint chunks_drop() noexcept:
    global spare_messages, messages_kept
    cdef Message* m
    cdef int left = DROPS
    cdef int i
    while spare_messages is not NULL and left:
        m = spare_messages
        spare_messages = m.next_spare
        free(m)
        messages_kept -= 1
        left -= 1
    for i in range(SMALL_SIZES):
        free_chunks(&small_chunks[i], &left)
    free_chunks(&spare_chunks, &left)
    return left != 0


cdef void free_chunks(Chunk** first, int* left) noexcept:
    """Free at most `left` chunks of a list, and count `left` down."""
    global spares, small_kept
    cdef Chunk* c
    while first[0] is not NULL and left[0]:
        c = first[0]
        first[0] = c.next
        if c.room == CHUNK_OCTETS:
            spares -= 1
        else:
            small_kept -= c.room
        free(c)
        left[0] -= 1


cdef inline int message_reserve() except -1:
    """Reserve a struct: the next message_new cannot fail."""
    global spare_messages, messages_kept
    cdef Message* m
    if spare_messages is NULL:
        m = <Message*>malloc(sizeof(Message))
        if m is NULL:
            raise MemoryError("message")
        m.next_spare = NULL
        spare_messages = m
        messages_kept += 1
    return 0


cdef Message* message_new(uint32_t format) except NULL:
    """Return an empty message with one reference."""
    global spare_messages, messages_kept
    cdef Message* m
    message_reserve()
    m = spare_messages
    spare_messages = m.next_spare
    messages_kept -= 1
    zero(m, sizeof(Message))
    m.refs = 1
    m.format = format
    return m


cdef int message_append(Message* m, const uint8_t* data, size_t size) except -1:
    """Append octets to a message, in the last chunk or a new one."""
    cdef Chunk* c = m.tail
    cdef size_t part, room
    if not size:
        return 0
    m.size += size
    if c is not NULL and c.room > c.size:
        part = c.room - c.size
        if part > size:
            part = size
        memcpy(&c.data[0] + c.size, data, part)
        chunk_filled(c, part)
        data += part
        size -= part
    if not size:
        chunk_passed(c)
        return 0
    if m.tail is NULL:
        c = chunk_new(size, m.meter)
        m.head = c
        c.refs = 2
    else:
        # Room is bounded by octets received: the meter does not count room, and a peer may send few octets and no
        # more.
        room = min(<size_t>CHUNK_OCTETS, ROOM_FOR_ONE * <size_t>m.size)
        c = chunk_new(size if size > room else room, m.meter)
        c.refs = 2
        m.tail.next = c
        chunk_release(m.tail)
    m.tail = c
    memcpy(&c.data[0], data, size)
    chunk_filled(c, size)
    chunk_passed(c)
    return 0


cdef int message_linearise(Message* m, size_t room) except -1:
    """Make all octets contiguous in the first chunk, with `room` octets in all.

    To be called before any cursor is opened.
    """
    global linearised
    cdef Chunk* whole
    cdef Chunk* c
    if m.head is NULL or m.head is m.tail:
        return 0
    whole = chunk_new(room if room > m.size else <size_t>m.size, m.meter)
    linearised += m.size
    c = m.head
    while c is not NULL:
        memcpy(&whole.data[0] + whole.size, &c.data[0], c.size)
        chunk_filled(whole, c.size)
        c = c.next
    c = m.tail
    chunk_release(m.head)
    chunk_release(c)
    m.head = m.tail = whole
    whole.refs = 2
    return 0


cdef int message_meter(Message* m, Meter* meter) except -1:
    """Make `meter` count the message's octets from now on, instead of its present meter: those that no reader has
    passed, and those to come. Of a routed message only the last chunk is moved."""
    global uncharged
    cdef Chunk* c = m.head if m.head is not NULL else m.tail
    cdef Meter* before = m.meter
    cdef size_t moved = m.copies if counts_copies(before) else 0
    cdef size_t octets
    if before is meter:
        return 0
    m.meter = meter
    meter.refs += 1
    if counts_copies(meter):
        meter_add(meter, m.copies)
    if not counts_copies(before):
        uncharged -= m.copies
    if not counts_copies(meter):
        uncharged += m.copies
    while c is not NULL:
        if c.meter is before:
            octets = c.size - c.passed
            c.meter = meter
            meter.refs += 1
            meter_add(meter, octets)
            if before is not NULL:
                moved += octets
                before.refs -= 1           # the message holds another reference until the end
        c = c.next
    if before is not NULL:
        if moved:
            meter_subtract(before, moved)
        meter_release(before)
    return 0


cdef void message_routed(Message* m) noexcept:
    """Drop `head`: every reader has its cursor, so octets that all have read are freed."""
    if m.head is not NULL:
        chunk_release(m.head)
        m.head = NULL


cdef int message_state(Message* m, const Slice* state) except -1:
    cdef uint8_t* octets = <uint8_t*>malloc(state.size)
    if octets is NULL:
        raise MemoryError("delivery state")
    memcpy(octets, state.data, state.size)
    free(m.state)
    m.state = octets
    m.state_size = <uint32_t>state.size
    return 0


cdef void message_release(Message* m) noexcept:
    global spare_messages, messages_kept
    m.refs -= 1
    if m.refs:
        return
    if m.head is not NULL:
        chunk_release(m.head)
    if m.tail is not NULL:
        chunk_release(m.tail)
    if m.meter is not NULL:
        meter_release(m.meter)
    if m.state is not NULL:
        free(m.state)
    if messages_kept < MESSAGES_KEPT:
        m.next_spare = spare_messages
        spare_messages = m
        messages_kept += 1
    else:
        free(m)


cdef Message* message_whole(uint32_t format, size_t size, Meter* meter, Cursor* cursor) except NULL:
    cdef Message* m
    cdef Chunk* c
    message_reserve()
    c = chunk_new(size, meter)
    m = message_new(format)
    c.refs = 2                             # references: the message's `tail`, and the cursor
    chunk_filled(c, size)
    meter.refs += 1
    m.meter = meter
    m.tail = c
    m.size = size
    m.complete = True
    cursor.chunk = c
    cursor.offset = 0
    return m


cdef Message* content_store(Content* c) except NULL:
    """Return the content as a stored message, copied if it is only in the read buffer.

    The reference is the caller's.
    """
    if c.stored is NULL:
        c.stored = message_new(c.format)
        message_append(c.stored, c.data, c.size)
        c.stored.complete = c.complete
        if c.state.size:
            message_state(c.stored, &c.state)
    return c.stored


cdef void cursor_open(Cursor* cursor, Message* m, size_t offset) noexcept:
    """Open a cursor at `offset`, which must be within the first chunk. To be called before message_routed."""
    cursor.chunk = m.head
    cursor.offset = <uint32_t>offset
    if cursor.chunk is not NULL:
        cursor.chunk.refs += 1
        if cursor.chunk.next is NULL and cursor.offset == cursor.chunk.size:
            cursor.chunk.at_end += 1


cdef size_t cursor_read(Cursor* cursor, uint8_t* w, size_t size) noexcept:
    """Copy up to `size` octets to w and advance the cursor. Returns the number of octets."""
    cdef Chunk* c = cursor.chunk
    cdef Chunk* following
    cdef size_t part, done = 0
    while c is not NULL:
        part = c.size - cursor.offset
        if part > size - done:
            part = size - done
        memcpy(w + done, &c.data[0] + cursor.offset, part)
        cursor.offset += <uint32_t>part
        done += part
        if cursor.offset < c.size:
            break
        if c.next is NULL:
            if part:
                chunk_read(c)
            break
        following = c.next
        following.refs += 1
        chunk_release(c)
        cursor.chunk = c = following
        cursor.offset = 0
        if done == size:
            break
    return done


cdef bint message_awaited(const Message* m) noexcept nogil:
    return m.tail is NULL or m.tail.at_end > 0 or (m.head is NULL and m.tail.refs == 1)


cdef void cursor_close(Cursor* cursor) noexcept:
    cdef Chunk* c = cursor.chunk
    if c is not NULL:
        cursor.chunk = NULL
        if c.next is NULL and c.at_end and cursor.offset == c.size:
            c.at_end -= 1
        chunk_release(c)
