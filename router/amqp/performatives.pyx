"""Rare performatives as checked Python values: open, begin, attach, detach, and errors in them.

Input is a list of encoded fields (codec.split_fields), output is an encoded body.
"""
from libc.stdint cimport uint8_t, uint64_t

from sluice.router.amqp.codec cimport Slice, open_variable, read_unsigned
from sluice.router.amqp.spec cimport (
    P_BEGIN, P_OPEN, T_FALSE, T_NULL, T_SMALLUINT, T_STR8, T_TRUE, T_UBYTE, T_UINT, T_UINT0, T_USHORT,
)

from sluice.router.amqp import codec
from sluice.router.amqp.errors import INTERNAL_ERROR, INVALID_FIELD, AmqpError, RemoteError

cdef enum:
    ERROR = 0x1D               # descriptor of an error
    CONDITION_MOST = 255       # octets kept of the condition of a long error


cdef object value_of(bytes item):
    cdef const uint8_t* p = item
    cdef const uint8_t* end = p + len(item)
    cdef uint64_t number
    cdef Slice text
    if len(item) == 1 and p[0] == T_NULL:
        return None
    if len(item) == 1 and (p[0] == T_TRUE or p[0] == T_FALSE):
        return p[0] == T_TRUE
    if p[0] == T_STR8 and open_variable(p, end, &text) == end:
        try:
            return text.data[:text.size].decode("utf-8")
        except UnicodeDecodeError:
            return codec.decode_one(item)      # raises the error that names the place
    if p[0] in (T_UINT0, T_SMALLUINT, T_UBYTE, T_USHORT, T_UINT) and read_unsigned(p, end, &number) == end:
        return number
    return codec.decode_one(item)


cdef list values_of(list items, Py_ssize_t count):
    """Decode the first `count` fields of a performative; absent ones are None. Raises RemoteError."""
    cdef Py_ssize_t i
    cdef list values = [None] * count
    for i in range(min(count, len(items))):
        values[i] = value_of(items[i])
    return values


cdef list open_values(list items):
    """Return container-id, hostname, max-frame-size, channel-max, idle-time-out, outgoing-locales, incoming-locales,
    offered-capabilities, desired-capabilities, properties (AMQP 1.0 part 2, 2.7.1)."""
    cdef list values = values_of(items, 10)
    if not isinstance(values[0], str):
        raise RemoteError("connection", INVALID_FIELD, "open: container-id is missing or not a string")
    for index, name in ((2, "max-frame-size"), (3, "channel-max"), (4, "idle-time-out")):
        if values[index] is not None and (
                not isinstance(values[index], int) or not 0 <= values[index] <= 0xFFFFFFFF):
            raise RemoteError("connection", INVALID_FIELD, f"open: {name} is not a number")
    if values[1] is not None and not isinstance(values[1], str):
        raise RemoteError("connection", INVALID_FIELD, "open: hostname is not a string")
    return values


cdef dict open_fields(list values, list items):
    """Return the open as a dict for the handler. values: decoded; items: encoded."""
    return {
        "container": values[0], "hostname": values[1],
        "properties": values[9] if isinstance(values[9], dict) else {},
        "offered": symbols(values[7]), "desired": symbols(values[8]),
        "raw_properties": items[9] if len(items) > 9 else b"",
    }


cdef bytes open_body(container, hostname, max_frame, channel_max, idle, offered, desired, properties):
    """Encode an open. idle: ms, 0 for none. offered, desired: encoded. properties: encoded keys and values
    alternately."""
    return codec.encode_described(P_OPEN, [
        codec.encode_string(container), b"\x40" if hostname is None else codec.encode_string(hostname),
        codec.encode_uint(max_frame), codec.encode_ushort(channel_max),
        codec.encode_uint(idle) if idle else b"\x40", b"\x40", b"\x40",
        offered, desired,
        codec.encode_map(properties) if properties else b"\x40",
    ])


cdef list begin_values(list items):
    """Return remote-channel, next-outgoing-id, incoming-window, outgoing-window, handle-max (AMQP 1.0 part 2, 2.7.2).
    """
    cdef list values = values_of(items, 5)
    for index, name in ((1, "next-outgoing-id"), (2, "incoming-window"), (3, "outgoing-window")):
        if not isinstance(values[index], int) or not 0 <= values[index] <= 0xFFFFFFFF:
            raise RemoteError("session", INVALID_FIELD, f"begin: {name} is missing or not a uint")
    if values[4] is not None and (not isinstance(values[4], int) or not 0 <= values[4] <= 0xFFFFFFFF):
        raise RemoteError("session", INVALID_FIELD, "begin: handle-max is not a uint")
    return values


# Fields of the last begin and its body. Sessions of most clients get equal begins.
cdef tuple last_begin = None
cdef bytes last_begin_body = None


cdef bytes begin_body(remote_channel, window, handle_max, bint routers):
    """Encode a begin. remote_channel: of the begin that it answers, or None. window: frames. handle_max: omitted
    between routers."""
    global last_begin, last_begin_body
    facts = (remote_channel, window, handle_max, routers)
    if facts == last_begin:
        return last_begin_body
    items = [b"\x40" if remote_channel is None else codec.encode_ushort(remote_channel), codec.encode_uint(0),
             codec.encode_uint(window), codec.encode_uint(WINDOW_OPEN)]
    if not routers:
        # Some clients index the rest of the list without checking its length.
        items += [codec.encode_uint(handle_max), b"\x40", b"\x40", b"\x40"]
    last_begin, last_begin_body = facts, codec.encode_described(P_BEGIN, items)
    return last_begin_body


cdef tuple attach_values(list items):
    """Return (name, handle, role)."""
    if len(items) < 3:
        raise RemoteError("link", INVALID_FIELD, "attach: mandatory field name, handle or role is missing")
    name, handle, role = value_of(items[0]), value_of(items[1]), value_of(items[2])
    if type(name) is not str or isinstance(handle, bool) or not isinstance(handle, int) \
            or not isinstance(role, bool):
        raise RemoteError("link", INVALID_FIELD, "attach: name, handle or role has the wrong type")
    if not 0 <= handle <= 0xFFFFFFFF:
        raise RemoteError("link", INVALID_FIELD, "attach: handle is not a uint")
    return name, handle, role


cdef tuple detach_values(list items):
    """Return (handle, closed, encoded error or None)."""
    if not items:
        raise RemoteError("link", INVALID_FIELD, "detach: mandatory field handle is missing")
    handle = value_of(items[0])
    closed = len(items) > 1 and value_of(items[1]) is True
    if isinstance(handle, bool) or not isinstance(handle, int) or not 0 <= handle <= 0xFFFFFFFF:
        raise RemoteError("link", INVALID_FIELD, "detach: handle is not a uint")
    return handle, closed, items[2] if len(items) > 2 and items[2] != b"\x40" else None


def symbols(value):
    """Convert capabilities (a symbol, an array of symbols, or none) to a list of str."""
    if value is None:
        return []
    if isinstance(value, str):
        return [str(value)]
    return [str(item) for item in value if isinstance(item, str)] if isinstance(value, list) else []


def read_error(bytes raw not None):
    """Return (condition, description) of an encoded error, or None for null."""
    if raw[:1] == b"\x40":
        return None
    _code, items = codec.described_list(raw)
    values = [codec.decode_one(item) for item in items[:2]]
    condition = str(values[0]) if values and values[0] is not None else INTERNAL_ERROR
    return condition, str(values[1]) if len(values) > 1 and values[1] is not None else ""


def check_error(bytes raw not None):
    """Check an encoded error that is relayed to another peer. Raises RemoteError."""
    codec.decode_one(raw)
    if codec.described_list(raw)[0] != ERROR:
        raise RemoteError("link", INVALID_FIELD, "detach: the error field is not an error")


def short_error(bytes raw not None):
    """Shorten an encoded error for a frame with little room, to its condition, which is cut. Raises nothing."""
    try:
        condition = read_error(raw)[0].encode("ascii", "replace")[:CONDITION_MOST].decode()
    except (AmqpError, TypeError):  # not an error, or empty
        condition = INTERNAL_ERROR
    return codec.encode_error(condition)
