"""Leading sections of a message (AMQP 1.0 part 3, 3.2): scanned, not decoded.

routing-semantics.md 11.3; inter-router.md 10.
"""
from libc.stdint cimport SIZE_MAX, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memset

from sluice.router.amqp.codec cimport octets_missing, open_described, open_list, open_map, read_unsigned, skip_value
from sluice.router.amqp.spec cimport (
    S_DELIVERY_ANNOTATIONS, S_HEADER, S_MESSAGE_ANNOTATIONS, T_INT, T_MAP8, T_MAP32, T_NULL, T_SMALLINT, T_SMALLULONG,
    T_STR8, T_STR32,
)

cdef enum:
    MAX_PRIORITY = 9
    SHORTEST_DESCRIPTOR = 3    # octets: 00 53 and the code


cdef ScanResult scan_sections(const uint8_t* data, size_t size, bint properties, bint honour,
                              Sections* out) noexcept nogil:
    cdef const uint8_t* p = data
    cdef const uint8_t* end = data + size
    cdef const uint8_t* body
    cdef const uint8_t* after
    cdef uint64_t code
    cdef int last = 0
    cdef ScanResult result
    memset(out, 0, sizeof(Sections))
    out.priority = NO_PRIORITY
    if size == 0:
        return SCAN_TRUNCATED
    while p < end:
        # The common case first: a descriptor in its short encoding.
        if end - p > 3 and p[0] == 0 and p[1] == T_SMALLULONG:
            code = p[2]
            body = p + 3
        else:
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


cdef size_t scan_needs(const uint8_t* data, size_t size) noexcept nogil:
    cdef const uint8_t* p = data
    cdef const uint8_t* end = data + size
    cdef const uint8_t* body
    cdef uint64_t code
    cdef size_t missing
    while end - p >= SHORTEST_DESCRIPTOR:
        body = open_described(p, end, &code)
        if body is NULL:
            return size + 1 if p[0] == 0 and end - p < 10 else SIZE_MAX
        if code < S_HEADER or code > S_PROPERTIES:
            return SIZE_MAX
        missing = octets_missing(body, end)
        if missing:
            return SIZE_MAX if missing == SIZE_MAX else size + missing
        p = skip_value(body, end)
    return size + SHORTEST_DESCRIPTOR - (end - p)


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
    """Scan message-id, user-id, to and subject (AMQP 1.0 part 3, 3.2.4)."""
    cdef uint32_t count, i
    cdef const uint8_t* stop
    cdef const uint8_t* q
    cdef Slice text
    p = open_list(p, end, &count, &stop)
    if p is NULL:
        return SCAN_MALFORMED
    out.has_properties = True
    for i in range(count if count < 4 else 4):
        if p < stop and p[0] == T_NULL:
            p += 1
            continue
        q = skip_value(p, stop)
        if q is NULL:
            return SCAN_MALFORMED
        if i > 0:
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


cdef bint scan_any_user(const uint8_t* p, const uint8_t* end, Slice* user_id) noexcept nogil:
    cdef Sections s
    cdef const uint8_t* after = skip_value(p, end)
    s.user_id.data = NULL
    if after is NULL or scan_properties(p, after, &s) != SCAN_OK:
        return False
    user_id[0] = s.user_id
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
    elif named(name, b"x-opt-sluice.served", SERVED_SIZE):
        out.served = whole
    return SCAN_OK


cdef int small_int(const uint8_t* p, const uint8_t* end) noexcept nogil:
    """Return an integer of any width as phase; 0 for anything else, or out of range."""
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
