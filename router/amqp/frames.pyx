"""Frames (AMQP 1.0 part 2, 2.3), and performatives of the hot path as C structs."""
from libc.string cimport memset

from sluice.router.amqp.buffer cimport buffer_room
from sluice.router.amqp.codec cimport open_list, open_variable, read_unsigned, skip_value
from sluice.router.amqp.spec cimport FRAME_HEADER, P_DISPOSITION, P_FLOW, T_LIST32, T_NULL, T_UBYTE
from sluice.router.amqp.zero cimport zero

from sluice.router.amqp.errors import malformed

cdef list TRANSFER_FIELDS = ["handle", "delivery-id", "delivery-tag", "message-format", "settled", "more",
                             "rcv-settle-mode", "state", "resume", "aborted", "batchable"]
cdef list FLOW_FIELDS = ["next-incoming-id", "incoming-window", "next-outgoing-id", "outgoing-window", "handle",
                         "delivery-count", "link-credit", "available", "drain", "echo", "properties"]
cdef list DISPOSITION_FIELDS = ["role", "first", "last", "settled", "state", "batchable"]


cdef int bad_field(str performative, list names, uint32_t index) except -1:
    name = names[index] if index < len(names) else f"number {index}"
    raise malformed(f"{performative}: field {name} is malformed")


cdef int missing_field(str performative, str name) except -1:
    raise malformed(f"{performative}: mandatory field {name} is missing")


cdef int parse_transfer(const uint8_t* p, const uint8_t* end, Transfer* out) except -1:
    cdef uint32_t count, i = 0
    cdef uint64_t value = 0
    cdef const uint8_t* stop
    cdef const uint8_t* q
    zero(out, sizeof(Transfer))
    p = open_list(p, end, &count, &stop)
    if p is NULL:
        raise malformed("transfer: its fields are not a list, or are longer than the frame")
    if count < 1 or p[0] == T_NULL:
        missing_field("transfer", "handle")
    while i < count:
        if p >= stop:
            bad_field("transfer", TRANSFER_FIELDS, i)
        if p[0] == T_NULL:
            p += 1
            i += 1
            continue
        if i == 2:
            q = open_variable(p, stop, &out.tag)
        elif i == 7:
            q = skip_value(p, stop)
            out.state.data = p
            out.state.size = q - p
        else:
            q = read_unsigned(p, stop, &value)
            if q is not NULL:
                if i == 0:
                    out.handle = <uint32_t>value
                elif i == 1:
                    out.has_delivery_id = True
                    out.delivery_id = <uint32_t>value
                elif i == 3:
                    out.message_format = <uint32_t>value
                elif i == 4:
                    out.has_settled = True
                    out.settled = value != 0
                elif i == 5:
                    out.more = value != 0
                elif i == 6:
                    out.options |= T_RCV_SECOND if value else T_RCV_FIRST
                elif i == 8:
                    out.options |= T_RESUME if value else 0
                elif i == 9:
                    out.aborted = value != 0
                elif i == 10:
                    out.options |= T_BATCHABLE if value else 0
        if q is NULL:
            bad_field("transfer", TRANSFER_FIELDS, i)
        p = q
        i += 1
    out.payload.data = stop
    out.payload.size = end - stop
    return 0


cdef int parse_flow(const uint8_t* p, const uint8_t* end, Flow* out) except -1:
    cdef uint32_t count, i = 0
    cdef uint64_t value = 0
    cdef const uint8_t* stop
    cdef const uint8_t* q
    zero(out, sizeof(Flow))
    p = open_list(p, end, &count, &stop)
    if p is NULL:
        raise malformed("flow: its fields are not a list, or are longer than the frame")
    while i < count:
        if p >= stop:
            bad_field("flow", FLOW_FIELDS, i)
        if p[0] == T_NULL:
            if 1 <= i <= 3:
                missing_field("flow", FLOW_FIELDS[i])
            p += 1
            i += 1
            continue
        if i == 10:
            q = skip_value(p, stop)
            out.properties.data = p
            out.properties.size = q - p
        else:
            q = read_unsigned(p, stop, &value)
        if q is NULL:
            bad_field("flow", FLOW_FIELDS, i)
        if i == 0:
            out.has_next_incoming_id = True
            out.next_incoming_id = <uint32_t>value
        elif i == 1:
            out.incoming_window = <uint32_t>value
        elif i == 2:
            out.next_outgoing_id = <uint32_t>value
        elif i == 3:
            out.outgoing_window = <uint32_t>value
        elif i == 4:
            out.has_handle = True
            out.handle = <uint32_t>value
        elif i == 5:
            out.has_delivery_count = True
            out.delivery_count = <uint32_t>value
        elif i == 6:
            out.has_link_credit = True
            out.link_credit = <uint32_t>value
        elif i == 7:
            out.has_available = True
            out.available = <uint32_t>value
        elif i == 8:
            out.drain = value != 0
        elif i == 9:
            out.echo = value != 0
        p = q
        i += 1
    if count < 4:
        missing_field("flow", FLOW_FIELDS[count])
    return 0


cdef int parse_disposition(const uint8_t* p, const uint8_t* end, Disposition* out) except -1:
    cdef uint32_t count, i = 0
    cdef uint64_t value = 0
    cdef const uint8_t* stop
    cdef const uint8_t* q
    cdef bint has_last = False
    zero(out, sizeof(Disposition))
    p = open_list(p, end, &count, &stop)
    if p is NULL:
        raise malformed("disposition: its fields are not a list, or are longer than the frame")
    if count < 2:
        missing_field("disposition", DISPOSITION_FIELDS[count])
    while i < count:
        if p >= stop:
            bad_field("disposition", DISPOSITION_FIELDS, i)
        if p[0] == T_NULL:
            if i < 2:
                missing_field("disposition", DISPOSITION_FIELDS[i])
            p += 1
            i += 1
            continue
        if i == 4:
            q = skip_value(p, stop)
            out.state.data = p
            out.state.size = q - p
        else:
            q = read_unsigned(p, stop, &value)
            if q is not NULL:
                if i == 0:
                    out.role = value != 0
                elif i == 1:
                    out.first = <uint32_t>value
                elif i == 2:
                    has_last = True
                    out.last = <uint32_t>value
                elif i == 3:
                    out.settled = value != 0
        if q is NULL:
            bad_field("disposition", DISPOSITION_FIELDS, i)
        p = q
        i += 1
    if not has_last:
        out.last = out.first
    return 0


cdef inline uint8_t* begin_wide(uint8_t* frame) noexcept nogil:
    """Replace the list8 that begin_frame has begun by a list32."""
    frame[11] = T_LIST32
    return frame + 20


cdef inline void end_wide(uint8_t* frame, uint8_t* w, uint8_t items) noexcept nogil:
    write32(frame + 12, <uint32_t>(w - frame - 16))
    write32(frame + 16, items)


cdef size_t write_transfer(uint8_t* w, uint16_t channel, uint32_t handle, uint32_t delivery_id, const uint8_t* tag,
                           size_t tag_size, uint32_t message_format, bint settled, bint more, bint aborted,
                           const uint8_t* state, size_t state_size, size_t payload) noexcept nogil:
    cdef uint8_t* frame = w
    cdef uint8_t items = 4
    cdef bint wide = state_size > 150
    w = begin_frame(w, channel, P_TRANSFER)
    if wide:
        w = begin_wide(frame)
    w = put_uint(w, handle)
    w = put_uint(w, delivery_id)
    w[0] = T_BIN8
    w[1] = <uint8_t>tag_size
    memcpy(w + 2, tag, tag_size)
    w += 2 + tag_size
    w = put_uint(w, message_format)
    if settled or more or aborted or state_size:
        items = 5
        w = put_bool(w, settled)
        if more or aborted or state_size:
            items = 6
            w = put_bool(w, more)
            if aborted or state_size:
                items = 8
                w[0] = T_NULL
                w += 1
                if state_size:
                    memcpy(w, state, state_size)
                    w += state_size
                else:
                    w[0] = T_NULL
                    w += 1
                if aborted:
                    items = 10
                    w = put_bool(w, False)
                    w = put_bool(w, True)
    if wide:
        end_wide(frame, w, items)
    else:
        end_list(frame, w, items)
    write32(frame, <uint32_t>(w - frame + payload))
    return w - frame


cdef inline uint8_t* put_null(uint8_t* w) noexcept nogil:
    w[0] = T_NULL
    return w + 1


cdef inline uint8_t* put_octets(uint8_t* w, const uint8_t* octets, size_t size) noexcept nogil:
    if size:
        memcpy(w, octets, size)
    return w + size


cdef size_t write_routed_transfer(uint8_t* w, uint16_t channel, uint32_t handle, uint32_t delivery_id,
                                  const Transfer* t, bint first, bint settled, bint more, bint aborted,
                                  size_t payload) noexcept nogil:
    cdef uint8_t* frame = w
    cdef uint8_t items = 11
    cdef bint wide = t.state.size > 150
    w = begin_frame(w, channel, P_TRANSFER)
    if wide:
        w = begin_wide(frame)
    w = put_uint(w, handle)
    if first:
        w = put_uint(w, delivery_id)
        w[0] = T_BIN8
        w[1] = <uint8_t>t.tag.size
        w = put_octets(w + 2, t.tag.data, t.tag.size)
        w = put_uint(w, t.message_format)
    else:
        w = put_null(put_null(put_null(w)))
    w = put_bool(w, settled)
    w = put_bool(w, more)
    if t.options or t.state.size or aborted:
        if t.options & (T_RCV_FIRST | T_RCV_SECOND):
            w[0] = T_UBYTE
            w[1] = 1 if t.options & T_RCV_SECOND else 0
            w += 2
        else:
            w = put_null(w)
        w = put_octets(w, t.state.data, t.state.size) if t.state.size else put_null(w)
        w = put_bool(w, (t.options & T_RESUME) != 0)
        w = put_bool(w, aborted)
        w = put_bool(w, (t.options & T_BATCHABLE) != 0)
    else:
        items = 6
    if wide:
        end_wide(frame, w, items)
    else:
        end_list(frame, w, items)
    write32(frame, <uint32_t>(w - frame + payload))
    return w - frame


cdef size_t write_disposition(uint8_t* w, uint16_t channel, bint role, uint32_t first, uint32_t last, bint settled,
                              const uint8_t* state, size_t state_size) noexcept nogil:
    """Write a disposition. A state of more than 200 octets needs the wide list. routing-semantics.md 1.6."""
    cdef uint8_t* frame = w
    cdef uint8_t items = 2
    cdef bint wide = state_size > 200
    w = begin_frame(w, channel, P_DISPOSITION)
    if wide:
        w = begin_wide(frame)
    w = put_bool(w, role)
    w = put_uint(w, first)
    if last != first or settled or state_size:
        items = 3
        if last != first:
            w = put_uint(w, last)
        else:
            w[0] = T_NULL
            w += 1
        if settled or state_size:
            items = 4
            w = put_bool(w, settled)
            if state_size:
                items = 5
                memcpy(w, state, state_size)
                w += state_size
    if wide:
        end_wide(frame, w, items)
    else:
        end_list(frame, w, items)
    write32(frame, <uint32_t>(w - frame))
    return w - frame


cdef size_t write_flow(uint8_t* w, uint16_t channel, const Flow* flow) noexcept nogil:
    cdef uint8_t* frame = w
    cdef uint8_t items = 4
    cdef bint wide = flow.properties.size > 150
    w = begin_frame(w, channel, P_FLOW)
    if wide:
        w = begin_wide(frame)
    if flow.has_next_incoming_id:
        w = put_uint(w, flow.next_incoming_id)
    else:
        w[0] = T_NULL
        w += 1
    w = put_uint(w, flow.incoming_window)
    w = put_uint(w, flow.next_outgoing_id)
    w = put_uint(w, flow.outgoing_window)
    if flow.has_handle:
        items = 9
        w = put_uint(w, flow.handle)
        w = put_uint(w, flow.delivery_count) if flow.has_delivery_count else put_null(w)
        w = put_uint(w, flow.link_credit) if flow.has_link_credit else put_null(w)
        w = put_uint(w, flow.available) if flow.has_available else put_null(w)
        w = put_bool(w, flow.drain)
        if flow.echo or flow.properties.size:
            items = 10
            w = put_bool(w, flow.echo)
            if flow.properties.size:
                items = 11
                w = put_octets(w, flow.properties.data, flow.properties.size)
    else:
        # Flow of a session. Some clients index the link's fields without checking the length.
        items = 9
        memset(w, T_NULL, 5)
        w += 5
    if wide:
        end_wide(frame, w, items)
    else:
        end_list(frame, w, items)
    write32(frame, <uint32_t>(w - frame))
    return w - frame


cdef int write_frame(WriteBuffer* out, uint16_t channel, uint8_t kind, bytes body) except -1:
    """Write a frame around an encoded performative (cold path)."""
    cdef size_t size = FRAME_HEADER + len(body)
    cdef uint8_t* w = buffer_room(out, size)
    write32(w, <uint32_t>size)
    w[4] = 2
    w[5] = kind
    write16(w + 6, channel)
    memcpy(w + FRAME_HEADER, <const uint8_t*>body, len(body))
    out.end += size
    return 0
