"""Rare performatives as checked Python values: open, begin, attach, detach, and errors in them.

Input is a list of encoded fields (codec.split_fields), output is an encoded body.
"""
from sluice.router.amqp.spec cimport P_BEGIN, P_OPEN

from sluice.router.amqp import codec
from sluice.router.amqp.errors import INTERNAL_ERROR, INVALID_FIELD, AmqpError, RemoteError

cdef enum:
    ERROR = 0x1D               # descriptor of an error
    CONDITION_MOST = 255       # octets kept of the condition of a long error


cdef list open_values(list items):
    """Return container-id, hostname, max-frame-size, channel-max, idle-time-out, outgoing-locales, incoming-locales,
    offered-capabilities, desired-capabilities, properties (AMQP 1.0 part 2, 2.7.1)."""
    cdef list values = [codec.decode_one(item) for item in items[:10]]
    values += [None] * (10 - len(values))
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
    """Encode an open. idle: ms, 0 for none. properties: encoded keys and values alternately."""
    return codec.encode_described(P_OPEN, [
        codec.encode_string(container), b"\x40" if hostname is None else codec.encode_string(hostname),
        codec.encode_uint(max_frame), codec.encode_ushort(channel_max),
        codec.encode_uint(idle) if idle else b"\x40", b"\x40", b"\x40",
        codec.encode_symbols(offered) if offered else b"\x40",
        codec.encode_symbols(desired) if desired else b"\x40",
        codec.encode_map(properties) if properties else b"\x40",
    ])


cdef list begin_values(list items):
    """Return remote-channel, next-outgoing-id, incoming-window, outgoing-window, handle-max (AMQP 1.0 part 2, 2.7.2).
    """
    cdef list values = [codec.decode_one(item) for item in items[:5]]
    values += [None] * (5 - len(values))
    for index, name in ((1, "next-outgoing-id"), (2, "incoming-window"), (3, "outgoing-window")):
        if not isinstance(values[index], int) or not 0 <= values[index] <= 0xFFFFFFFF:
            raise RemoteError("session", INVALID_FIELD, f"begin: {name} is missing or not a uint")
    if values[4] is not None and (not isinstance(values[4], int) or not 0 <= values[4] <= 0xFFFFFFFF):
        raise RemoteError("session", INVALID_FIELD, "begin: handle-max is not a uint")
    return values


cdef bytes begin_body(remote_channel, window, handle_max, bint routers):
    """Encode a begin. remote_channel: of the begin that it answers, or None. window: frames. handle_max: omitted
    between routers."""
    items = [b"\x40" if remote_channel is None else codec.encode_ushort(remote_channel), codec.encode_uint(0),
             codec.encode_uint(window), codec.encode_uint(WINDOW_OPEN)]
    if not routers:
        # Some clients index the rest of the list without checking its length.
        items += [codec.encode_uint(handle_max), b"\x40", b"\x40", b"\x40"]
    return codec.encode_described(P_BEGIN, items)


cdef tuple attach_values(list items):
    """Return (name, handle, role)."""
    if len(items) < 3:
        raise RemoteError("link", INVALID_FIELD, "attach: mandatory field name, handle or role is missing")
    name, handle, role = (codec.decode_one(item) for item in items[:3])
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
    handle = codec.decode_one(items[0])
    closed = len(items) > 1 and codec.decode_one(items[1]) is True
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
