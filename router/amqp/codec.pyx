"""AMQP types (part 1): walking encoded values in place, and Python values for the cold path.

Python values: null None, booleans bool, integers int, floats float, binary bytes, string str, symbol `Symbol`, uuid
`uuid.UUID`, timestamp `Timestamp` (ms), char `Char`, list and array list, map dict, described `Described`.
"""
import struct
import uuid

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport SIZE_MAX

from sluice.router.amqp.buffer cimport read32, read64
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
    return _decode(data, offset, len(data), 0)


def decode_one(bytes data not None):
    """Return the only value in `data`. Raises RemoteError."""
    value, end = _decode(data, 0, len(data), 0)
    if end != len(data):
        raise malformed("extra octets follow a value", end)
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


cdef tuple _decode(bytes data, Py_ssize_t at, Py_ssize_t end, int depth):
    cdef uint8_t code
    if depth > MAX_DEPTH:
        raise nested_too_deeply(at)
    if at >= end:
        raise malformed("a value is missing", at)
    code = data[at]
    at += 1
    if code == T_DESCRIBED:
        descriptor, at = _decode(data, at, end, depth + 1)
        value, at = _decode(data, at, end, depth + 1)
        return Described(descriptor, value), at
    return _decode_body(data, at, end, code, depth)


cdef tuple _decode_body(bytes data, Py_ssize_t at, Py_ssize_t end, uint8_t code, int depth):
    """Decode the octets behind a constructor."""
    cdef int width
    cdef Py_ssize_t size, head = at - 1
    width = WIDTH[code >> 4]
    if width == 99:
        raise malformed(f"unknown type 0x{code:02x}", head)
    if width < 0:
        if at - width > end:
            raise malformed("the size of a value is missing", head)
        size = int.from_bytes(data[at:at - width], "big")
        at += -width
    else:
        size = width
    if size > end - at:
        raise malformed("a value is longer than its frame", head)
    if code >= T_LIST8:
        return _decode_compound(data, at, at + size, code, -width, depth), at + size
    return _decode_simple(data[at:at + size], code, head), at + size


cdef object _decode_simple(bytes raw, uint8_t code, Py_ssize_t head):
    if code == T_NULL:
        return None
    if code == T_TRUE or code == T_FALSE:
        return code == T_TRUE
    if code == T_BOOLEAN:
        return raw[0] != 0
    if code == T_UINT0 or code == T_ULONG0:
        return 0
    if code == T_LIST0:
        return []
    if code in (T_UBYTE, T_SMALLUINT, T_SMALLULONG, T_USHORT, T_UINT, T_ULONG):
        return int.from_bytes(raw, "big")
    if code in (T_BYTE, T_SMALLINT, T_SMALLLONG, T_SHORT, T_INT, T_LONG):
        return int.from_bytes(raw, "big", signed=True)
    if code == T_TIMESTAMP:
        return Timestamp(int.from_bytes(raw, "big", signed=True))
    if code == T_FLOAT:
        return struct.unpack(">f", raw)[0]
    if code == T_DOUBLE:
        return struct.unpack(">d", raw)[0]
    if code == T_UUID:
        return uuid.UUID(bytes=raw)
    if code == T_BIN8 or code == T_BIN32:
        return raw
    try:
        if code == T_STR8 or code == T_STR32:
            return raw.decode()
        if code == T_SYM8 or code == T_SYM32:
            return Symbol(raw.decode("ascii"))
        if code == T_CHAR:
            return Char(raw.decode("utf-32-be"))
    except UnicodeDecodeError as error:
        raise malformed(f"text is not valid: {error.reason}", head) from None
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
    count = int.from_bytes(data[at:at + width], "big")
    at += width
    if code == T_ARRAY8 or code == T_ARRAY32:
        return _decode_array(data, at, end, count, depth)
    if count > end - at:
        raise malformed("a compound value claims more items than it has octets", at)
    for _ in range(count):
        value, at = _decode(data, at, end, depth + 1)
        items.append(value)
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
        descriptor, at = _decode(data, at + 1, end, depth + 1)
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
        value, at = _decode_body(data, at, end, code, depth + 1)
        items.append(Described(descriptor, value) if described else value)
    if at != end:
        raise malformed("extra octets follow the items of an array", at)
    return items


# ---------------------------------------------------------------------------------------------------------------------
# Encoding of the few values that the router itself sends

def encode_string(text):
    raw = text.encode()
    return (b"\xa1" + bytes((len(raw),)) if len(raw) < 256 else b"\xb1" + len(raw).to_bytes(4, "big")) + raw


def encode_symbol(text):
    raw = text.encode("ascii")
    return (b"\xa3" + bytes((len(raw),)) if len(raw) < 256 else b"\xb3" + len(raw).to_bytes(4, "big")) + raw


def encode_binary(bytes raw not None):
    return (b"\xa0" + bytes((len(raw),)) if len(raw) < 256 else b"\xb0" + len(raw).to_bytes(4, "big")) + raw


def encode_uint(value):
    if value == 0:
        return b"\x43"
    return bytes((T_SMALLUINT, value)) if value < 256 else b"\x70" + value.to_bytes(4, "big")


def encode_ulong(value):
    if value == 0:
        return b"\x44"
    return bytes((T_SMALLULONG, value)) if value < 256 else b"\x80" + value.to_bytes(8, "big")


def encode_ushort(value):
    return b"\x60" + value.to_bytes(2, "big")


def encode_ubyte(value):
    return bytes((T_UBYTE, value))


def encode_int(value):
    return b"\x54" + value.to_bytes(1, "big", signed=True) if -128 <= value < 128 \
        else b"\x71" + value.to_bytes(4, "big", signed=True)


def encode_list(items):
    """Encode a list of encoded items. Trailing nulls are omitted by the caller where allowed."""
    if not items:
        return b"\x45"
    return _compound(b"\xc0", b"\xd0", items)


def encode_map(items):
    """Encode a map of encoded keys and values, alternately."""
    return _compound(b"\xc1", b"\xd1", items)


cdef bytes _compound(bytes small, bytes large, items):
    body = b"".join(items)
    if len(body) < 255 and len(items) < 256:
        return small + bytes((len(body) + 1, len(items))) + body
    return large + (len(body) + 4).to_bytes(4, "big") + len(items).to_bytes(4, "big") + body


def encode_symbols(names):
    """Encode an array of symbols."""
    body = b"".join(len(name).to_bytes(4, "big") + name.encode("ascii") for name in names)
    return b"\xf0" + (len(body) + 5).to_bytes(4, "big") + len(names).to_bytes(4, "big") + b"\xb3" + body


def encode_described(code, items):
    """Encode a described list with a numeric descriptor below 256."""
    return bytes((0, T_SMALLULONG, code)) + encode_list(items)


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
