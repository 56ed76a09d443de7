"""Frames (AMQP 1.0 part 2, 2.3), and performatives of the hot path as C structs."""
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

from libc.string cimport memcpy

from sluice.router.amqp.buffer cimport WriteBuffer, read32, write16, write32
from sluice.router.amqp.codec cimport Slice
from sluice.router.amqp.spec cimport (
    P_TRANSFER, T_BIN8, T_FALSE, T_LIST8, T_SMALLUINT, T_SMALLULONG, T_TRUE, T_UINT, T_UINT0,
)
from sluice.router.amqp.zero cimport zero

cdef enum:
    # Transfer.options
    T_RCV_FIRST = 1            # rcv-settle-mode: first
    T_RCV_SECOND = 2           # rcv-settle-mode: second
    T_RESUME = 4
    T_BATCHABLE = 8

# Transfer (part 2, 2.7.5). Flags are 0 if absent or false.
cdef struct Transfer:
    uint32_t handle
    uint32_t delivery_id
    uint32_t message_format
    bint has_delivery_id
    bint has_settled
    bint settled
    bint more
    bint aborted
    uint8_t options            # T_ bits for fields that matter only to the two ends
    Slice tag
    Slice state                # encoded delivery state
    Slice payload

# Flow (part 2, 2.7.4).
cdef struct Flow:
    uint32_t next_incoming_id
    uint32_t incoming_window
    uint32_t next_outgoing_id
    uint32_t outgoing_window
    uint32_t handle
    uint32_t delivery_count
    uint32_t link_credit
    bint has_next_incoming_id
    bint has_handle
    bint has_delivery_count
    bint has_link_credit
    uint32_t available
    bint has_available
    bint drain
    bint echo
    Slice properties
    # Not on the wire: credit that a routed sender has returned by advancing its delivery-count (drain).
    uint32_t given_back

# Disposition (part 2, 2.7.6).
cdef struct Disposition:
    bint role                  # True: the sender of the frame is the receiver of the deliveries
    uint32_t first
    uint32_t last
    bint settled
    Slice state

# Parse the transfer whose list begins at p. out.payload is the rest of the frame. `usual_transfer` parses nearly all.
cdef int parse_transfer(const uint8_t* p, const uint8_t* end, Transfer* out) except -1
cdef int parse_flow(const uint8_t* p, const uint8_t* end, Flow* out) except -1
cdef int parse_disposition(const uint8_t* p, const uint8_t* end, Disposition* out) except -1

cdef enum:
    TRANSFER_ROOM = 80         # most octets of a transfer frame before its payload: the header, and a tag of 32 octets
    DISPOSITION_ROOM = 48      # most octets of a disposition without its state
    FLOW_ROOM = 88             # most octets of a flow without its properties

# Writers of whole frames at `w`, which return the length. write_transfer writes everything except the payload, whose
# size is `payload`. The caller has made room: for a transfer TRANSFER_ROOM octets and the state.
cdef size_t write_transfer(uint8_t* w, uint16_t channel, uint32_t handle, uint32_t delivery_id, const uint8_t* tag,
                           size_t tag_size, uint32_t message_format, bint settled, bint more, bint aborted,
                           const uint8_t* state, size_t state_size, size_t payload) noexcept nogil
# Write the transfer of a routed link, which relays the fields of `t`. first: the first transfer of the delivery. The
# caller has made room for TRANSFER_ROOM octets and the state.
cdef size_t write_routed_transfer(uint8_t* w, uint16_t channel, uint32_t handle, uint32_t delivery_id,
                                  const Transfer* t, bint first, bint settled, bint more, bint aborted,
                                  size_t payload) noexcept nogil
cdef size_t write_disposition(uint8_t* w, uint16_t channel, bint role, uint32_t first, uint32_t last, bint settled,
                              const uint8_t* state, size_t state_size) noexcept nogil
cdef size_t write_flow(uint8_t* w, uint16_t channel, const Flow* flow) noexcept nogil
cdef int write_frame(WriteBuffer* out, uint16_t channel, uint8_t kind, bytes body) except -1


# ---------------------------------------------------------------------------------------------------------------------
# Fast path for the usual transfer

cdef enum:
    USUAL_OCTETS = 16  # least octets for which ids need no check against the end: 3 of the list head, and 5, 5, 2


cdef inline const uint8_t* usual_uint(const uint8_t* p, uint32_t* value) noexcept nogil:
    """Read a uint at p, where at least 5 octets are readable; return the position behind it. NULL: another type."""
    if p[0] == T_UINT:
        value[0] = read32(p + 1)
        return p + 5
    if p[0] == T_SMALLUINT:
        value[0] = p[1]
        return p + 2
    value[0] = 0
    return p + 1 if p[0] == T_UINT0 else NULL


cdef inline const uint8_t* usual_flag(const uint8_t* p, const uint8_t* stop, bint* value) noexcept nogil:
    """Read a boolean of one octet; return the position behind it. NULL: another type, or no octet left."""
    if p >= stop or (p[0] != T_TRUE and p[0] != T_FALSE):
        return NULL
    value[0] = p[0] == T_TRUE
    return p + 1


cdef inline bint usual_transfer(const uint8_t* p, const uint8_t* end, Transfer* out) noexcept nogil:
    """Parse the usual transfer, as parse_transfer does: a short list of handle, delivery-id, delivery-tag and
    message-format, and perhaps settled and more. False: the transfer has another form."""
    cdef const uint8_t* stop
    cdef uint8_t count
    if end - p < USUAL_OCTETS or p[0] != T_LIST8 or not 4 <= p[2] <= 6 or end - p - 2 < p[1]:
        return False
    zero(out, sizeof(Transfer))
    stop = p + 2 + p[1]
    count = p[2]
    p = usual_uint(p + 3, &out.handle)
    if p is NULL:
        return False
    p = usual_uint(p, &out.delivery_id)
    if p is NULL or p[0] != T_BIN8:
        return False
    out.has_delivery_id = True
    out.tag.data = p + 2
    out.tag.size = p[1]
    p += 2 + p[1]
    if stop - p < 1:
        return False
    if p[0] == T_UINT0:
        p += 1
    elif stop - p < 5:
        return False
    else:
        p = usual_uint(p, &out.message_format)
        if p is NULL:
            return False
    if count > 4:
        out.has_settled = True
        p = usual_flag(p, stop, &out.settled)
        if p is NULL:
            return False
        if count > 5:
            p = usual_flag(p, stop, &out.more)
            if p is NULL:
                return False
    out.payload.data = stop
    out.payload.size = end - stop
    return True


# ---------------------------------------------------------------------------------------------------------------------
# Encoding of parts of a frame

cdef inline uint8_t* put_uint(uint8_t* w, uint32_t value) noexcept nogil:
    if value == 0:
        w[0] = T_UINT0
        return w + 1
    if value < 256:
        w[0] = T_SMALLUINT
        w[1] = <uint8_t>value
        return w + 2
    w[0] = T_UINT
    write32(w + 1, value)
    return w + 5


cdef inline uint8_t* put_bool(uint8_t* w, bint value) noexcept nogil:
    w[0] = T_TRUE if value else T_FALSE
    return w + 1


cdef inline uint8_t* begin_frame(uint8_t* w, uint16_t channel, uint8_t code) noexcept nogil:
    """Write the head of a frame. w[0:4] (the frame size), and size and count of the list8, are left to the writer's
    end and to end_list."""
    w[4] = 2
    w[5] = 0
    write16(w + 6, channel)
    w[8] = 0
    w[9] = T_SMALLULONG
    w[10] = code
    w[11] = T_LIST8
    return w + 14


cdef inline void end_list(uint8_t* frame, uint8_t* w, uint8_t items) noexcept nogil:
    frame[12] = <uint8_t>(w - frame - 13)
    frame[13] = items


cdef enum:
    SHORT_TAG = 8              # octets of the tag of a short transfer

cdef inline size_t write_short_transfer(uint8_t* w, uint16_t channel, uint32_t handle, uint32_t delivery_id,
                                        const uint8_t* tag, uint32_t message_format, bint settled,
                                        size_t payload) noexcept nogil:
    """Write the only frame of a delivery without a state: the same octets as write_transfer."""
    cdef uint8_t* frame = w
    w = put_uint(begin_frame(w, channel, P_TRANSFER), handle)
    w = put_uint(w, delivery_id)
    w[0] = T_BIN8
    w[1] = SHORT_TAG
    memcpy(w + 2, tag, SHORT_TAG)
    w = put_uint(w + 2 + SHORT_TAG, message_format)
    if settled:
        w[0] = T_TRUE
        w += 1
    end_list(frame, w, 5 if settled else 4)
    write32(frame, <uint32_t>(w - frame + payload))
    return w - frame
