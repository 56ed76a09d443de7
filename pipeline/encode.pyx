"""Encoder from rows to messages: columns of Arrow as the octets of messages, ready to be sent.

No Python object is created for a value, except for ids that are no strings. Needs no pyarrow: it reads the buffers of
arrays.
"""
from cpython.memoryview cimport PyMemoryView_FromMemory
from cpython.buffer cimport PyBUF_READ
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.string cimport memcmp, memcpy, memset

from sluice.router.amqp.buffer cimport write32
from sluice.pipeline.bulk_sender cimport MessageBatch
from sluice.router.amqp.spec cimport (
    S_HEADER, S_MESSAGE_ANNOTATIONS, S_PROPERTIES, T_BIN32, T_BIN8, T_DOUBLE, T_FALSE, T_INT, T_LIST32, T_LONG, T_MAP32,
    T_NULL, T_SMALLINT, T_SMALLUINT, T_SMALLULONG, T_STR32, T_STR8, T_SYM32, T_SYM8, T_TIMESTAMP, T_TRUE, T_UBYTE,
    T_UINT, T_ULONG,
)

import hashlib
import uuid

from sluice.router.amqp import codec

cdef enum:
    S_APPLICATION_PROPERTIES = 0x74
    S_DATA = 0x75
    S_VALUE = 0x77
    HEADER_FIELDS = 5
    PROPERTY_FIELDS = 13
    ORDINAL_ROOM = 24          # octets of "/" and a number
    DIGEST_OCTETS = 8          # a copy of a row with equal ordinal and other values is taken for it once in 2**64

# AMQP type of a field.
cdef enum FieldKind:
    IDENTITY, STRING, SYMBOL, BINARY, TIME, UINT, FLAG, OCTET

# Storage of a column in Arrow.
cdef enum ArrowStorage:
    OCTETS, NUMBERS, FLOATS, FLAGS

# Fields of the header and of the properties, in the order of AMQP 1.0.
HEADER = (("durable", FLAG), ("priority", OCTET), ("ttl_ms", UINT))
PROPERTIES = (
    ("message_id", IDENTITY), ("user_id", BINARY), ("to", STRING), ("subject", STRING), ("reply_to", STRING),
    ("correlation_id", IDENTITY), ("content_type", SYMBOL), ("content_encoding", SYMBOL),
    ("absolute_expiry_time", TIME), ("creation_time", TIME), ("group_id", STRING), ("group_sequence", UINT),
    ("reply_to_group_id", STRING),
)
# Entries by which brokers recognize a message that they have: section and key, by the broker's name.
DUPLICATE_IDS = {
    "artemis": (S_APPLICATION_PROPERTIES, b"_AMQ_DUPL_ID"),
    "rabbitmq": (S_MESSAGE_ANNOTATIONS, b"x-deduplication-header"),
}
STORED = {"string": OCTETS, "binary": OCTETS, "int64": NUMBERS, "double": FLOATS, "bool": FLAGS}


cdef const uint8_t* view_pointer(const uint8_t[::1] view) noexcept:
    return &view[0] if view is not None and view.shape[0] else NULL


cdef class ColumnReader:
    """Values of one column, of the types in STORED. The column owns its buffers."""
    cdef str name
    cdef FieldKind kind
    cdef ArrowStorage stored
    cdef Py_ssize_t field      # index in its section
    cdef Py_ssize_t offset     # index of the first row
    cdef const uint8_t[::1] valid_view
    cdef const uint8_t[::1] first_view
    cdef const uint8_t[::1] second_view
    cdef const uint8_t* valid  # bitmap; NULL: no value is null
    cdef const uint8_t* first  # ends of octets, numbers, or bits
    cdef const uint8_t* second  # octets

    def __init__(self, str name, array, FieldKind kind=STRING, Py_ssize_t field=0):
        buffers = [None if each is None or not each.size else memoryview(each).cast("B") for each in array.buffers()]
        self.name = name
        self.kind = kind
        self.stored = STORED[str(array.type)]
        self.field = field
        self.offset = array.offset
        self.valid_view = buffers[0] if array.null_count else None
        self.first_view = buffers[1]
        self.second_view = buffers[2] if self.stored == OCTETS else None
        self.valid = view_pointer(self.valid_view)
        self.first = view_pointer(self.first_view)
        self.second = view_pointer(self.second_view)

    cdef bint given(self, Py_ssize_t row) noexcept:
        """Return True if the value is not null."""
        row += self.offset
        return self.valid is NULL or self.valid[row >> 3] >> (row & 7) & 1

    cdef const uint8_t* octets(self, Py_ssize_t row, size_t* size) noexcept:
        cdef const int32_t* ends = <const int32_t*>self.first + self.offset + row
        size[0] = ends[1] - ends[0]
        return self.second + ends[0]

    cdef int64_t number(self, Py_ssize_t row) noexcept:
        return (<const int64_t*>self.first)[self.offset + row]

    cdef uint64_t bits(self, Py_ssize_t row) noexcept:
        """Return the bits of a double."""
        return (<const uint64_t*>self.first)[self.offset + row]

    cdef bint flag(self, Py_ssize_t row) noexcept:
        row += self.offset
        return self.first[row >> 3] >> (row & 7) & 1

    cdef str text(self, Py_ssize_t row):
        cdef size_t size
        cdef const uint8_t* data = self.octets(row, &size)
        return data[:size].decode()


cdef class MapColumn:
    """Column of maps whose keys are text."""
    cdef str name
    cdef Py_ssize_t offset
    cdef const uint8_t[::1] valid_view
    cdef const uint8_t[::1] ends_view
    cdef const uint8_t* valid
    cdef const int32_t* ends
    cdef ColumnReader keys
    cdef ColumnReader values

    def __init__(self, str name, array):
        buffers = array.buffers()
        self.name = name
        self.offset = array.offset
        self.valid_view = memoryview(buffers[0]).cast("B") if array.null_count else None
        self.ends_view = memoryview(buffers[1]).cast("B") if buffers[1] is not None and buffers[1].size else None
        self.valid = view_pointer(self.valid_view)
        self.ends = <const int32_t*>view_pointer(self.ends_view)
        self.keys = ColumnReader(name, array.keys)
        self.values = ColumnReader(name, array.items)

    cdef bint given(self, Py_ssize_t row) noexcept:
        """Return True if the map is neither null nor empty."""
        row += self.offset
        if self.valid is not NULL and not self.valid[row >> 3] >> (row & 7) & 1:
            return False
        return self.ends[row + 1] > self.ends[row]


cdef class DuplicateId:
    """Entry of a map by which a broker recognizes a copy of a message.

    Its value is the message_id of the row. For a row without one it is PREFIX/ORDINAL/DIGEST, with a digest of the
    message: rows that come in another order when they are sent again have other ids, so that the broker keeps copies
    and loses no row.
    """
    cdef uint8_t section
    cdef bytes key
    cdef bytes prefix
    cdef ColumnReader identity  # None: no row has a message_id
    cdef size_t digest_at       # offset of the digest of the unfinished message; 0: it has none

    def __init__(self, str broker, str prefix, ColumnReader identity):
        self.section, self.key = DUPLICATE_IDS[broker]
        self.prefix = prefix.encode()
        self.identity = identity

    cdef int check_key(self, str column, const uint8_t* data, size_t size) except -1:
        if size == <size_t>len(self.key) and memcmp(data, <const uint8_t*>self.key, size) == 0:
            raise ValueError(f"column {column!r}: option duplicateIds sets the key {self.key.decode()!r}")
        return 0

    cdef int put(self, MessageBatch out, Py_ssize_t row, int64_t ordinal, bint symbol) except -1:
        """Append key and value. symbol: of the key, which is a string otherwise."""
        cdef const uint8_t* data
        cdef size_t size
        if symbol:
            put_symbol(out, <const uint8_t*>self.key, len(self.key))
        else:
            put_variable(out, T_STR8, T_STR32, <const uint8_t*>self.key, len(self.key))
        self.digest_at = 0
        if self.identity is not None and self.identity.given(row):
            data = self.identity.octets(row, &size)
            return put_variable(out, T_STR8, T_STR32, data, size)
        put_ordinal(out, self.prefix, ordinal, 1 + 2 * DIGEST_OCTETS)
        self.digest_at = out.size - 2 * DIGEST_OCTETS
        out.data[self.digest_at - 1] = b"/"
        memset(out.data + self.digest_at, b"0", 2 * DIGEST_OCTETS)
        return 0

    cdef int put_digest(self, MessageBatch out, size_t start) except -1:
        """Write the digest into the message that begins at `start` and is otherwise complete."""
        cdef bytes digest
        if self.digest_at:
            view = PyMemoryView_FromMemory(<char*>out.data + start, out.size - start, PyBUF_READ)
            digest = hashlib.blake2b(view, digest_size=DIGEST_OCTETS).hexdigest().encode()
            memcpy(out.data + self.digest_at, <const uint8_t*>digest, 2 * DIGEST_OCTETS)
        return 0


cdef int put_byte(MessageBatch out, uint8_t value) except -1:
    out.more(1)[0] = value
    return 0


cdef int put_section(MessageBatch out, uint8_t code) except -1:
    cdef uint8_t* p = out.more(3)
    p[0] = 0
    p[1] = T_SMALLULONG
    p[2] = code
    return 0


cdef int put_variable(MessageBatch out, uint8_t small, uint8_t large, const uint8_t* data, size_t size) except -1:
    cdef uint8_t* p
    if size < 256:
        p = out.more(2 + size)
        p[0] = small
        p[1] = <uint8_t>size
        p += 2
    else:
        p = out.more(5 + size)
        p[0] = large
        write32(p + 1, <uint32_t>size)
        p += 5
    if size:
        memcpy(p, data, size)
    return 0


cdef int put_encoded(MessageBatch out, bytes value) except -1:
    memcpy(out.more(len(value)), <const uint8_t*>value, len(value))
    return 0


cdef int put_word(MessageBatch out, uint8_t code, uint64_t value) except -1:
    cdef uint8_t* p = out.more(9)
    p[0] = code
    write32(p + 1, <uint32_t>(value >> 32))
    write32(p + 5, <uint32_t>value)
    return 0


cdef int put_uint(MessageBatch out, int64_t value) except -1:
    cdef uint8_t* p
    if not 0 <= value <= <int64_t>0xFFFFFFFF:
        raise ValueError(f"{value} is out of range: 0 to {0xFFFFFFFF}")
    if value < 256:
        p = out.more(2)
        p[0] = T_SMALLUINT
        p[1] = <uint8_t>value
    else:
        p = out.more(5)
        p[0] = T_UINT
        write32(p + 1, <uint32_t>value)
    return 0


cdef int put_integer(MessageBatch out, int64_t value) except -1:
    """Append an int, or a long if it does not fit, as codec.encode_value does."""
    cdef uint8_t* p
    if -128 <= value < 128:
        p = out.more(2)
        p[0] = T_SMALLINT
        p[1] = <uint8_t>value
    elif -<int64_t>0x80000000 <= value <= <int64_t>0x7FFFFFFF:
        p = out.more(5)
        p[0] = T_INT
        write32(p + 1, <uint32_t>value)
    else:
        put_word(out, T_LONG, <uint64_t>value)
    return 0


cdef int put_symbol(MessageBatch out, const uint8_t* data, size_t size) except -1:
    cdef size_t i
    for i in range(size):
        if data[i] > 127:
            raise ValueError(f"{data[:size].decode()!r} is not ASCII")
    return put_variable(out, T_SYM8, T_SYM32, data, size)


cdef bint begins_with(const uint8_t* data, size_t size, const char* prefix, size_t length) noexcept:
    return size >= length and memcmp(data, prefix, length) == 0


cdef int put_identity(MessageBatch out, const uint8_t* data, size_t size) except -1:
    """Append an id: the inverse of decode.add_identity. A prefix without a matching value makes a string."""
    cdef str rest
    if begins_with(data, size, b"str:", 4):
        return put_variable(out, T_STR8, T_STR32, data + 4, size - 4)
    try:
        if begins_with(data, size, b"ul:", 3):
            rest = data[3:size].decode()
            if rest.isascii() and rest.isdecimal() and int(rest) < 1 << 64:
                return put_word(out, T_ULONG, int(rest))
        elif begins_with(data, size, b"uuid:", 5):
            return put_encoded(out, codec.encode_value(uuid.UUID(data[5:size].decode())))
        elif begins_with(data, size, b"bin:", 4):
            return put_encoded(out, codec.encode_binary(bytes.fromhex(data[4:size].decode())))
    except ValueError:
        pass                               # the value is a string
    return put_variable(out, T_STR8, T_STR32, data, size)


cdef int put_field(MessageBatch out, ColumnReader column, Py_ssize_t row) except -1:
    cdef const uint8_t* data
    cdef size_t size
    cdef int64_t value
    cdef uint8_t* p
    if column.stored == OCTETS:
        data = column.octets(row, &size)
        if column.kind == STRING:
            return put_variable(out, T_STR8, T_STR32, data, size)
        if column.kind == IDENTITY:
            return put_identity(out, data, size)
        if column.kind == SYMBOL:
            return put_symbol(out, data, size)
        return put_variable(out, T_BIN8, T_BIN32, data, size)
    if column.kind == FLAG:
        return put_byte(out, T_TRUE if column.flag(row) else T_FALSE)
    value = column.number(row)
    if column.kind == TIME:
        # Rounded down from µs to ms.
        return put_word(out, T_TIMESTAMP, <uint64_t>((value - (value % 1000 + 1000) % 1000) // 1000))
    if column.kind == OCTET:
        if not 0 <= value <= 255:
            raise ValueError(f"{value} is out of range: 0 to 255")
        p = out.more(2)
        p[0] = T_UBYTE
        p[1] = <uint8_t>value
        return 0
    return put_uint(out, value)


cdef int put_list(MessageBatch out, uint8_t code, list columns, Py_ssize_t row, bytes prefix,
                  int64_t ordinal) except -1:
    """Append a list section, or nothing if all fields are null.

    columns: in the order of their fields. A null message-id becomes `prefix` and a number.
    """
    cdef Py_ssize_t last = -1
    cdef Py_ssize_t at = 0
    cdef size_t head
    cdef ColumnReader column
    cdef uint8_t* p
    for column in columns:
        if column.kind == IDENTITY and column.field == 0 or column.given(row):
            last = column.field
    if last < 0:
        return 0
    put_section(out, code)
    head = out.size
    out.more(9)
    for column in columns:
        if column.field > last:
            break
        while at < column.field:
            put_byte(out, T_NULL)
            at += 1
        at += 1
        if not column.given(row):
            if column.kind == IDENTITY and column.field == 0:
                put_ordinal(out, prefix, ordinal, 0)
            else:
                put_byte(out, T_NULL)
            continue
        try:
            put_field(out, column, row)
        except (ValueError, OverflowError) as error:
            raise ValueError(f"column {column.name!r}: {error}") from None
    p = out.data + head
    p[0] = T_LIST32
    write32(p + 1, <uint32_t>(out.size - head - 5))
    write32(p + 5, <uint32_t>(last + 1))
    return 0


cdef int check_address(ColumnReader column, Py_ssize_t row) except -1:
    cdef size_t size = 0
    if not column.given(row):
        raise ValueError("column 'address': it is null")
    column.octets(row, &size)
    if not size:
        raise ValueError("column 'address': it is empty")
    return 0


cdef int put_ordinal(MessageBatch out, bytes prefix, int64_t ordinal, size_t room) except -1:
    """Append a string: prefix, "/", ordinal, and `room` octets to be filled by the caller."""
    cdef char[ORDINAL_ROOM] number
    cdef size_t digits = snprintf(number, ORDINAL_ROOM, "/%lld", <long long>ordinal)
    cdef size_t size = len(prefix) + digits + room
    cdef uint8_t* p
    if size < 256:
        p = out.more(2 + size)
        p[0] = T_STR8
        p[1] = <uint8_t>size
        p += 2
    else:
        p = out.more(5 + size)
        p[0] = T_STR32
        write32(p + 1, <uint32_t>size)
        p += 5
    memcpy(p, <const uint8_t*>prefix, len(prefix))
    memcpy(p + len(prefix), number, digits)
    return 0


cdef int put_value(MessageBatch out, ColumnReader column, Py_ssize_t row) except -1:
    """Append a value of a map."""
    cdef const uint8_t* data
    cdef size_t size
    if not column.given(row):
        return put_byte(out, T_NULL)
    if column.stored == OCTETS:
        data = column.octets(row, &size)
        return put_variable(out, T_STR8, T_STR32, data, size)
    if column.stored == FLAGS:
        return put_byte(out, T_TRUE if column.flag(row) else T_FALSE)
    if column.stored == FLOATS:
        return put_word(out, T_DOUBLE, column.bits(row))
    return put_integer(out, column.number(row))


cdef int put_map(MessageBatch out, uint8_t code, MapColumn pairs, DuplicateId duplicate, Py_ssize_t row,
                 int64_t ordinal) except -1:
    """Append a map section, or nothing if it is empty. pairs, duplicate: None without such entries."""
    cdef size_t head, size
    cdef int32_t i, first = 0, end = 0
    cdef const uint8_t* data
    cdef uint8_t* p
    cdef bint symbols = code == S_MESSAGE_ANNOTATIONS
    if duplicate is not None and duplicate.section != code:
        duplicate = None
    if pairs is not None and pairs.given(row):
        first = pairs.ends[pairs.offset + row]
        end = pairs.ends[pairs.offset + row + 1]
    elif duplicate is None:
        return 0
    put_section(out, code)
    head = out.size
    out.more(9)
    for i in range(first, end):
        data = pairs.keys.octets(i, &size)
        if duplicate is not None:
            duplicate.check_key(pairs.name, data, size)
        if symbols:
            try:
                put_symbol(out, data, size)
            except ValueError as error:
                raise ValueError(f"column {pairs.name!r}: {error}") from None
        else:
            put_variable(out, T_STR8, T_STR32, data, size)
        put_value(out, pairs.values, i)
    if duplicate is not None:
        duplicate.put(out, row, ordinal, symbols)
        end += 1
    p = out.data + head
    p[0] = T_MAP32
    write32(p + 1, <uint32_t>(out.size - head - 5))
    write32(p + 5, <uint32_t>(2 * (end - first)))
    return 0


cdef list fields_of(tuple known, dict columns):
    return [
        ColumnReader(name, columns[name], kind, index)
        for index, (name, kind) in enumerate(known) if name in columns
    ]


def encode(dict columns not None, Py_ssize_t count, str prefix not None, int64_t first, *, bint addressed=False,
           str duplicate_ids="", list bad=None):
    """Encode one message for each of `count` rows.

    columns: {name: array}, with names of HEADER and PROPERTIES (times in µs, ids as decode.pyx writes them),
    application_properties, message_annotations, and body: a binary is a data section, a string an amqp-value, null an
    amqp-value of null. Arrays have the types of STORED, or are maps of string to those. A null message_id becomes
    prefix/NUMBER, counted by rows from `first`. addressed: each row must have a `to`, from the column address.

    duplicate_ids: key of DUPLICATE_IDS, the broker by which messages are to be kept once, or "".

    bad: list for the rows that are no valid message, which get none: (row, reason with the column's name). Without the
    list, the first one raises ValueError.
    """
    cdef MessageBatch out = MessageBatch()
    cdef list header = fields_of(HEADER, columns)
    cdef list properties = fields_of(PROPERTIES, columns)
    cdef ColumnReader body = ColumnReader("body", columns["body"]) if "body" in columns else None
    cdef bint data_section = body is not None and str(columns["body"].type) == "binary"
    cdef MapColumn annotations = None
    cdef MapColumn application = None
    cdef DuplicateId duplicate = None
    cdef bytes before = prefix.encode()
    cdef const uint8_t* data
    cdef size_t size
    cdef Py_ssize_t row
    cdef size_t start
    cdef ColumnReader address = ColumnReader("address", columns["to"]) if addressed else None
    if "message_annotations" in columns:
        annotations = MapColumn("message_annotations", columns["message_annotations"])
    if "application_properties" in columns:
        application = MapColumn("application_properties", columns["application_properties"])
    if duplicate_ids:
        identity = columns.get("message_id")
        duplicate = DuplicateId(
            duplicate_ids, prefix, ColumnReader("message_id", identity) if identity is not None else None
        )
    for name, column in columns.items():
        if len(column) != count:
            raise ValueError(f"column {name!r} has {len(column)} values for {count} rows")
    for row in range(count):
        start = out.size
        try:
            if addressed:
                check_address(address, row)
            if header:
                put_list(out, S_HEADER, header, row, before, 0)
            put_map(out, S_MESSAGE_ANNOTATIONS, annotations, duplicate, row, first + row)
            if properties:
                put_list(out, S_PROPERTIES, properties, row, before, first + row)
            put_map(out, S_APPLICATION_PROPERTIES, application, duplicate, row, first + row)
        except ValueError as error:
            if bad is None:
                raise
            bad.append((row, str(error)))
            out.size = start
            continue
        if body is not None and body.given(row):
            data = body.octets(row, &size)
            if data_section:
                put_section(out, S_DATA)
                put_variable(out, T_BIN8, T_BIN32, data, size)
            else:
                put_section(out, S_VALUE)
                put_variable(out, T_STR8, T_STR32, data, size)
        else:
            put_section(out, S_VALUE)
            put_byte(out, T_NULL)
        if duplicate is not None:
            duplicate.put_digest(out, start)
        out.finish()
    return out


def encoded_messages(array, Py_ssize_t count, list bad not None):
    """Return messages that are encoded already. array: binary. bad: list for the rows that are null, as in `encode`."""
    cdef MessageBatch out = MessageBatch()
    cdef ColumnReader column = ColumnReader("message", array)
    cdef const uint8_t* data
    cdef size_t size
    cdef Py_ssize_t row
    for row in range(count):
        if not column.given(row):
            bad.append((row, "column 'message': it is null"))
            continue
        data = column.octets(row, &size)
        if size:
            memcpy(out.more(size), data, size)
        out.finish()
    return out
