"""Trace context of a message (W3C Trace Context, AMQP binding): found in its sections, written to its annotations."""
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy, memset

from sluice.router.amqp.buffer cimport write32
from sluice.router.amqp.codec cimport open_described, open_map, open_variable, skip_value
from sluice.router.amqp.spec cimport (
    S_APPLICATION_PROPERTIES, S_HEADER, S_MESSAGE_ANNOTATIONS, T_BIN8, T_MAP8, T_MAP32, T_SMALLULONG, T_STR8, T_STR32,
    T_SYM8,
)

cdef enum:
    NAME_SIZE = 11             # octets of "traceparent"
    STATE_NAME_SIZE = 10       # octets of "tracestate"
    MARK_SIZE = 15             # octets of MARK
    MARK_VALUE = 16            # octets of its value: connection and time, of 8 octets each
    # Octets of a traceparent's fields: version, trace-id, parent-id, flags, each behind a hyphen.
    TRACE_ID_AT = 3
    PARENT_ID_AT = 36
    FLAGS_AT = 53
    FLAG_SAMPLED = 1
    VALUE_AT = 2 + NAME_SIZE + 2                                           # offset of the traceparent in PATTERN
    PAIR_SIZE = VALUE_AT + TRACEPARENT_SIZE                             # the traceparent with its key
    PATTERN_SIZE = VALUE_AT + TRACEPARENT_SIZE + 2 + MARK_SIZE + 2 + MARK_VALUE     # with MARK and its key
    GROWTH = 12 + PATTERN_SIZE                                          # of the annotations, with the header

cdef const char* NAME = b"traceparent"
cdef const char* STATE_NAME = b"tracestate"
cdef const char* MARK = b"x-opt-qd.traced"
cdef const char* DIGITS = b"0123456789abcdef"
cdef char[512] PAIRS                   # the two digits of each octet
cdef uint8_t[PATTERN_SIZE] PATTERN     # the pairs that `write_context` adds, without the digits of ids


cdef void fill_tables() noexcept nogil:
    cdef int i
    cdef uint8_t* w = put_name(PATTERN, NAME, NAME_SIZE)
    for i in range(256):
        PAIRS[2 * i] = DIGITS[i >> 4]
        PAIRS[2 * i + 1] = DIGITS[i & 15]
    w[0] = T_STR8
    w[1] = TRACEPARENT_SIZE
    w += 2
    memcpy(w, b"00-", 3)
    w[PARENT_ID_AT - 1] = c"-"
    memcpy(w + FLAGS_AT - 1, b"-01", 3)
    w = put_name(w + TRACEPARENT_SIZE, MARK, MARK_SIZE)
    w[0] = T_BIN8
    w[1] = MARK_VALUE


fill_tables()


cdef int digit(uint8_t c) noexcept nogil:
    """Return the value of a lower-case hexadecimal digit; -1: another character."""
    if c"0" <= c <= c"9":
        return c - c"0"
    return c - c"a" + 10 if c"a" <= c <= c"f" else -1


cdef bint read_hex(const uint8_t* text, uint8_t* out, size_t octets) noexcept nogil:
    """Read octets from lower-case hexadecimal digits. False: there are other characters, or all octets are zero."""
    cdef size_t i
    cdef int high, low
    cdef uint8_t any_bit = 0
    for i in range(octets):
        high = digit(text[2 * i])
        low = digit(text[2 * i + 1])
        if high < 0 or low < 0:
            return False
        out[i] = <uint8_t>(high << 4 | low)
        any_bit |= out[i]
    return any_bit != 0


cdef inline void write_hex(uint8_t* w, const uint8_t* octets) noexcept nogil:
    """Write the digits of eight octets."""
    memcpy(w, &PAIRS[2 * octets[0]], 2)
    memcpy(w + 2, &PAIRS[2 * octets[1]], 2)
    memcpy(w + 4, &PAIRS[2 * octets[2]], 2)
    memcpy(w + 6, &PAIRS[2 * octets[3]], 2)
    memcpy(w + 8, &PAIRS[2 * octets[4]], 2)
    memcpy(w + 10, &PAIRS[2 * octets[5]], 2)
    memcpy(w + 12, &PAIRS[2 * octets[6]], 2)
    memcpy(w + 14, &PAIRS[2 * octets[7]], 2)


cdef bint read_traceparent(const Slice* text, TraceContext* out) noexcept nogil:
    """Read a traceparent. Versions above 00 begin in the same way, version ff is invalid."""
    cdef int high, low
    if text.size < TRACEPARENT_SIZE or (text.size > TRACEPARENT_SIZE and text.data[TRACEPARENT_SIZE] != c"-"):
        return False
    if text.data[2] != c"-" or text.data[35] != c"-" or text.data[52] != c"-":
        return False
    high = digit(text.data[0])
    low = digit(text.data[1])
    if high < 0 or low < 0 or high + low == 30 or (high + low == 0 and text.size != TRACEPARENT_SIZE):
        return False
    high = digit(text.data[FLAGS_AT])
    low = digit(text.data[FLAGS_AT + 1])
    if high < 0 or low < 0 or not read_hex(text.data + TRACE_ID_AT, out.trace_id, TRACE_ID_OCTETS) \
            or not read_hex(text.data + PARENT_ID_AT, out.parent_id, SPAN_ID_OCTETS):
        return False
    out.sampled = low & FLAG_SAMPLED
    return True


cdef inline bint has_name(const Slice* key, const char* name, size_t size) noexcept nogil:
    return key.size == size and memcmp(key.data, name, size) == 0


cdef bint find_in_map(const uint8_t* p, const uint8_t* end, bint bare, TraceContext* out) noexcept nogil:
    """Find the fields in a map. bare: it is part of the bare message, so that its tracestate is to be copied. Returns
    True if all pairs were read, and none is a traceparent or a mark."""
    cdef bint other = True
    cdef uint32_t count
    cdef const uint8_t* stop
    cdef const uint8_t* value
    cdef const uint8_t* after
    cdef Slice key, text, state
    state.data = NULL
    state.size = 0
    p = open_map(p, end, &count, &stop)
    if p is NULL:
        return False
    for _ in range(min(count // 2, <uint32_t>PAIRS_MOST)):
        value = skip_value(p, stop)
        after = skip_value(value, stop) if value is not NULL else NULL
        if after is NULL:
            return False
        if open_variable(p, stop, &key) is not NULL:
            if has_name(&key, NAME, NAME_SIZE):
                other = False
                if not out.found and (value[0] == T_STR8 or value[0] == T_STR32) \
                        and open_variable(value, stop, &text) is not NULL:
                    out.found = read_traceparent(&text, out)
            elif not bare and has_name(&key, MARK, MARK_SIZE):
                other = False
                if value[0] == T_BIN8 and value[1] == MARK_VALUE:
                    memcpy(&out.connection, value + 2, 8)
                    memcpy(&out.arrived, value + 10, 8)
            elif bare and has_name(&key, STATE_NAME, STATE_NAME_SIZE) and after - value <= TRACESTATE_MOST:
                state.data = value
                state.size = after - value
        p = after
    if out.found:
        out.state = state
    return other and p == stop


cdef void find_context(const uint8_t* data, size_t size, TraceContext* out) noexcept nogil:
    cdef const uint8_t* p = data
    cdef const uint8_t* end = data + size
    cdef const uint8_t* body
    cdef uint64_t code
    cdef uint64_t last = 0
    cdef bint others = True                # no traceparent and no mark in the annotations
    memset(out, 0, sizeof(TraceContext))
    while p < end and not out.found:
        body = open_described(p, end, &code)
        if body is NULL or code < S_HEADER or code <= last:
            return
        if code > S_MESSAGE_ANNOTATIONS:
            out.appendable = others
            if code > S_APPLICATION_PROPERTIES:
                return
        last = code
        p = skip_value(body, end)
        if p is NULL:
            return
        if code == S_APPLICATION_PROPERTIES:
            find_in_map(body, p, True, out)
        elif code == S_MESSAGE_ANNOTATIONS:
            others = find_in_map(body, p, False, out)
            out.end = p - data
        elif code < S_MESSAGE_ANNOTATIONS:
            out.at = out.end = p - data


cdef inline size_t state_room(const TraceContext* context) noexcept nogil:
    """Return the octets of the pair of the tracestate."""
    return 2 + STATE_NAME_SIZE + context.state.size if context.state.data is not NULL else 0


cdef size_t append_room(const Slice* section, const TraceContext* context) noexcept nogil:
    return section.size + GROWTH + state_room(context)


cdef size_t context_room(size_t size, const TraceContext* context) noexcept nogil:
    return size + GROWTH + state_room(context)


cdef inline uint8_t* put(uint8_t* w, const void* data, size_t size) noexcept nogil:
    memcpy(w, data, size)
    return w + size


cdef inline uint8_t* put_name(uint8_t* w, const char* name, uint8_t size) noexcept nogil:
    w[0] = T_SYM8
    w[1] = size
    return put(w + 2, name, size)


cdef inline void write_ids(uint8_t* pair, const uint8_t* trace_id, const uint8_t* span_id) noexcept nogil:
    """Write the ids of a traceparent. pair: octets of the pattern."""
    write_hex(pair + VALUE_AT + TRACE_ID_AT, trace_id)
    write_hex(pair + VALUE_AT + TRACE_ID_AT + 16, trace_id + 8)
    write_hex(pair + VALUE_AT + PARENT_ID_AT, span_id)


cdef size_t append_context(uint8_t* w, const Slice* section, const TraceContext* context, const uint8_t* trace_id,
                           const uint8_t* span_id) noexcept nogil:
    cdef uint8_t* start = w
    cdef uint32_t count = 0
    cdef uint64_t code
    cdef const uint8_t* pairs = NULL
    cdef const uint8_t* stop = NULL
    cdef size_t size = PAIR_SIZE + state_room(context)
    if section.size:
        pairs = open_described(section.data, section.data + section.size, &code)
        if pairs is not NULL:
            pairs = open_map(pairs, section.data + section.size, &count, &stop)
        if pairs is NULL:
            return 0
    size += stop - pairs
    count += 2 if context.state.data is NULL else 4
    w[0] = 0
    w[1] = T_SMALLULONG
    w[2] = S_MESSAGE_ANNOTATIONS
    if size < 255 and count < 256:
        w[3] = T_MAP8
        w[4] = <uint8_t>(size + 1)
        w[5] = <uint8_t>count
        w += 6
    else:
        w[3] = T_MAP32
        write32(w + 4, <uint32_t>(size + 4))
        write32(w + 8, count)
        w += 12
    # Before the other pairs, because readers stop after PAIRS_MOST.
    memcpy(w, PATTERN, PAIR_SIZE)
    write_ids(w, trace_id, span_id)
    w += PAIR_SIZE
    if context.state.data is not NULL:
        w = put_name(w, STATE_NAME, STATE_NAME_SIZE)
        w = put(w, context.state.data, context.state.size)
    if stop > pairs:
        w = put(w, pairs, stop - pairs)
    return w - start


cdef size_t write_context(uint8_t* w, const uint8_t* data, size_t size, const Sections* sections,
                          const TraceContext* context, const uint8_t* trace_id, const uint8_t* span_id,
                          uint64_t connection, uint64_t arrived) noexcept nogil:
    cdef uint8_t* start = w
    cdef uint8_t* header
    cdef uint32_t items = 4
    cdef const uint8_t* p = sections.map.data
    cdef const uint8_t* end = p + sections.map.size
    cdef const uint8_t* value
    cdef const uint8_t* after
    cdef Slice key
    w = put(w, data, sections.at)
    header = w
    w = put(w + 12, PATTERN, PATTERN_SIZE)
    write_ids(w - PATTERN_SIZE, trace_id, span_id)
    memcpy(w - 16, &connection, 8)
    memcpy(w - 8, &arrived, 8)
    if context.state.data is not NULL:
        w = put_name(w, STATE_NAME, STATE_NAME_SIZE)
        w = put(w, context.state.data, context.state.size)
        items += 2
    while p < end:
        value = skip_value(p, end)
        after = skip_value(value, end) if value is not NULL else NULL
        if after is NULL:
            break                          # excluded: the scan has read the map
        key.size = 0
        if open_variable(p, end, &key) is NULL \
                or not (has_name(&key, NAME, NAME_SIZE) or has_name(&key, MARK, MARK_SIZE)):
            w = put(w, p, after - p)
            items += 2
        p = after
    header[0] = 0
    header[1] = T_SMALLULONG
    header[2] = S_MESSAGE_ANNOTATIONS
    header[3] = T_MAP32
    write32(header + 4, <uint32_t>(w - header - 8))
    write32(header + 8, items)
    w = put(w, data + sections.end, size - sections.end)
    return w - start
