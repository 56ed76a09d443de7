"""Message content (part 3, 3.2): scan of the first sections, stored octets, rewriting of router annotations."""
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy, memmove, memset

from router.amqp.buffer cimport write32
from router.amqp.codec cimport open_described, open_list, open_map, open_variable, read_unsigned, skip_value
from router.amqp.spec cimport (
    S_DELIVERY_ANNOTATIONS, S_HEADER, S_MESSAGE_ANNOTATIONS, S_PROPERTIES, T_INT, T_LIST8, T_LIST32, T_MAP8, T_MAP32,
    T_NULL, T_SMALLINT, T_SMALLULONG, T_STR32, T_STR8, T_SYM32, T_SYM8,
)

from router.amqp import codec

cdef enum:
    DEFAULT_PRIORITY = -1
    MAX_PRIORITY = 9
    PREFIX = 9                 # octets of "x-opt-qd."
    CHUNKS_KEPT = 64           # chunks without a user that are kept for the next message: 4 MiB

cdef uint64_t stored = 0       # octets in chunks of this process
cdef Chunk* spare_chunks = NULL  # of CHUNK_OCTETS each
cdef int spares = 0
cdef bytes node_holder = b"\xa1\x030/?"
cdef const uint8_t* node = node_holder
cdef size_t node_size = 5


cdef uint64_t stored_octets() noexcept:
    """Octets of message content that this process holds in chunks."""
    return stored


def use_node(str text not None):
    """This router's node id ("0/ID"), for ingress and trace."""
    global node_holder, node, node_size
    node_holder = codec.encode_string(text)
    node = node_holder
    node_size = len(node_holder)


# ---------------------------------------------------------------------------------------------------------------------
# Scan

cdef ScanResult scan(const uint8_t* data, size_t size, bint properties, bint honour, Sections* out) noexcept nogil:
    """Walks the sections at `data` through message-annotations, through properties when asked for.

    `out` is zero before.

    honour: router annotations are meant for us and must be well formed. SCAN_MORE: the octets end where another section
    could begin; SCAN_TRUNCATED: they end within one (malformed, unless more will come).
    """
    cdef const uint8_t* p = data
    cdef const uint8_t* end = data + size
    cdef const uint8_t* body
    cdef const uint8_t* after
    cdef uint64_t code
    cdef int last = 0
    cdef ScanResult result
    if size > 3 and data[0] == 0 and data[1] == T_SMALLULONG \
            and data[2] >= (S_PROPERTIES + 1 if properties else S_PROPERTIES):
        # The common case: nothing that concerns us stands before the body.
        out.priority = DEFAULT_PRIORITY
        return SCAN_OK
    memset(out, 0, sizeof(Sections))
    out.priority = DEFAULT_PRIORITY
    if size == 0:
        return SCAN_TRUNCATED
    while p < end:
        # The common case first: a section behind the annotations, or none of ours.
        body = open_described(p, end, &code)
        if body is NULL:
            if p[0] != 0 or end - p >= 10:
                break
            return SCAN_TRUNCATED
        if code < S_HEADER or code > S_PROPERTIES or <int>code <= last:
            break
        if code == S_PROPERTIES and not properties:
            break
        last = <int>code
        after = skip_value(body, end)
        if after is NULL:
            return SCAN_TRUNCATED
        if code == S_HEADER:
            if scan_header(body, after, out) != SCAN_OK:
                return SCAN_MALFORMED
        elif code == S_MESSAGE_ANNOTATIONS:
            result = scan_annotations(body, after, honour, out)
            if result != SCAN_OK:
                return result
            out.at = p - data
            out.end = after - data
        elif code == S_PROPERTIES:
            if scan_properties(body, after, out) != SCAN_OK:
                return SCAN_MALFORMED
        elif body[0] != T_MAP8 and body[0] != T_MAP32:
            return SCAN_MALFORMED
        p = after
        if code <= S_DELIVERY_ANNOTATIONS:
            out.at = out.end = p - data
    if p == end and last < (S_PROPERTIES if properties else S_MESSAGE_ANNOTATIONS):
        return SCAN_MORE
    return SCAN_OK


cdef ScanResult scan_header(const uint8_t* p, const uint8_t* end, Sections* out) noexcept nogil:
    cdef uint32_t count
    cdef uint64_t value
    cdef const uint8_t* stop
    p = open_list(p, end, &count, &stop)
    if p is NULL:
        return SCAN_MALFORMED
    if count >= 2:
        p = skip_value(p, stop)
        if p is NULL or p >= stop:
            return SCAN_MALFORMED
        if p[0] != T_NULL:
            if read_unsigned(p, stop, &value) is NULL:
                return SCAN_MALFORMED
            out.priority = MAX_PRIORITY if value > MAX_PRIORITY else <int>value
    return SCAN_OK


cdef ScanResult scan_properties(const uint8_t* p, const uint8_t* end, Sections* out) noexcept nogil:
    """message-id, user-id, to, subject … (part 3, 3.2.4)"""
    cdef uint32_t count, i
    cdef const uint8_t* stop
    cdef const uint8_t* q
    cdef Slice text
    p = open_list(p, end, &count, &stop)
    if p is NULL:
        return SCAN_MALFORMED
    out.has_properties = True
    for i in range(count if count < 4 else 4):
        q = skip_value(p, stop)
        if q is NULL:
            return SCAN_MALFORMED
        if i > 0 and p[0] != T_NULL:
            if open_variable(p, stop, &text) is NULL:
                return SCAN_MALFORMED
            if i == 1:
                out.user_id = text
            elif i == 2:
                out.to = text
            else:
                out.subject = text
        p = q
    return SCAN_OK


cdef inline bint is_router_key(const uint8_t* key, const uint8_t* end, Slice* name) noexcept nogil:
    """A symbol that begins with x-opt-qd. ; `name` is what follows."""
    if key[0] != T_SYM8 and key[0] != T_SYM32:
        return False
    if open_variable(key, end, name) is NULL or name.size < PREFIX or memcmp(name.data, b"x-opt-qd.", PREFIX) != 0:
        return False
    name.data += PREFIX
    name.size -= PREFIX
    return True


cdef inline bint named(const Slice* name, const char* text, size_t size) noexcept nogil:
    return name.size == size and memcmp(name.data, text, size) == 0


cdef ScanResult scan_annotations(const uint8_t* p, const uint8_t* end, bint honour, Sections* out) noexcept nogil:
    cdef uint32_t count
    cdef const uint8_t* stop
    cdef const uint8_t* value
    cdef const uint8_t* next_key
    cdef Slice name
    cdef ScanResult result
    p = open_map(p, end, &count, &stop)
    if p is NULL:
        return SCAN_MALFORMED
    if count % 2:
        return SCAN_ODD_MAP
    out.map.data = p
    out.map.size = stop - p
    for _ in range(count // 2):
        value = skip_value(p, stop)
        next_key = skip_value(value, stop) if value is not NULL else NULL
        if next_key is NULL:
            return SCAN_MALFORMED
        if is_router_key(p, value, &name):
            out.router = True
            if honour:
                result = scan_router_annotation(&name, value, next_key, out)
                if result != SCAN_OK:
                    return result
        else:
            out.pairs += 1
        p = next_key
    if p != stop:
        return SCAN_MALFORMED
    out.rewrite = out.router or out.pairs == 0
    return SCAN_OK


cdef ScanResult scan_router_annotation(const Slice* name, const uint8_t* value, const uint8_t* end,
                                       Sections* out) noexcept nogil:
    cdef bint is_text = value[0] == T_STR8 or value[0] == T_STR32
    cdef Slice whole
    cdef const uint8_t* p
    cdef const uint8_t* stop
    cdef uint32_t count
    whole.data = value
    whole.size = end - value
    if named(name, b"to", 2):
        if not is_text:
            return SCAN_BAD_TO
        out.to_override = whole
    elif named(name, b"ingress", 7):
        if not is_text:
            return SCAN_BAD_INGRESS
        out.ingress = whole
    elif named(name, b"trace", 5):
        p = open_list(value, end, &count, &stop)
        if p is NULL:
            return SCAN_BAD_TRACE
        for _ in range(count):
            if p >= stop or (p[0] != T_STR8 and p[0] != T_STR32):
                return SCAN_BAD_TRACE_ITEM
            p = skip_value(p, stop)
            if p is NULL:
                return SCAN_BAD_TRACE_ITEM
        if p != stop:
            return SCAN_BAD_TRACE
        out.trace = whole
        out.hops = count
    elif named(name, b"phase", 5):
        out.phase = small_int(value, end)
    elif named(name, b"stream", 6):
        out.stream = True
    elif named(name, b"settled", 7):
        out.settled = True
    return SCAN_OK


cdef int small_int(const uint8_t* p, const uint8_t* end) noexcept nogil:
    """An integer of any width as phase; 0 when it is none or out of range."""
    cdef uint64_t value
    if p[0] == T_SMALLINT or p[0] == 0x55 or p[0] == 0x51:
        return p[1] if p[1] < 128 else 0
    if p[0] == T_INT:
        return p[4] if p[1] == 0 and p[2] == 0 and p[3] == 0 else 0
    if read_unsigned(p, end, &value) is not NULL and value < 256:
        return <int>value
    return 0


cdef str scan_description(ScanResult result):
    return {
        SCAN_BAD_TO: "to-override not a valid string type",
        SCAN_BAD_TRACE: "trace annotation is not a list",
        SCAN_BAD_TRACE_ITEM: "trace list contains non-string entries",
        SCAN_BAD_INGRESS: "ingress router not a string type",
        SCAN_ODD_MAP: "Invalid MA map count (odd number of fields)",
    }.get(result, "invalid message format")


# ---------------------------------------------------------------------------------------------------------------------
# Stored content

cdef Meter* meter_new(void* owner, MeterFreed freed, Meter* parent=NULL) except NULL:
    cdef Meter* m = <Meter*>malloc(sizeof(Meter))
    if m is NULL:
        raise MemoryError("meter")
    m.refs = 1
    m.owner = owner
    m.freed = freed
    m.held = 0
    m.parent = parent
    if parent is not NULL:
        parent.refs += 1
    return m


cdef void meter_release(Meter* m) noexcept:
    cdef Meter* parent
    while m is not NULL:
        m.refs -= 1
        if m.refs:
            return
        parent = m.parent
        free(m)
        m = parent


cdef inline void meter_add(Meter* m, size_t octets) noexcept nogil:
    while m is not NULL:
        m.held += octets
        m = m.parent


cdef void meter_subtract(Meter* m, size_t octets) noexcept:
    """The caller holds a reference to m, and m to its parents."""
    cdef Meter* at = m
    while at is not NULL:
        at.held -= octets
        at = at.parent
    meter_changed(m)


cdef void meter_changed(Meter* m) noexcept:
    while m is not NULL:
        if m.owner is not NULL:
            m.freed(m.owner)
        m = m.parent


cdef Chunk* chunk_new(size_t room, Meter* meter) except NULL:
    global stored, spare_chunks, spares
    cdef Chunk* c
    if room == CHUNK_OCTETS and spare_chunks is not NULL:
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
    """When all readers are at the end of the last chunk, or all have gone, its octets are held for nobody.

    Whoever is not there yet holds a reference to it, or to the chunk before, which does; one is the message's.
    """
    cdef Meter* meter = c.meter
    cdef uint32_t octets = c.size - c.passed
    if c.refs == 1 + c.at_end and octets and meter is not NULL and c.next is NULL:
        c.passed = c.size
        meter.refs += 1
        meter_subtract(meter, octets)
        meter_release(meter)


cdef inline void chunk_read(Chunk* c) noexcept:
    """A reader has come to the end of the last chunk."""
    c.at_end += 1
    if c.refs != 1 + c.at_end and c.at_end == 1 and c.meter is not NULL:
        meter_changed(c.meter)         # the others are not there yet, but it waits for more
    chunk_passed(c)


cdef void chunk_release(Chunk* c) noexcept:
    """Give one reference up; frees the chain behind as far as nobody else needs it."""
    global stored, spare_chunks, spares
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
        else:
            free(c)
        c = following


cdef void chunks_drop() noexcept:
    """Free the chunks that nobody uses."""
    global spare_chunks, spares
    cdef Chunk* c
    while spare_chunks is not NULL:
        c = spare_chunks
        spare_chunks = c.next
        free(c)
    spares = 0


cdef Message* message_new(uint32_t format) except NULL:
    """An empty message with one reference."""
    cdef Message* m = <Message*>malloc(sizeof(Message))
    if m is NULL:
        raise MemoryError("message")
    memset(m, 0, sizeof(Message))
    m.refs = 1
    m.format = format
    return m


cdef int message_append(Message* m, const uint8_t* data, size_t size) except -1:
    """References of a chunk: its predecessor's `next`, cursors, and the message's `head` and `tail`."""
    cdef Chunk* c = m.tail
    cdef size_t part
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
        c = chunk_new(size if size > CHUNK_OCTETS else CHUNK_OCTETS, m.meter)
        c.refs = 2
        m.tail.next = c
        chunk_release(m.tail)
    m.tail = c
    memcpy(&c.data[0], data, size)
    chunk_filled(c, size)
    chunk_passed(c)
    return 0


cdef int message_linearise(Message* m, size_t size) except -1:
    """Makes the first `size` octets (or all there are) contiguous in the first chunk. Before any cursor is opened."""
    cdef Chunk* whole
    cdef Chunk* c
    if m.head is NULL or m.head.size >= size or m.head is m.tail:
        return 0
    whole = chunk_new(<size_t>m.size, m.meter)
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
    """From now on `meter` counts the message's octets: those that no reader has passed, and those to come."""
    cdef Chunk* c = m.head if m.head is not NULL else m.tail
    m.meter = meter
    meter.refs += 1
    while c is not NULL:
        if c.meter is NULL:
            c.meter = meter
            meter.refs += 1
            c.passed = 0
            meter_add(meter, c.size)
        c = c.next
    return 0


cdef void message_routed(Message* m) noexcept:
    """Every reader has its cursor: octets that all have read need not be kept."""
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
    m.refs -= 1
    if m.refs:
        return
    if m.head is not NULL:
        chunk_release(m.head)
    if m.tail is not NULL:
        chunk_release(m.tail)
    if m.meter is not NULL:
        meter_release(m.meter)
    free(m.state)
    free(m)


cdef Message* content_store(Content* c) except NULL:
    """The content as a stored message (one reference, the caller's), copied when it was only in the input buffer."""
    if c.stored is NULL:
        c.stored = message_new(c.format)
        message_append(c.stored, c.data, c.size)
        c.stored.complete = c.complete
        if c.state.size:
            message_state(c.stored, &c.state)
    return c.stored


cdef void cursor_open(Cursor* cursor, Message* m, size_t offset) noexcept:
    """At `offset`, which is within the first chunk. Only before message_routed."""
    cursor.chunk = m.head
    cursor.offset = <uint32_t>offset
    if cursor.chunk is not NULL:
        cursor.chunk.refs += 1
        if cursor.chunk.next is NULL and cursor.offset == cursor.chunk.size:
            cursor.chunk.at_end += 1


cdef size_t cursor_ready(Cursor* cursor) noexcept nogil:
    """Octets that can be read now without a gap, at least: what is left of this chunk and the next one."""
    cdef Chunk* c = cursor.chunk
    if c is NULL:
        return 0
    if c.next is not NULL:
        return c.size - cursor.offset + c.next.size
    return c.size - cursor.offset


cdef size_t cursor_read(Cursor* cursor, uint8_t* w, size_t size) noexcept:
    """Copies up to `size` octets to w and moves on. Returns how many there were."""
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


# ---------------------------------------------------------------------------------------------------------------------
# Annotations for a way out

cdef size_t compose_room(const Content* c) noexcept nogil:
    # 12 for the section's own header; keys of 9 to 16 octets with 2 of their header; 9 for a list's header.
    return c.sections.map.size + c.to.size + c.sections.ingress.size + c.sections.trace.size + 2 * node_size + 192


cdef inline uint8_t* put_key(uint8_t* w, const char* text, uint8_t size) noexcept nogil:
    w[0] = T_SYM8
    w[1] = size
    memcpy(w + 2, text, size)
    return w + 2 + size


cdef inline uint8_t* put_slice(uint8_t* w, const uint8_t* data, size_t size) noexcept nogil:
    memcpy(w, data, size)
    return w + size


cdef uint8_t* put_trace(uint8_t* w, const Slice* trace) noexcept nogil:
    """The list that came, and this router behind it."""
    cdef uint32_t count = 0
    cdef const uint8_t* stop = NULL
    cdef const uint8_t* items = NULL
    cdef size_t size = 0
    if trace.data is not NULL:
        items = open_list(trace.data, trace.data + trace.size, &count, &stop)
    if items is not NULL and count:
        size = stop - items
    else:
        count = 0
    if size + node_size < 255 and count < 255:
        w[0] = T_LIST8
        w[1] = <uint8_t>(size + node_size + 1)
        w[2] = <uint8_t>(count + 1)
        w += 3
    else:
        w[0] = T_LIST32
        write32(w + 1, <uint32_t>(size + node_size + 4))
        write32(w + 5, count + 1)
        w += 9
    if size:
        w = put_slice(w, items, size)
    return put_slice(w, node, node_size)


cdef uint8_t* put_user_pairs(uint8_t* w, const Sections* s) noexcept nogil:
    cdef const uint8_t* p = s.map.data
    cdef const uint8_t* end = s.map.data + s.map.size
    cdef const uint8_t* value
    cdef const uint8_t* following
    cdef Slice name
    if not s.router:
        return put_slice(w, p, s.map.size)
    while p < end:
        value = skip_value(p, end)
        if value is NULL:
            break
        following = skip_value(value, end)
        if following is NULL:
            break
        if not is_router_key(p, value, &name):
            w = put_slice(w, p, following - p)
        p = following
    return w


cdef size_t compose(uint8_t* w, const Content* c, bint router) noexcept nogil:
    cdef const Sections* s = &c.sections
    cdef uint8_t* start = w
    cdef uint8_t* body = w + 12
    cdef uint32_t items = 2 * s.pairs
    cdef size_t size
    w = body
    if s.pairs:
        w = put_user_pairs(w, s)
    if router:
        if c.phase:
            w = put_key(w, b"x-opt-qd.phase", 14)
            w[0] = T_SMALLINT
            w[1] = <uint8_t>c.phase
            w += 2
            items += 2
        if s.stream:
            w = put_key(w, b"x-opt-qd.stream", 15)
            w[0] = T_SMALLINT
            w[1] = 1
            w += 2
            items += 2
        if c.checking:
            w = put_key(w, b"x-opt-qd.settled", 16)
            w[0] = T_SMALLINT
            w[1] = 1
            w += 2
            items += 2
        if c.to.data is not NULL:
            w = put_key(w, b"x-opt-qd.to", 11)
            w = put_slice(w, c.to.data, c.to.size)
            items += 2
        w = put_key(w, b"x-opt-qd.ingress", 16)
        if s.ingress.data is not NULL:
            w = put_slice(w, s.ingress.data, s.ingress.size)
        else:
            w = put_slice(w, node, node_size)
        w = put_key(w, b"x-opt-qd.trace", 14)
        w = put_trace(w, &s.trace)
        items += 4
    if items == 0:
        return 0
    size = w - body
    start[0] = 0
    start[1] = T_SMALLULONG
    start[2] = S_MESSAGE_ANNOTATIONS
    if size < 255 and items < 256:
        start[3] = T_MAP8
        start[4] = <uint8_t>(size + 1)
        start[5] = <uint8_t>items
        memmove(start + 6, body, size)
        return size + 6
    start[3] = T_MAP32
    write32(start + 4, <uint32_t>(size + 4))
    write32(start + 8, items)
    return size + 12


# ---------------------------------------------------------------------------------------------------------------------
# As Python values, for tests

def scan_dict(bytes data not None, properties=True, honour=True):
    """(result, dict of what was found) for tests and property tests against a full decoder."""
    cdef Sections s
    cdef const uint8_t* p = data
    memset(&s, 0, sizeof(Sections))
    result = scan(p, len(data), properties, honour, &s)
    return int(result), {
        "at": s.at, "end": s.end, "pairs": s.pairs, "router": bool(s.router), "rewrite": bool(s.rewrite),
        "phase": s.phase, "stream": bool(s.stream), "priority": s.priority,
        "to": s.to.data[:s.to.size] if s.to.data is not NULL else None,
        "subject": s.subject.data[:s.subject.size] if s.subject.data is not NULL else None,
        "user_id": s.user_id.data[:s.user_id.size] if s.user_id.data is not NULL else None,
        "ingress": s.ingress.data[:s.ingress.size] if s.ingress.data is not NULL else None,
        "trace": s.trace.data[:s.trace.size] if s.trace.data is not NULL else None,
        "to_override": s.to_override.data[:s.to_override.size] if s.to_override.data is not NULL else None,
    }


def rewritten(bytes data not None, router=False, honour=False, bytes to=b"", phase=0):
    """`data` with its annotations as a way out would send them, or None when its first sections are malformed."""
    cdef Content c
    cdef const uint8_t* p = data
    memset(&c, 0, sizeof(Content))
    result = scan(p, len(data), False, honour, &c.sections)
    if result > SCAN_MORE:
        return None
    c.data = p
    c.size = len(data)
    c.phase = phase
    if to:
        c.to.data = to
        c.to.size = len(to)
    if not router and not c.sections.rewrite:
        return data
    room = bytearray(compose_room(&c))
    cdef uint8_t* w = room
    n = compose(w, &c, router)
    return data[:c.sections.at] + bytes(room[:n]) + data[c.sections.end:]
