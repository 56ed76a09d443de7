"""Leading sections of a message (AMQP 1.0 part 3, 3.2): scanned, not decoded."""
from libc.stdint cimport uint8_t, uint32_t
from libc.string cimport memcmp

from sluice.router.amqp.codec cimport Slice, open_variable
from sluice.router.amqp.spec cimport (
    S_PROPERTIES, T_BIN8, T_LIST8, T_NULL, T_SMALLULONG, T_STR8, T_SYM32, T_SYM8, T_ULONG, T_ULONG0, T_UUID,
)

cdef enum:
    ROUTER_PREFIX = 9          # octets of "x-opt-qd."
    SERVED_SIZE = 19           # octets of "x-opt-sluice.served"
    NO_PRIORITY = -1

# Results of a scan. Slices point into the scanned octets.
cdef struct Sections:
    size_t at                  # offset of the message-annotations, or of the place where they would be
    size_t end                 # offset behind them (== at: there are none)
    Slice map                  # items of the annotations map (without its header)
    uint32_t pairs             # number of users' annotations
    bint router                # there are router annotations (x-opt-qd.*)
    bint rewrite               # the section must not be forwarded unchanged
    Slice ingress              # x-opt-qd.ingress, encoded string
    Slice trace                # x-opt-qd.trace, encoded list
    uint32_t hops              # items of the trace
    Slice to_override          # x-opt-qd.to, encoded string
    int phase                  # x-opt-qd.phase; 0: none
    bint stream                # x-opt-qd.stream
    bint settled               # x-opt-qd.settled: sent settled, and tracked by a router (Content.checkpoint)
    Slice served               # x-opt-sluice.served, encoded list: edge routers served by the router where it entered
    int priority               # 0…9; -1: the header has none
    bint has_properties        # the properties were scanned
    Slice to                   # text of properties.to; data NULL when absent
    Slice subject              # text of properties.subject; data NULL when absent
    Slice user_id              # octets of properties.user-id; data NULL when absent

cdef enum ScanResult:
    SCAN_OK = 0
    SCAN_MORE = 1              # sections so far are complete; the octets end where another section could start
    SCAN_TRUNCATED = 2         # the octets end within a section
    SCAN_MALFORMED = 8         # amqp:decode-error, invalid message format
    SCAN_BAD_TO = 3            # amqp:invalid-field, see scan_description
    SCAN_BAD_TRACE = 4
    SCAN_BAD_TRACE_ITEM = 5
    SCAN_BAD_INGRESS = 6
    SCAN_ODD_MAP = 7

cdef ScanResult scan_sections(const uint8_t* data, size_t size, bint properties, bint honour,
                              Sections* out) noexcept nogil
# For the first octets of a message, in which a section is incomplete: return the number of octets to wait for before a
# new scan can find more. SIZE_MAX: more octets would not help.
cdef size_t scan_needs(const uint8_t* data, size_t size) noexcept nogil
cdef bint scan_any_user(const uint8_t* p, const uint8_t* end, Slice* user_id) noexcept nogil
cdef str scan_description(ScanResult result)


cdef inline bint scan_user(const uint8_t* p, const uint8_t* end, Slice* user_id) noexcept nogil:
    """Find the user-id in the properties section that starts at p. user_id.data NULL: there is no user-id.

    False: the properties are malformed, as `scan` defines it.
    """
    cdef const uint8_t* stop
    cdef const uint8_t* q
    cdef uint32_t i
    user_id.data = NULL
    if end - p < 3 or p[0] != T_LIST8 or p[1] <= p[2] or end - p - 2 < p[1]:
        return scan_any_user(p, end, user_id)
    stop = p + 2 + p[1]
    q = p + 3
    for i in range(p[2] if p[2] < 4 else 4):
        if q < stop and q[0] == T_NULL:
            q += 1
        elif stop - q >= 2 and (q[0] == T_STR8 or q[0] == T_SYM8 or q[0] == T_BIN8) and stop - q - 2 >= q[1]:
            if i == 1:
                user_id.data = q + 2
                user_id.size = q[1]
            q += 2 + q[1]
        else:
            user_id.data = NULL
            return scan_any_user(p, end, user_id)
    return True


cdef inline const uint8_t* skip_message_id(const uint8_t* p, const uint8_t* stop) noexcept nogil:
    """Return the end of a message-id in an encoding that clients use; NULL: another encoding, or malformed."""
    cdef uint8_t code
    if p >= stop:
        return NULL
    code = p[0]
    if code == T_NULL or code == T_ULONG0:
        return p + 1
    if code == T_SMALLULONG:
        p += 2
    elif code == T_ULONG:
        p += 9
    elif code == T_UUID:
        p += 17
    elif code == T_STR8 or code == T_BIN8:
        if stop - p < 2:
            return NULL
        p += 2 + p[1]
    else:
        return NULL
    return p if p <= stop else NULL


cdef inline bint short_text(const uint8_t** p, const uint8_t* stop, Slice* text) noexcept nogil:
    """Read a field that is null, or a short string, symbol or binary, and move `p` behind it. False: it is neither."""
    text.data = NULL
    text.size = 0
    if p[0] >= stop:
        return False
    if p[0][0] == T_NULL:
        p[0] += 1
        return True
    if stop - p[0] < 2 or (p[0][0] != T_STR8 and p[0][0] != T_SYM8 and p[0][0] != T_BIN8) \
            or stop - p[0] - 2 < p[0][1]:
        return False
    text.data = p[0] + 2
    text.size = p[0][1]
    p[0] += 2 + p[0][1]
    return True


cdef inline bint scan_to(const uint8_t* p, const uint8_t* end, Slice* user_id, Slice* to) noexcept nogil:
    """Find user-id and `to` in the properties section that starts at p, if all fields up to the subject are short.

    False: another encoding, no `to`, or malformed properties; `scan` is needed.
    """
    cdef const uint8_t* stop
    cdef Slice subject
    if end - p < 3 or p[0] != T_LIST8 or p[1] <= p[2] or end - p - 2 < p[1] or p[2] < 3:
        return False
    stop = p + 2 + p[1]
    subject.size = p[2]                    # items of the list
    p = skip_message_id(p + 3, stop)
    return (p is not NULL and short_text(&p, stop, user_id) and short_text(&p, stop, to) and to.data is not NULL
            and (subject.size == 3 or short_text(&p, stop, &subject)))


cdef inline ScanResult scan(const uint8_t* data, size_t size, bint properties, bint honour,
                            Sections* out) noexcept nogil:
    """Scan the sections at `data` up to the message-annotations, or up to the properties if asked for.

    `out` must be zero. honour: router annotations are meant for this router and must be well-formed. Octets that end
    within a section (SCAN_TRUNCATED) are malformed, unless more will come.
    """
    if size > 3 and data[0] == 0 and data[1] == T_SMALLULONG \
            and data[2] >= (S_PROPERTIES + 1 if properties else S_PROPERTIES):
        # The common case: nothing before the body that a router reads.
        out.priority = NO_PRIORITY
        return SCAN_OK
    return scan_sections(data, size, properties, honour, out)


cdef inline bint is_router_key(const uint8_t* key, const uint8_t* end, Slice* name) noexcept nogil:
    """Return True for a router annotation's key: a symbol that starts with x-opt-qd., or x-opt-sluice.served.

    name: the text behind that prefix, or all of the other key. Routers of 1.19 take that one for a user's annotation,
    so they pass it on.
    """
    if key[0] != T_SYM8 and key[0] != T_SYM32:
        return False
    if open_variable(key, end, name) is NULL or name.size < ROUTER_PREFIX:
        return False
    if memcmp(name.data, b"x-opt-qd.", ROUTER_PREFIX) != 0:
        return name.size == SERVED_SIZE and memcmp(name.data, b"x-opt-sluice.served", SERVED_SIZE) == 0
    name.data += ROUTER_PREFIX
    name.size -= ROUTER_PREFIX
    return True
