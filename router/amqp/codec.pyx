"""AMQP types (part 1): walking encoded values in place, and Python values for the cold path.

Python values: null None, booleans bool, integers int, floats float, binary bytes, string str, symbol `Symbol`, uuid
`uuid.UUID`, timestamp `Timestamp` (ms), char `Char`, list and array list, map dict, described `Described`.
"""
import struct
import uuid

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport SIZE_MAX, UINT32_MAX, int64_t, uint16_t
from libc.string cimport memcpy

from sluice.router.amqp.buffer cimport read32, read64, write32
from sluice.router.amqp.spec cimport (
    T_ARRAY32, T_BOOLEAN, T_CHAR, T_DESCRIBED, T_DOUBLE, T_FALSE, T_FLOAT, T_LIST0, T_LIST8, T_LIST32, T_MAP8, T_MAP32,
    T_NULL, T_STR8, T_STR32, T_SYM8, T_SYM32, T_BIN8, T_BIN32, T_TIMESTAMP, T_TRUE, T_UBYTE, T_UINT, T_UINT0,
    T_ULONG, T_ULONG0, T_USHORT, T_SMALLUINT, T_SMALLULONG, T_UUID, T_BYTE, T_SHORT, T_INT, T_SMALLINT, T_LONG,
    T_SMALLLONG, T_ARRAY8,
)

from sluice.router.amqp.errors import malformed, nested_too_deeply

cdef enum:
    MAX_EMPTY_ITEMS = 256           # most items of an array whose items have no octets
    MAX_DEPTH = 32             # most nested values; deeper nesting is an attack, not a message

# Octets behind the constructor, by its upper half (part 1, figure 1.4): the fixed width, or the negated width of the
# size field of variable and compound types. 99: no such type.
cdef int[16] WIDTH = [99, 99, 99, 99, 0, 1, 2, 4, 8, 16, -1, -4, -1, -4, -1, -4]

# Constructors of decimals, by the number of their octets (part 1, 1.6.12 to 1.6.14).
DECIMAL_CODES = {4: 0x74, 8: 0x84, 16: 0x94}
cdef frozenset DECIMALS = frozenset(DECIMAL_CODES.values())

cdef extern from *:
    """
    #include <string.h>
    static const struct { const char *name; unsigned char code; } sluice_symbolic[] = {
        {"amqp:open:list", 0x10}, {"amqp:begin:list", 0x11}, {"amqp:attach:list", 0x12}, {"amqp:flow:list", 0x13},
        {"amqp:transfer:list", 0x14}, {"amqp:disposition:list", 0x15}, {"amqp:detach:list", 0x16},
        {"amqp:end:list", 0x17}, {"amqp:close:list", 0x18}, {"amqp:error:list", 0x1d}, {"amqp:received:list", 0x23},
        {"amqp:accepted:list", 0x24}, {"amqp:rejected:list", 0x25}, {"amqp:released:list", 0x26},
        {"amqp:modified:list", 0x27}, {"amqp:source:list", 0x28}, {"amqp:target:list", 0x29},
        {"amqp:coordinator:list", 0x30}, {"amqp:declare:list", 0x31}, {"amqp:discharge:list", 0x32},
        {"amqp:declared:list", 0x33}, {"amqp:transactional-state:list", 0x34},
        {"amqp:sasl-mechanisms:list", 0x40}, {"amqp:sasl-init:list", 0x41}, {"amqp:sasl-challenge:list", 0x42},
        {"amqp:sasl-response:list", 0x43}, {"amqp:sasl-outcome:list", 0x44},
        {"amqp:header:list", 0x70}, {"amqp:delivery-annotations:map", 0x71}, {"amqp:message-annotations:map", 0x72},
        {"amqp:properties:list", 0x73}, {"amqp:application-properties:map", 0x74}, {"amqp:data:binary", 0x75},
        {"amqp:amqp-sequence:list", 0x76}, {"amqp:amqp-value:*", 0x77}, {"amqp:footer:map", 0x78},
    };
    enum { SLUICE_SYMBOLIC = sizeof sluice_symbolic / sizeof *sluice_symbolic };
    static inline int sluice_symbolic_code(const unsigned char *text, size_t size) {
        for (int i = 0; i < SLUICE_SYMBOLIC; i++)
            if (strlen(sluice_symbolic[i].name) == size && !memcmp(sluice_symbolic[i].name, text, size))
                return sluice_symbolic[i].code;
        return -1;
    }
    """
    int sluice_symbolic_code(const uint8_t* text, size_t size) nogil


cdef const uint8_t* skip_value(const uint8_t* p, const uint8_t* end) noexcept nogil:
    cdef int width
    cdef uint64_t size
    cdef int depth = 0
    cdef int pending = 1       # values still to skip; a described value adds its descriptor
    while pending:
        if p >= end:
            return NULL
        if p[0] == T_DESCRIBED:
            depth += 1
            if depth > MAX_DEPTH:
                return NULL
            pending += 1
            p += 1
            continue
        width = WIDTH[p[0] >> 4]
        p += 1
        if width >= 0:
            if width == 99 or end - p < width:
                return NULL
            p += width
        elif width == -1:
            if end - p < 1:
                return NULL
            size = p[0]
            p += 1
            if <uint64_t>(end - p) < size:
                return NULL
            p += size
        else:
            if end - p < 4:
                return NULL
            size = read32(p)
            p += 4
            if <uint64_t>(end - p) < size:
                return NULL
            p += size
        pending -= 1
    return p


cdef size_t octets_missing(const uint8_t* p, const uint8_t* end) noexcept nogil:
    cdef int width
    cdef size_t size
    cdef int depth = 0
    cdef size_t pending = 1    # values still to skip, as in skip_value; each has at least one octet
    while pending:
        if p >= end:
            return pending
        if p[0] == T_DESCRIBED:
            depth += 1
            if depth > MAX_DEPTH:
                return SIZE_MAX
            pending += 1
            p += 1
            continue
        width = WIDTH[p[0] >> 4]
        p += 1
        pending -= 1
        if width >= 0:
            if width == 99:
                return SIZE_MAX
            size = width
        elif width == -1:
            if end - p < 1:
                return 1 + pending
            size = p[0]
            p += 1
        else:
            if end - p < 4:
                return 4 - (end - p) + pending
            size = read32(p)
            p += 4
        if <size_t>(end - p) < size:
            return size - (end - p) + pending
        p += size
    return 0


cdef const uint8_t* open_described(const uint8_t* p, const uint8_t* end, uint64_t* code) noexcept nogil:
    cdef Slice text
    cdef int known
    if end - p < 3 or p[0] != T_DESCRIBED:
        return NULL
    if p[1] == T_SMALLULONG:
        code[0] = p[2]
        return p + 3
    if p[1] == T_ULONG:
        if end - p < 10:
            return NULL
        code[0] = read64(p + 2)
        return p + 10
    if p[1] == T_SYM8 or p[1] == T_SYM32:
        p = open_variable(p + 1, end, &text)
        if p is NULL:
            return NULL
        known = sluice_symbolic_code(text.data, text.size)
        code[0] = known if known >= 0 else <uint64_t>-1
        return p
    return NULL


cdef list split_fields(const uint8_t* p, const uint8_t* end):
    """Return the items of the list at p as encoded octets, in order. Raises RemoteError (amqp:decode-error)."""
    cdef uint32_t count, i
    cdef const uint8_t* stop
    cdef const uint8_t* q
    cdef list out = []
    q = open_list(p, end, &count, &stop)
    if q is NULL:
        raise malformed("a value is not a list, or is longer than its frame")
    for i in range(count):
        p = skip_value(q, stop)
        if p is NULL:
            raise malformed(f"item {i} of a list is malformed")
        out.append(PyBytes_FromStringAndSize(<const char*>q, p - q))
        q = p
    if q != stop:
        raise malformed("extra octets follow the items of a list")
    return out


# ---------------------------------------------------------------------------------------------------------------------
# Python values

class Symbol(str):
    """AMQP symbol (ASCII)."""
    __slots__ = ()


class Timestamp(int):
    """Time in ms since the Unix epoch."""
    __slots__ = ()


class Char(str):
    """Single Unicode character."""
    __slots__ = ()


class DecimalOctets(bytes):
    """Octets of a decimal32, decimal64 or decimal128, which are relayed and not computed with."""
    __slots__ = ()


class Described:
    """Described value: descriptor and value."""
    __slots__ = ("descriptor", "value")

    def __init__(self, descriptor, value):
        self.descriptor = descriptor
        self.value = value

    def __eq__(self, other):
        return isinstance(other, Described) and (self.descriptor, self.value) == (other.descriptor, other.value)

    def __hash__(self):
        return hash((self.descriptor, repr(self.value)))

    def __repr__(self):
        return f"Described({self.descriptor!r}, {self.value!r})"


def decode(bytes data not None, Py_ssize_t offset=0):
    """Return (value, offset behind it). Raises RemoteError (amqp:decode-error)."""
    if offset < 0 or offset > len(data):
        raise malformed("a value begins outside of the data")
    value = _decode(data, &offset, len(data), 0)
    return value, offset


def decode_one(bytes data not None):
    """Return the only value in `data`. Raises RemoteError."""
    cdef Py_ssize_t at = 0
    value = _decode(data, &at, len(data), 0)
    if at != len(data):
        raise malformed("extra octets follow a value", at)
    return value


def fields(bytes data not None):
    """Return the items of an encoded list, each still encoded. Raises RemoteError."""
    cdef const uint8_t* p = data
    return split_fields(p, p + len(data))


def described_list(bytes data not None):
    """Return (numeric descriptor, encoded items) of a described list, e.g. a terminus or a delivery state. Raises
    RemoteError."""
    cdef const uint8_t* p = data
    cdef const uint8_t* q
    cdef uint64_t code
    q = open_described(p, p + len(data), &code)
    if q is NULL:
        raise malformed("a value is not a described list")
    return code, split_fields(q, p + len(data))


cdef inline uint64_t big_endian(const uint8_t* p, Py_ssize_t size) noexcept:
    """Read an unsigned integer of at most eight octets."""
    cdef uint64_t value = 0
    cdef Py_ssize_t i
    for i in range(size):
        value = value << 8 | p[i]
    return value


cdef inline int64_t signed_big_endian(const uint8_t* p, Py_ssize_t size) noexcept:
    """Read a signed integer of one to eight octets."""
    cdef int spare = 64 - 8 * <int>size
    return <int64_t>(big_endian(p, size) << spare) >> spare


cdef object _decode(bytes data, Py_ssize_t* at, Py_ssize_t end, int depth):
    """Decode the value at an offset, and advance the offset behind it."""
    cdef uint8_t code
    if depth > MAX_DEPTH:
        raise nested_too_deeply(at[0])
    if at[0] >= end:
        raise malformed("a value is missing", at[0])
    code = (<const uint8_t*>data)[at[0]]
    at[0] += 1
    if code == T_DESCRIBED:
        descriptor = _decode(data, at, end, depth + 1)
        return Described(descriptor, _decode(data, at, end, depth + 1))
    return _decode_body(data, at, end, code, depth)


cdef object _decode_body(bytes data, Py_ssize_t* at, Py_ssize_t end, uint8_t code, int depth):
    """Decode the octets behind a constructor."""
    cdef const uint8_t* p = data
    cdef int width = WIDTH[code >> 4]
    cdef uint64_t size
    cdef Py_ssize_t head = at[0] - 1
    cdef Py_ssize_t start
    if width == 99:
        raise malformed(f"unknown type 0x{code:02x}", head)
    if width < 0:
        if at[0] - width > end:
            raise malformed("the size of a value is missing", head)
        size = big_endian(p + at[0], -width)
        at[0] -= width
    else:
        size = width
    if size > <uint64_t>(end - at[0]):
        raise malformed("a value is longer than its frame", head)
    start = at[0]
    at[0] += size
    if code >= T_LIST8:
        return _decode_compound(data, start, at[0], code, -width, depth)
    return _decode_simple(p + start, size, code, head)


cdef object _decode_simple(const uint8_t* p, Py_ssize_t size, uint8_t code, Py_ssize_t head):
    if code == T_NULL:
        return None
    if code == T_TRUE or code == T_FALSE:
        return code == T_TRUE
    if code == T_BOOLEAN:
        return p[0] != 0
    if code == T_UINT0 or code == T_ULONG0:
        return 0
    if code == T_LIST0:
        return []
    if code in (T_UBYTE, T_SMALLUINT, T_SMALLULONG, T_USHORT, T_UINT, T_ULONG):
        return big_endian(p, size)
    if code in (T_BYTE, T_SMALLINT, T_SMALLLONG, T_SHORT, T_INT, T_LONG):
        return signed_big_endian(p, size)
    try:
        if code == T_STR8 or code == T_STR32:
            return p[:size].decode("utf-8")
        if code == T_SYM8 or code == T_SYM32:
            return Symbol(p[:size].decode("ascii"))
        if code == T_CHAR:
            return Char(p[:size].decode("utf-32-be"))
    except UnicodeDecodeError as error:
        raise malformed(f"text is not valid: {error.reason}", head) from None
    if code == T_TIMESTAMP:
        return Timestamp(signed_big_endian(p, size))
    raw = PyBytes_FromStringAndSize(<const char*>p, size)
    if code == T_FLOAT:
        return struct.unpack(">f", raw)[0]
    if code == T_DOUBLE:
        return struct.unpack(">d", raw)[0]
    if code == T_UUID:
        return uuid.UUID(bytes=raw)
    if code == T_BIN8 or code == T_BIN32:
        return raw
    if code in DECIMALS:
        return DecimalOctets(raw)
    if 0x74 <= code <= 0x94:
        return raw
    raise malformed(f"unknown type 0x{code:02x}", head)


cdef object _decode_compound(bytes data, Py_ssize_t at, Py_ssize_t end, uint8_t code, int width, int depth):
    cdef Py_ssize_t count
    cdef list items = []
    if end - at < width:
        raise malformed("a compound value has no count", at)
    count = big_endian((<const uint8_t*>data) + at, width)
    at += width
    if code == T_ARRAY8 or code == T_ARRAY32:
        return _decode_array(data, at, end, count, depth)
    if count > end - at:
        raise malformed("a compound value claims more items than it has octets", at)
    for _ in range(count):
        items.append(_decode(data, &at, end, depth + 1))
    if at != end:
        raise malformed("extra octets follow the items of a compound value", at)
    if code == T_LIST8 or code == T_LIST32:
        return items
    if code != T_MAP8 and code != T_MAP32:
        raise malformed(f"unknown type 0x{code:02x}", at)
    if count % 2:
        raise malformed("a map has an odd number of items", at)
    try:
        return dict(zip(items[::2], items[1::2], strict=True))
    except TypeError:
        raise malformed("a map has a key of a compound type", at) from None


cdef list _decode_array(bytes data, Py_ssize_t at, Py_ssize_t end, Py_ssize_t count, int depth):
    cdef uint8_t code
    cdef list items = []
    descriptor = None
    described = False
    if count == 0 and at == end:
        return items
    if at < end and data[at] == T_DESCRIBED:
        described = True
        at += 1
        descriptor = _decode(data, &at, end, depth + 1)
    if at >= end:
        raise malformed("an array has no constructor", at)
    code = data[at]
    at += 1
    # For items without octets (null, true, list0 …) the count would be the only bound.
    if count > (end - at if WIDTH[code >> 4] else MAX_EMPTY_ITEMS):
        raise malformed("a compound value claims more items than it has octets", at)
    if depth >= MAX_DEPTH:
        raise nested_too_deeply(at)
    for _ in range(count):
        value = _decode_body(data, &at, end, code, depth + 1)
        items.append(Described(descriptor, value) if described else value)
    if at != end:
        raise malformed("extra octets follow the items of an array", at)
    return items


# ---------------------------------------------------------------------------------------------------------------------
# Encoding of the few values that the router itself sends

cdef bytes variable(uint8_t small, uint8_t large, bytes raw):
    """Encode octets behind the constructor and the size that fit them. Raises OverflowError."""
    cdef Py_ssize_t size = len(raw)
    cdef int head = 2 if size < 256 else 5
    cdef bytes made
    cdef uint8_t* w
    if size > UINT32_MAX:
        raise OverflowError(f"{size} octets are too many for a value")
    made = PyBytes_FromStringAndSize(NULL, head + size)
    w = <uint8_t*>made
    if head == 2:
        w[0] = small
        w[1] = <uint8_t>size
    else:
        w[0] = large
        write32(w + 1, <uint32_t>size)
    memcpy(w + head, <const uint8_t*>raw, size)
    return made


def encode_string(text):
    return variable(T_STR8, T_STR32, text.encode())


def encode_symbol(text):
    return variable(T_SYM8, T_SYM32, text.encode("ascii"))


def encode_binary(bytes raw not None):
    return variable(T_BIN8, T_BIN32, raw)


def encode_uint(uint32_t value):
    cdef uint8_t[5] room
    if value == 0:
        return b"\x43"
    if value < 256:
        room[0] = T_SMALLUINT
        room[1] = <uint8_t>value
        return PyBytes_FromStringAndSize(<const char*>room, 2)
    room[0] = T_UINT
    write32(room + 1, value)
    return PyBytes_FromStringAndSize(<const char*>room, 5)


def encode_ulong(uint64_t value):
    cdef uint8_t[9] room
    if value == 0:
        return b"\x44"
    if value < 256:
        room[0] = T_SMALLULONG
        room[1] = <uint8_t>value
        return PyBytes_FromStringAndSize(<const char*>room, 2)
    room[0] = T_ULONG
    write32(room + 1, <uint32_t>(value >> 32))
    write32(room + 5, <uint32_t>value)
    return PyBytes_FromStringAndSize(<const char*>room, 9)


def encode_ushort(uint16_t value):
    cdef uint8_t[3] room
    room[0] = T_USHORT
    room[1] = <uint8_t>(value >> 8)
    room[2] = <uint8_t>value
    return PyBytes_FromStringAndSize(<const char*>room, 3)


def encode_ubyte(uint8_t value):
    cdef uint8_t[2] room
    room[0] = T_UBYTE
    room[1] = value
    return PyBytes_FromStringAndSize(<const char*>room, 2)


def encode_int(value):
    return b"\x54" + value.to_bytes(1, "big", signed=True) if -128 <= value < 128 \
        else b"\x71" + value.to_bytes(4, "big", signed=True)


def encode_list(items):
    """Encode a list of encoded items. Trailing nulls are omitted by the caller where allowed."""
    if not items:
        return b"\x45"
    return _compound(b"", T_LIST8, T_LIST32, items)


def encode_map(items):
    """Encode a map of encoded keys and values, alternately."""
    return _compound(b"", T_MAP8, T_MAP32, items)


cdef bytes _compound(bytes before, uint8_t small, uint8_t large, items):
    """Encode a compound value of encoded items. before: octets in front of it. Raises OverflowError."""
    cdef list parts = items if type(items) is list else list(items)
    cdef Py_ssize_t count = len(parts)
    cdef Py_ssize_t size = 0
    cdef int head
    cdef bytes part, made
    cdef uint8_t* w
    for part in parts:
        size += len(part)
    if size + 4 > UINT32_MAX:
        raise OverflowError(f"{size} octets are too many for a value")
    head = 3 if size < 255 and count < 256 else 9
    made = PyBytes_FromStringAndSize(NULL, len(before) + head + size)
    w = <uint8_t*>made
    memcpy(w, <const uint8_t*>before, len(before))
    w += len(before)
    if head == 3:
        w[0] = small
        w[1] = <uint8_t>(size + 1)
        w[2] = <uint8_t>count
    else:
        w[0] = large
        write32(w + 1, <uint32_t>(size + 4))
        write32(w + 5, <uint32_t>count)
    w += head
    for part in parts:
        memcpy(w, <const uint8_t*>part, len(part))
        w += len(part)
    return made


def encode_symbols(names):
    """Encode an array of symbols."""
    body = b"".join(len(name).to_bytes(4, "big") + name.encode("ascii") for name in names)
    return b"\xf0" + (len(body) + 5).to_bytes(4, "big") + len(names).to_bytes(4, "big") + b"\xb3" + body


def encode_described(uint8_t code, items):
    """Encode a described list with a numeric descriptor below 256."""
    cdef uint8_t[4] room
    room[0] = T_DESCRIBED
    room[1] = T_SMALLULONG
    room[2] = code
    room[3] = T_LIST0
    if not items:
        return PyBytes_FromStringAndSize(<const char*>room, 4)
    return _compound(PyBytes_FromStringAndSize(<const char*>room, 3), T_LIST8, T_LIST32, items)


def encode_value(value):
    """Encode any Python value that `decode` returns. Integers become int if they fit in 32 bits, otherwise long or
    ulong."""
    if value is None:
        return b"\x40"
    if isinstance(value, bool):
        return b"\x41" if value else b"\x42"
    if isinstance(value, Symbol):
        return encode_symbol(value)
    if isinstance(value, Char):
        return bytes((T_CHAR,)) + value.encode("utf-32-be")
    if isinstance(value, str):
        return encode_string(value)
    if isinstance(value, DecimalOctets):
        return bytes((DECIMAL_CODES[len(value)],)) + value
    if isinstance(value, bytes):
        return encode_binary(value)
    if isinstance(value, uuid.UUID):
        return bytes((T_UUID,)) + value.bytes
    if isinstance(value, Timestamp):
        return bytes((T_TIMESTAMP,)) + value.to_bytes(8, "big", signed=True)
    if isinstance(value, Described):
        return b"\x00" + (encode_ulong(value.descriptor) if isinstance(value.descriptor, int)
                          else encode_value(value.descriptor)) + encode_value(value.value)
    if isinstance(value, int):
        if -2**31 <= value < 2**31:
            return encode_int(value)
        return b"\x81" + value.to_bytes(8, "big", signed=True) if value < 2**63 else encode_ulong(value)
    if isinstance(value, float):
        return b"\x82" + struct.pack(">d", value)
    if isinstance(value, (list, tuple)):
        return encode_list([encode_value(item) for item in value])
    if isinstance(value, dict):
        return encode_map([encode_value(item) for pair in value.items() for item in pair])
    raise TypeError(f"no AMQP encoding for {type(value).__name__}")


def encode_error(condition, description=None, bytes info=None):
    """Encode an error (AMQP 1.0 part 2, 2.8.14)."""
    items = [encode_symbol(condition)]
    if description is not None or info is not None:
        items.append(encode_string(description) if description is not None else b"\x40")
    if info is not None:
        items.append(info)
    return encode_described(0x1D, items)
