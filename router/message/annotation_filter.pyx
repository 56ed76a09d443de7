"""Removal of message-annotations from the sections of a message that arrives in pieces.

A valid message has its message-annotations among the leading sections, which are not filtered. Consumers that keep the
last section of a kind would take further ones for those of the router. Values are skipped by their sizes, not checked
(AMQP 1.0 part 1, 1.2): octets of a section that is invalid in itself are kept like others.
"""
from libc.string cimport memcmp, memcpy, memmove

from sluice.router.amqp.spec cimport S_MESSAGE_ANNOTATIONS, T_DESCRIBED, T_SMALLULONG

cdef enum:
    NAME_OCTETS = 28           # octets of "amqp:message-annotations:map"
    # High halves of constructors: the width of their values (part 1, figure 1.7).
    WIDTH_0 = 4
    WIDTH_1 = 5
    WIDTH_2 = 6
    WIDTH_4 = 7
    WIDTH_8 = 8
    WIDTH_16 = 9
    VARIABLE_1 = 0xA           # and each second one above: a size of one octet
    # Results of `recognise`.
    UNKNOWN = 0
    OTHER = 1
    ANNOTATIONS = 2


cdef inline uint8_t fixed_width(uint8_t constructor) noexcept nogil:
    """Return the octets of a value with a fixed width; 0 for all others."""
    cdef uint8_t half = constructor >> 4
    return <uint8_t>(1 << (half - WIDTH_1)) if WIDTH_1 <= half <= WIDTH_16 else 0


cdef inline uint8_t size_octets(uint8_t constructor) noexcept nogil:
    """Return the octets of the size of a variable, compound or array value; 0 for all others."""
    cdef uint8_t half = constructor >> 4
    return 0 if half < VARIABLE_1 else 4 if half & 1 else 1


cdef int recognise(const uint8_t* beginning, uint8_t held) noexcept nogil:
    """Recognise a section by its first octets: 00, and its descriptor as an integer of any type or as a name."""
    cdef uint8_t width, octets, i
    if held < 2:
        return UNKNOWN
    width = fixed_width(beginning[1])
    octets = size_octets(beginning[1])
    if width:
        if width > 8:
            return OTHER
        if held < 2 + width:
            return UNKNOWN
        for i in range(2, 1 + width):
            if beginning[i]:
                return OTHER
        return ANNOTATIONS if beginning[1 + width] == S_MESSAGE_ANNOTATIONS else OTHER
    if octets == 0:
        return OTHER
    if held < 2 + octets:
        return UNKNOWN
    for i in range(2, 1 + octets):
        if beginning[i]:
            return OTHER
    if beginning[1 + octets] != NAME_OCTETS:
        return OTHER
    if held < 2 + octets + NAME_OCTETS:
        return UNKNOWN
    return OTHER if memcmp(beginning + 2 + octets, b"amqp:message-annotations:map", NAME_OCTETS) else ANNOTATIONS


cdef inline void begin_value(AnnotationFilter* f, uint8_t constructor) noexcept nogil:
    """Count the value whose constructor has come."""
    if constructor == T_DESCRIBED:
        f.values += 1              # a descriptor and a value in place of one value
        return
    f.values -= 1
    f.left = fixed_width(constructor)
    f.size_left = size_octets(constructor)


cdef inline void take_octet(AnnotationFilter* f, uint8_t octet) noexcept nogil:
    """Count an octet of a section that is neither content of a value nor the beginning of a section."""
    if f.size_left:
        f.left = f.left << 8 | octet
        f.size_left -= 1
    else:
        begin_value(f, octet)


cdef size_t hold_octet(AnnotationFilter* f, uint8_t octet, uint8_t* out) noexcept nogil:
    """Add an octet to the beginning of a section; return the octets written, if it is recognised and kept."""
    cdef uint8_t held, i
    cdef int what
    f.beginning[f.held] = octet
    f.held += 1
    if f.held == 1:
        f.removes = False
        f.invalid = octet != T_DESCRIBED
        return finish_filter(f, out) if f.invalid else 0
    what = recognise(f.beginning, f.held)
    if what == UNKNOWN:
        return 0
    f.removes = what == ANNOTATIONS
    f.values = 2
    held = f.held
    i = 1
    while i < held:
        if f.left and not f.size_left:
            f.left -= 1
        else:
            take_octet(f, f.beginning[i])
        i += 1
    if f.removes:
        f.held = 0
        return 0
    return finish_filter(f, out)


cdef size_t filter_octets(AnnotationFilter* f, const uint8_t* data, size_t size, uint8_t* out) noexcept nogil:
    cdef const uint8_t* p = data
    cdef const uint8_t* end = data + size
    cdef uint8_t* w = out
    cdef size_t n
    while p < end:
        f.steps += 1
        if f.invalid:
            n = end - p
        elif f.left and not f.size_left:
            n = min(f.left, <uint64_t>(end - p))
            f.left -= n
        elif f.values or f.size_left:
            n = 1
            take_octet(f, p[0])
        elif f.held or end - p < 3 or p[0] != T_DESCRIBED or p[1] != T_SMALLULONG or p[2] == S_MESSAGE_ANNOTATIONS:
            w += hold_octet(f, p[0], w)
            p += 1
            continue
        else:
            n = 3                  # the usual beginning of another section
            f.removes = False
            f.values = 1
        if not f.removes:
            if w is not p:
                memmove(w, p, n)
            w += n
        p += n
    return w - out


cdef size_t finish_filter(AnnotationFilter* f, uint8_t* out) noexcept nogil:
    cdef size_t n = f.held
    memcpy(out, f.beginning, n)
    f.held = 0
    return n
