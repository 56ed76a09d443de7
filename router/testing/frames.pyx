"""Frames of the hot path as Python values, for tests that compare them with the general codec."""
from libc.stdint cimport uint8_t

from sluice.router.amqp.codec cimport skip_value
from sluice.router.amqp.frames cimport (
    DISPOSITION_ROOM, SHORT_TAG, TRANSFER_ROOM, Disposition, Flow, Transfer, parse_disposition, parse_flow,
    parse_transfer, usual_transfer, write_disposition, write_short_transfer, write_transfer,
)


def transfer_dict(bytes body not None):
    """Return the transfer whose list is `body`, with the payload behind it, as a dict. Raises RemoteError."""
    cdef Transfer t
    cdef const uint8_t* p = body
    if not usual_transfer(p, p + len(body), &t):
        parse_transfer(p, p + len(body), &t)
    return {
        "handle": t.handle, "delivery_id": t.delivery_id if t.has_delivery_id else None,
        "tag": t.tag.data[:t.tag.size] if t.tag.data is not NULL else None, "message_format": t.message_format,
        "settled": t.settled if t.has_settled else None, "more": t.more, "aborted": t.aborted,
        "state": t.state.data[:t.state.size] if t.state.data is not NULL else None,
        "payload": t.payload.data[:t.payload.size],
    }


def flow_dict(bytes body not None):
    """Return the flow whose list is `body` as a dict. Raises RemoteError."""
    cdef Flow f
    cdef const uint8_t* p = body
    parse_flow(p, p + len(body), &f)
    return {
        "next_incoming_id": f.next_incoming_id if f.has_next_incoming_id else None,
        "incoming_window": f.incoming_window, "next_outgoing_id": f.next_outgoing_id,
        "outgoing_window": f.outgoing_window, "handle": f.handle if f.has_handle else None,
        "delivery_count": f.delivery_count if f.has_delivery_count else None,
        "link_credit": f.link_credit if f.has_link_credit else None, "drain": f.drain, "echo": f.echo,
    }


def disposition_dict(bytes body not None):
    """Return the disposition whose list is `body` as a dict. Raises RemoteError."""
    cdef Disposition d
    cdef const uint8_t* p = body
    parse_disposition(p, p + len(body), &d)
    return {"role": d.role, "first": d.first, "last": d.last, "settled": d.settled,
            "state": d.state.data[:d.state.size] if d.state.data is not NULL else None}


def build_transfer(channel, handle, delivery_id, bytes tag not None, message_format, settled, more, aborted,
                   bytes state not None, bytes payload not None):
    """Return a whole transfer frame."""
    cdef uint8_t[512] room
    if len(tag) > 32 or len(state) > 128:
        raise ValueError("tag or state too long for one small transfer")
    n = write_transfer(room, channel, handle, delivery_id, tag, len(tag), message_format, settled, more, aborted, state,
                       len(state), len(payload))
    return room[:n] + payload


def build_short_transfer(channel, handle, delivery_id, bytes tag not None, message_format, settled,
                         bytes payload not None):
    """Return the whole transfer frame of a delivery that has only one."""
    cdef uint8_t[TRANSFER_ROOM] room
    if len(tag) != SHORT_TAG:
        raise ValueError("a short transfer has a tag of 8 octets")
    n = write_short_transfer(room, channel, handle, delivery_id, tag, message_format, settled, len(payload))
    return room[:n] + payload


def build_disposition(channel, role, first, last, settled, bytes state not None):
    """Return a whole disposition frame."""
    cdef bytearray room = bytearray(DISPOSITION_ROOM + len(state))
    cdef uint8_t* w = room
    n = write_disposition(w, channel, role, first, last, settled, state, len(state))
    return bytes(room[:n])


def equal_span(bytes data not None):
    """Return whether `data` is exactly one value as far as sizes tell."""
    cdef const uint8_t* p = data
    return skip_value(p, p + len(data)) == p + len(data)
