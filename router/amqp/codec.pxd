"""AMQP types (part 1): walking encoded values in place, and Python values for the cold path."""
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from sluice.router.amqp.buffer cimport read32, read64
from sluice.router.amqp.spec cimport (
    T_BIN8, T_BIN32, T_BOOLEAN, T_FALSE, T_LIST0, T_LIST8, T_LIST32, T_MAP8, T_MAP32, T_SMALLUINT, T_SMALLULONG, T_STR8,
    T_STR32, T_SYM8, T_SYM32, T_TRUE, T_UBYTE, T_UINT, T_UINT0, T_ULONG, T_ULONG0, T_USHORT,
)

# Octets of an encoded value inside a frame or message. data: borrowed; NULL when absent.
cdef struct Slice:
    const uint8_t* data
    size_t size

# Return the end of the value at p, or NULL if the value is malformed or passes `end`. The nesting of descriptors is
# bounded.
cdef const uint8_t* skip_value(const uint8_t* p, const uint8_t* end) noexcept nogil
# Return the least number of octets behind `end` with which the value at p may be complete. 0: it is complete.
# SIZE_MAX: it is malformed.
cdef size_t octets_missing(const uint8_t* p, const uint8_t* end) noexcept nogil
# Read the numeric descriptor of the described value at p; return the position behind it, or NULL if there is none. A
# symbolic descriptor of the specification ("amqp:accepted:list") is converted to its number.
cdef const uint8_t* open_described(const uint8_t* p, const uint8_t* end, uint64_t* code) noexcept nogil

cdef list split_fields(const uint8_t* p, const uint8_t* end)


cdef inline const uint8_t* open_compound(const uint8_t* p, const uint8_t* end, uint8_t small, uint8_t large,
                                         uint32_t* count, const uint8_t** stop) noexcept nogil:
    """Read the head of a list or map: return the first item, with the number of items and the end of the last. NULL:
    malformed."""
    cdef uint32_t size
    if end - p < 1:
        return NULL
    if p[0] == small:
        if end - p < 3 or p[1] < 1 or end - p - 2 < p[1]:
            return NULL
        stop[0] = p + 2 + p[1]
        count[0] = p[2]
        p += 3
    elif p[0] == large:
        if end - p < 9:
            return NULL
        size = read32(p + 1)
        if size < 4 or <uint64_t>(end - p - 5) < size:
            return NULL
        stop[0] = p + 5 + size
        count[0] = read32(p + 5)
        p += 9
    else:
        return NULL
    # Every item has at least its constructor. An impossible count is refused before any loop over it.
    if count[0] > stop[0] - p:
        return NULL
    return p


cdef inline const uint8_t* open_list(const uint8_t* p, const uint8_t* end, uint32_t* count,
                                     const uint8_t** stop) noexcept nogil:
    """Read the head of the list at p: return the first item, with the number of items and the end of the last. NULL:
    malformed."""
    if p < end and p[0] == T_LIST0:
        count[0] = 0
        stop[0] = p + 1
        return p + 1
    return open_compound(p, end, T_LIST8, T_LIST32, count, stop)


cdef inline const uint8_t* open_map(const uint8_t* p, const uint8_t* end, uint32_t* count,
                                    const uint8_t** stop) noexcept nogil:
    """Read the head of the map at p; the count includes keys and values. NULL: malformed."""
    return open_compound(p, end, T_MAP8, T_MAP32, count, stop)


cdef inline const uint8_t* open_variable(const uint8_t* p, const uint8_t* end, Slice* out) noexcept nogil:
    """Read the text or octets of a string, symbol or binary. NULL: another type, or malformed."""
    cdef uint8_t code
    if end - p < 2:
        return NULL
    code = p[0]
    if code == T_STR8 or code == T_SYM8 or code == T_BIN8:
        out.size = p[1]
        out.data = p + 2
    elif code == T_STR32 or code == T_SYM32 or code == T_BIN32:
        if end - p < 5:
            return NULL
        out.size = read32(p + 1)
        out.data = p + 5
    else:
        return NULL
    if <size_t>(end - out.data) < out.size:
        return NULL
    return out.data + out.size


cdef inline const uint8_t* read_unsigned(const uint8_t* p, const uint8_t* end, uint64_t* value) noexcept nogil:
    """Read an unsigned integer of any width, or a boolean. NULL: another type, or malformed."""
    cdef uint8_t code
    cdef ptrdiff_t left = end - p
    if left < 1:
        return NULL
    code = p[0]
    if code == T_UINT0 or code == T_ULONG0 or code == T_FALSE:
        value[0] = 0
        return p + 1
    if code == T_TRUE:
        value[0] = 1
        return p + 1
    if code == T_SMALLUINT or code == T_SMALLULONG or code == T_UBYTE or code == T_BOOLEAN:
        if left < 2:
            return NULL
        value[0] = p[1]
        return p + 2
    if code == T_UINT:
        if left < 5:
            return NULL
        value[0] = read32(p + 1)
        return p + 5
    if code == T_USHORT:
        if left < 3:
            return NULL
        value[0] = (<uint64_t>p[1] << 8) | p[2]
        return p + 3
    if code == T_ULONG:
        if left < 9:
            return NULL
        value[0] = read64(p + 1)
        return p + 9
    return NULL
