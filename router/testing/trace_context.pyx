"""Access of tests to the trace context of messages."""
from libc.stdint cimport uint8_t
from libc.string cimport memset

from sluice.router.message.sections cimport SCAN_OK, Sections, scan
from sluice.router.tracing.context cimport (
    SPAN_ID_OCTETS, TRACE_ID_OCTETS, TraceContext, context_room, find_context, write_context,
)


def read_context(bytes data not None):
    """Return (trace id, parent id, sampled, encoded tracestate to copy or None) of a message; None: no context."""
    cdef TraceContext found
    cdef const uint8_t* p = data
    find_context(p, len(data), &found)
    if not found.found:
        return None
    state = found.state.data[:found.state.size] if found.state.data is not NULL else None
    return found.trace_id[:TRACE_ID_OCTETS], found.parent_id[:SPAN_ID_OCTETS], bool(found.sampled), state


def replace_context(bytes data not None, bytes trace_id not None, bytes span_id not None):
    """Return (message with the context of a span, octets that were reserved for it); None: its leading sections are
    malformed or incomplete. Ids of 16 and 8 octets."""
    cdef Sections sections
    cdef TraceContext found
    cdef const uint8_t* p = data
    cdef uint8_t* w
    cdef size_t room, size
    if len(trace_id) != TRACE_ID_OCTETS or len(span_id) != SPAN_ID_OCTETS:
        raise ValueError("ids have 16 and 8 octets")
    memset(&sections, 0, sizeof(Sections))
    if scan(p, len(data), True, False, &sections) != SCAN_OK:
        return None
    find_context(p, len(data), &found)
    room = context_room(len(data), &found)
    written = bytearray(room)
    w = written
    size = write_context(w, p, len(data), &sections, &found, trace_id, span_id, 1, 1)
    return bytes(written[:size]), room
