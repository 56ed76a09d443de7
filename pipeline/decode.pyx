"""Decoder from messages to columns: sections of many messages as buffers in the layout of Arrow. Needs no pyarrow.

Only requested columns are built. docs/user/pipeline-reference.md defines the values for odd messages. In short: a
message that is no sequence of whole sections has body_kind "malformed", its octets as body, and no other value. A field
of another type than part 3 specifies is given as text, or as null in a column that is no text.
"""
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.string cimport memcmp, memset

from sluice.router.amqp.buffer cimport read16, read32, read64
from sluice.router.amqp.codec cimport (
    Slice, open_described, open_list, open_map, open_variable, read_unsigned, skip_value,
)
from sluice.router.amqp.spec cimport (
    S_DELIVERY_ANNOTATIONS, S_HEADER, S_MESSAGE_ANNOTATIONS, S_PROPERTIES, T_BIN32, T_BIN8, T_BOOLEAN, T_BYTE, T_FALSE,
    T_INT, T_LONG, T_NULL, T_SHORT, T_SMALLINT, T_SMALLLONG, T_SMALLULONG, T_STR32, T_STR8, T_SYM32, T_SYM8,
    T_TIMESTAMP, T_TRUE, T_UBYTE, T_UINT, T_UINT0, T_ULONG, T_ULONG0, T_USHORT, T_SMALLUINT, T_UUID,
)

from sluice.pipeline.buffers cimport RowBitmap, ColumnText

from sluice.pipeline.values import NotAmqpError, TooDeepError, body_text, field_text

cdef enum:
    S_APPLICATION_PROPERTIES = 0x74
    S_DATA = 0x75
    S_SEQUENCE = 0x76
    S_VALUE = 0x77
    S_FOOTER = 0x78

cdef enum:
    HEADER_FIELDS = 5
    PROPERTY_FIELDS = 13
    FEW_KEYS = 16              # maps of up to so many keys are searched linearly, larger ones through a set
    NUMBER_ROOM = 48           # octets of a number or uuid as text

# Kind of a column's values.
cdef enum ColumnKind:
    TEXT, OCTETS, IDENTITY, FLAG, NUMBER, TIME, MAP, BODY, BODY_KIND

# Section of a column's values.
cdef enum SectionOrigin:
    OF_HEADER, OF_PROPERTIES, OF_ANNOTATIONS, OF_APPLICATION, OF_BODY

cdef enum BodyKind:
    BODY_NONE, BODY_DATA, BODY_STRING, BODY_BINARY, BODY_JSON, BODY_SEQUENCE, BODY_MALFORMED, BODY_AMQP

BODY_KINDS = ("none", "data", "string", "binary", "json", "sequence", "malformed", "amqp")

COLUMNS = {
    "message_id": (IDENTITY, OF_PROPERTIES, 0),
    "user_id": (OCTETS, OF_PROPERTIES, 1),
    "to": (TEXT, OF_PROPERTIES, 2),
    "subject": (TEXT, OF_PROPERTIES, 3),
    "reply_to": (TEXT, OF_PROPERTIES, 4),
    "correlation_id": (IDENTITY, OF_PROPERTIES, 5),
    "content_type": (TEXT, OF_PROPERTIES, 6),
    "content_encoding": (TEXT, OF_PROPERTIES, 7),
    "absolute_expiry_time": (TIME, OF_PROPERTIES, 8),
    "creation_time": (TIME, OF_PROPERTIES, 9),
    "group_id": (TEXT, OF_PROPERTIES, 10),
    "group_sequence": (NUMBER, OF_PROPERTIES, 11),
    "reply_to_group_id": (TEXT, OF_PROPERTIES, 12),
    "durable": (FLAG, OF_HEADER, 0),
    "priority": (NUMBER, OF_HEADER, 1),
    "ttl_ms": (NUMBER, OF_HEADER, 2),
    "delivery_count": (NUMBER, OF_HEADER, 4),
    "body": (BODY, OF_BODY, 0),
    "body_kind": (BODY_KIND, OF_BODY, 0),
    "application_properties": (MAP, OF_APPLICATION, 0),
    "message_annotations": (MAP, OF_ANNOTATIONS, 0),
}

# Range of timestamps in ms: the years 1 to 9999, the range of Python and Spark.
cdef int64_t TIME_LEAST = -62135596800000
cdef int64_t TIME_MOST = 253402300799999


# Sections of one message. Slices borrow the octets of the message; data NULL: absent.
cdef struct MessageSections:
    Slice[HEADER_FIELDS] header
    Slice[PROPERTY_FIELDS] properties
    Slice annotations          # map value
    Slice application          # map value
    const uint8_t* body        # first body section
    const uint8_t* end         # end of the message
    uint64_t body_code
    BodyKind body_kind
    Slice simple               # body that is one run of octets


cdef class ColumnBuilder:
    """Builder of a column. Each message appends one row."""
    cdef ColumnKind kind
    cdef SectionOrigin origin
    cdef int field
    cdef size_t row
    cdef size_t nulls
    cdef RowBitmap valid
    cdef RowBitmap flags            # values of a FLAG
    cdef bytes words           # values of a NUMBER or TIME
    cdef int64_t* numbers
    cdef ColumnText text             # values of all other kinds; keys of a MAP
    cdef ColumnText values           # values of a MAP
    cdef RowBitmap values_valid
    cdef list map_nulls        # positions of null values of a MAP
    cdef bytes entries         # end offset of each row of a MAP
    cdef int32_t* entries_end

    def __cinit__(self, ColumnKind kind, SectionOrigin origin, int field, size_t rows, size_t octets):
        """Create a builder. octets: length of all messages; bodies are seldom longer."""
        self.kind = kind
        self.origin = origin
        self.field = field
        self.valid = RowBitmap(rows)
        if kind == FLAG:
            self.flags = RowBitmap(rows)
        elif kind == NUMBER or kind == TIME:
            self.words = PyBytes_FromStringAndSize(NULL, rows * sizeof(int64_t))
            self.numbers = <int64_t*><char*>self.words
        elif kind == MAP:
            self.text = ColumnText(4 * rows)
            self.values = ColumnText(4 * rows)
            self.map_nulls = []
            self.entries = PyBytes_FromStringAndSize(NULL, (rows + 1) * sizeof(int32_t))
            self.entries_end = <int32_t*><char*>self.entries
            self.entries_end[0] = 0
        elif kind == BODY:
            self.text = ColumnText(rows, octets + 1)
        else:
            self.text = ColumnText(rows)

    cdef int add(self, const MessageSections* parts, const uint8_t* message, bytes body) except -1:
        """Append the value of this message."""
        cdef bint there = False
        cdef const Slice* value = NULL
        if self.kind == BODY_KIND:
            name = (<str>BODY_KINDS[<int>parts.body_kind]).encode()
            self.text.add_bytes(name)
            there = True
        elif self.kind == BODY:
            there = self.add_body(parts, message, body)
        elif parts.body_kind != BODY_MALFORMED:
            if self.origin == OF_HEADER:
                value = &parts.header[self.field]
            elif self.origin == OF_PROPERTIES:
                value = &parts.properties[self.field]
            elif self.origin == OF_ANNOTATIONS:
                value = &parts.annotations
            else:
                value = &parts.application
            if value.data is not NULL and value.data[0] != T_NULL:
                there = self.add_value(value)
        if there:
            self.valid.set(self.row)
        else:
            self.nulls += 1
            if self.numbers is not NULL:
                self.numbers[self.row] = 0
        if self.kind == MAP:
            self.entries_end[self.row + 1] = <int32_t>self.text.count
        elif self.text is not None:
            self.text.finish()
        self.row += 1
        return 0

    cdef bint add_value(self, const Slice* value) except -1:
        """Append a value. Return False if it is not of the column's type."""
        cdef const uint8_t* p = value.data
        cdef const uint8_t* end = p + value.size
        cdef uint64_t number = 0
        cdef int64_t ms
        cdef Slice octets
        if self.kind == TEXT:
            add_scalar(self.text, value)
            return True
        if self.kind == IDENTITY:
            add_identity(self.text, value)
            return True
        if self.kind == OCTETS:
            if open_variable(p, end, &octets) is NULL:
                return False
            self.text.add(octets.data, octets.size)
            return True
        if self.kind == FLAG:
            if p[0] == T_TRUE or (p[0] == T_BOOLEAN and p[1]):
                self.flags.set(self.row)
                return True
            return p[0] == T_FALSE or p[0] == T_BOOLEAN
        if self.kind == NUMBER:
            if p[0] == T_TRUE or p[0] == T_FALSE or p[0] == T_BOOLEAN or read_unsigned(p, end, &number) is NULL \
                    or number > <uint64_t>0x7FFFFFFFFFFFFFFF:
                return False
            self.numbers[self.row] = <int64_t>number
            return True
        if self.kind == TIME:
            if p[0] != T_TIMESTAMP:
                return False
            ms = <int64_t>read64(p + 1)
            if ms < TIME_LEAST or ms > TIME_MOST:
                return False
            self.numbers[self.row] = ms * 1000
            return True
        return self.add_map(value)

    cdef bint add_body(self, const MessageSections* parts, const uint8_t* message, bytes body) except -1:
        cdef const uint8_t* p
        cdef const uint8_t* after
        cdef uint64_t code = 0
        cdef Slice octets
        if parts.body_kind == BODY_NONE:
            return False
        if parts.body_kind == BODY_MALFORMED:
            self.text.add(message, parts.end - message)
        elif body is not None:
            self.text.add_bytes(body)
        elif parts.simple.data is not NULL:
            self.text.add(parts.simple.data, parts.simple.size)
        else:
            p = parts.body                     # several data sections
            while p < parts.end:
                p = open_described(p, parts.end, &code)
                after = skip_value(p, parts.end)
                if code == S_DATA:
                    octets = content(p, after)
                    self.text.add(octets.data, octets.size)
                p = after
        return True

    cdef bint add_map(self, const Slice* value) except -1:
        """Append the entries of a map. Of equal keys the first one counts, because Spark's maps have unique keys."""
        cdef uint32_t count = 0
        cdef uint32_t _i
        cdef const uint8_t* stop = NULL
        cdef const uint8_t* p = open_map(value.data, value.data + value.size, &count, &stop)
        cdef const uint8_t* after
        cdef Slice key
        cdef Slice item
        cdef size_t first = self.text.count
        cdef size_t before
        cdef set seen = set() if count > 2 * FEW_KEYS else None
        for _ in range(count // 2):
            after = skip_value(p, stop)
            key.data = p
            key.size = after - p
            p = after
            after = skip_value(p, stop)
            item.data = p
            item.size = after - p
            p = after
            before = self.text.size
            add_scalar(self.text, &key)
            if self.has_key(first, before, seen):
                self.text.size = before
                continue
            self.text.finish()
            if item.data[0] == T_NULL:
                self.map_nulls.append(self.values.count)
            else:
                add_scalar(self.values, &item)
            self.values.finish()
        return True

    cdef bint has_key(self, size_t first, size_t before, set seen) except -1:
        """Return True if the key at the end of the text is already in this row."""
        cdef size_t size = self.text.size - before
        cdef size_t i
        cdef int32_t start
        if seen is not None:
            key = PyBytes_FromStringAndSize(<const char*>self.text.data + before, size)
            if key in seen:
                return True
            seen.add(key)
            return False
        for i in range(first, self.text.count):
            start = self.text.ends[i]
            if <size_t>(self.text.ends[i + 1] - start) == size \
                    and not memcmp(self.text.data + start, self.text.data + before, size):
                return True
        return False

    cdef tuple buffers(self):
        cdef RowBitmap bits
        cdef size_t i
        valid = self.valid.octets if self.nulls else None
        if self.kind == FLAG:
            return self.nulls, valid, self.flags.octets
        if self.words is not None:
            return self.nulls, valid, self.words
        if self.kind == MAP:
            bits = RowBitmap(self.values.count)
            for i in range(self.values.count):
                bits.set(i)
            for i in self.map_nulls:
                bits.data[i >> 3] &= <uint8_t>~(1 << (i & 7))
            return (self.nulls, valid, self.entries, self.text.count, self.text.buffers(), len(self.map_nulls),
                    bits.octets if self.map_nulls else None, self.values.buffers())
        return self.nulls, valid, *self.text.buffers()


cdef inline Slice content(const uint8_t* p, const uint8_t* end) noexcept nogil:
    """Return the octets of a string, symbol or binary that is known to be whole; empty for other types."""
    cdef Slice out
    out.data = p
    out.size = 0
    open_variable(p, end, &out)
    return out


cdef inline bint is_text(uint8_t code) noexcept nogil:
    return code == T_STR8 or code == T_SYM8 or code == T_STR32 or code == T_SYM32


cdef inline bint is_binary(uint8_t code) noexcept nogil:
    return code == T_BIN8 or code == T_BIN32


cdef inline bint is_unsigned(uint8_t code) noexcept nogil:
    return code in (T_UBYTE, T_USHORT, T_UINT, T_UINT0, T_SMALLUINT, T_ULONG, T_ULONG0, T_SMALLULONG)


cdef int add_scalar(ColumnText out, const Slice* value) except -1:
    """Append any value as text. Frequent types are converted here, all others in pipeline/values.py."""
    cdef const uint8_t* p = value.data
    cdef uint8_t code = p[0]
    cdef Slice octets
    cdef uint64_t number = 0
    cdef int64_t signed = 0
    cdef char[NUMBER_ROOM] digits
    if is_text(code):
        octets = content(p, p + value.size)
        return out.add_text(octets.data, octets.size)
    if code == T_TRUE or (code == T_BOOLEAN and p[1]):
        return out.add(b"true", 4)
    if code == T_FALSE or code == T_BOOLEAN:
        return out.add(b"false", 5)
    if is_unsigned(code):
        read_unsigned(p, p + value.size, &number)
        return out.add(<const uint8_t*>digits, snprintf(digits, NUMBER_ROOM, b"%llu", <unsigned long long>number))
    if code == T_BYTE or code == T_SMALLINT or code == T_SMALLLONG:
        signed = <int8_t>p[1]
    elif code == T_SHORT:
        signed = <int16_t>read16(p + 1)
    elif code == T_INT:
        signed = <int32_t>read32(p + 1)
    elif code == T_LONG or code == T_TIMESTAMP:
        signed = <int64_t>read64(p + 1)
    elif code == T_UUID:
        return out.add(<const uint8_t*>digits, write_uuid(digits, p + 1))
    else:
        return out.add_bytes(field_text(PyBytes_FromStringAndSize(<const char*>p, value.size)))
    return out.add(<const uint8_t*>digits, snprintf(digits, NUMBER_ROOM, b"%lld", <long long>signed))


cdef int write_uuid(char* out, const uint8_t* p) noexcept:
    return snprintf(
        out, NUMBER_ROOM, b"%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
        p[0], p[1], p[2], p[3], p[4], p[5], p[6], p[7], p[8], p[9], p[10], p[11], p[12], p[13], p[14], p[15],
    )


cdef inline bint text_begins_with(const Slice* text, const char* prefix, size_t size) noexcept:
    return text.size >= size and not memcmp(text.data, prefix, size)


cdef int add_identity(ColumnText out, const Slice* value) except -1:
    """Append a message-id or correlation-id, such that ids of different types are different texts.

    An id that is no string has the prefix of its type. A string that begins like such a prefix gets "str:".
    """
    cdef const uint8_t* p = value.data
    cdef uint8_t code = p[0]
    cdef Slice octets
    cdef size_t i
    cdef char[3] digits
    if code == T_STR8 or code == T_STR32:
        octets = content(p, p + value.size)
        if text_begins_with(&octets, b"ul:", 3) or text_begins_with(&octets, b"uuid:", 5) \
                or text_begins_with(&octets, b"bin:", 4) \
                or text_begins_with(&octets, b"str:", 4) or text_begins_with(&octets, b"odd:", 4):
            out.add(b"str:", 4)
        return out.add_text(octets.data, octets.size)
    if is_binary(code):
        octets = content(p, p + value.size)
        out.add(b"bin:", 4)
        for i in range(octets.size):
            snprintf(digits, 3, b"%02x", octets.data[i])
            out.add(<const uint8_t*>digits, 2)
        return 0
    if code == T_UUID:
        out.add(b"uuid:", 5)
    elif code == T_ULONG or code == T_ULONG0 or code == T_SMALLULONG:
        out.add(b"ul:", 3)
    else:
        out.add(b"odd:", 4)
    return add_scalar(out, value)


cdef bint read_list(const uint8_t* p, const uint8_t* end, Slice* fields, uint32_t most) noexcept:
    """Find the items of a list; items beyond `most` are skipped. False: not a valid list."""
    cdef uint32_t count = 0
    cdef uint32_t i
    cdef const uint8_t* stop = NULL
    cdef const uint8_t* after
    if p[0] == T_NULL:
        return True
    p = open_list(p, end, &count, &stop)
    if p is NULL:
        return False
    for i in range(count):
        after = skip_value(p, stop)
        if after is NULL:
            return False
        if i < most:
            fields[i].data = p
            fields[i].size = after - p
        p = after
    return p == stop


cdef bint check_map(const uint8_t* p, const uint8_t* end, Slice* out) noexcept:
    """Check a map whose items must be whole. False: not a valid map."""
    cdef uint32_t count = 0
    cdef uint32_t _i
    cdef const uint8_t* stop = NULL
    if p[0] == T_NULL:
        return True
    out.data = p
    out.size = end - p
    p = open_map(p, end, &count, &stop)
    if p is NULL or count % 2:
        return False
    for _ in range(count):
        p = skip_value(p, stop)
        if p is NULL:
            return False
    return p == stop


cdef bint find_sections(const uint8_t* p, const uint8_t* end, MessageSections* out) noexcept:
    """Find the sections of a message. False: malformed."""
    cdef const uint8_t* value
    cdef const uint8_t* after
    cdef uint64_t code = 0
    cdef Slice unused
    memset(out, 0, sizeof(MessageSections))
    out.end = end
    out.body_kind = BODY_NONE
    while p < end:
        value = open_described(p, end, &code)
        if value is NULL:
            return False
        after = skip_value(value, end)
        if after is NULL:
            return False
        if code == S_HEADER:
            if not read_list(value, after, out.header, HEADER_FIELDS):
                return False
        elif code == S_PROPERTIES:
            if not read_list(value, after, out.properties, PROPERTY_FIELDS):
                return False
        elif code == S_MESSAGE_ANNOTATIONS:
            if not check_map(value, after, &out.annotations):
                return False
        elif code == S_APPLICATION_PROPERTIES:
            if not check_map(value, after, &out.application):
                return False
        elif code == S_DELIVERY_ANNOTATIONS or code == S_FOOTER:
            if not check_map(value, after, &unused):
                return False
        elif not read_body_section(p, value, after, code, out):
            return False
        p = after
    return True


cdef bint read_body_section(const uint8_t* section, const uint8_t* value, const uint8_t* after, uint64_t code,
                            MessageSections* out) noexcept:
    cdef bint first = out.body is NULL
    if not first and code != out.body_code:
        return False
    if code == S_DATA:
        if not is_binary(value[0]) or open_variable(value, after, &out.simple) is NULL:
            return False
        if not first:
            out.simple.data = NULL             # several data sections
        out.body_kind = BODY_DATA
    elif code == S_SEQUENCE:
        out.body_kind = BODY_SEQUENCE
    elif code == S_VALUE and first:
        if is_text(value[0]):
            open_variable(value, after, &out.simple)
            out.body_kind = BODY_STRING
        elif is_binary(value[0]):
            open_variable(value, after, &out.simple)
            out.body_kind = BODY_BINARY
        else:
            out.body_kind = BODY_JSON
    else:
        return False
    if first:
        out.body = section
        out.body_code = code
    return True


def decode(const int32_t[::1] ends not None, const uint8_t[::1] octets not None, Py_ssize_t first, Py_ssize_t count,
           names not None):
    """Return the columns of `count` messages as {name: buffers}.

    Message i is octets[ends[first + i] : ends[first + i + 1]]. buffers: (nulls, validity or None, …), followed by ends
    and octets, or by values. For a map follow the ends of the rows, the number of entries, keys, nulls and validity of
    the values, values. Raises KeyError for a name not in COLUMNS, OverflowError if a column has more than 2 GiB.
    """
    cdef Py_ssize_t i
    cdef int32_t start, stop
    cdef size_t size
    cdef MessageSections parts
    cdef ColumnBuilder column
    cdef bint wants_body = False
    cdef bytes body
    cdef const uint8_t* base = &octets[0] if octets.shape[0] else <const uint8_t*>b""
    cdef list columns = []
    if first < 0 or count < 0 or count >= ends.shape[0] or first > ends.shape[0] - 1 - count:
        raise ValueError("more messages are requested than the buffer has")
    size = min(max(<int64_t>ends[first + count] - ends[first], 0), octets.shape[0])
    for name in names:
        kind, origin, field = COLUMNS[name]
        columns.append(ColumnBuilder(kind, origin, field, count, size))
        wants_body = wants_body or kind == BODY or kind == BODY_KIND
    for i in range(first, first + count):
        start, stop = ends[i], ends[i + 1]
        if start < 0 or stop < start or stop > octets.shape[0]:
            raise ValueError(f"message {i} ends beyond the octets of the buffer")
        body = None
        if not find_sections(base + start, base + stop, &parts):
            parts.body_kind = BODY_MALFORMED
        elif wants_body and (parts.body_kind == BODY_JSON or parts.body_kind == BODY_SEQUENCE):
            body = PyBytes_FromStringAndSize(<const char*>parts.body, parts.end - parts.body)
            try:
                body = body_text(body)
            except TooDeepError:
                parts.body_kind = BODY_AMQP
            except NotAmqpError:
                body = None
                parts.body_kind = BODY_MALFORMED
        for column in columns:
            column.add(&parts, base + start, body)
    return {name: (<ColumnBuilder>column).buffers() for name, column in zip(names, columns)}
